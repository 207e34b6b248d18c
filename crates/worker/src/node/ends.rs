//! How a job ends: the controller hears which shards have finished, or what went wrong, and tells everybody when it is over.

use super::ENTRIES_MAX;
use super::{Node, NodeOptions};
use brambling_program::ShardId;
use brambling_protocol::frame::{Body, Failed, Finished, ShardRange};
use brambling_protocol::{Priority, WorkerId};

/// Longer texts are cut: a backtrace is read, a dump is not.
const FAILURE_BYTES_MAX: usize = 1 << 16;

impl Node {
    /// The program has ended for a shard that is here; the controller hears of it at the next flush. Once for a shard,
    /// wherever it goes later.
    pub fn finished(&mut self, shard: ShardId) {
        self.finished.insert(shard);
    }

    /// The job has failed here, as the text says.
    pub fn failed(&mut self, failure: &str) {
        let NodeOptions {
            job, generation, ..
        } = self.options;
        let failure = cut(failure, FAILURE_BYTES_MAX);
        let failed = Failed {
            job,
            generation,
            failure,
        };
        self.send(WorkerId::CONTROLLER, Priority::FIRST, &Body::Failed(failed));
    }

    pub(super) fn tell_finished(&mut self) {
        if self.finished.is_empty() {
            return;
        }
        let mut shards: Vec<ShardRange> = Vec::new();
        for ShardId { group, index } in std::mem::take(&mut self.finished) {
            match shards.last_mut() {
                Some(range) if range.group == group && range.end == index => range.end += 1,
                _ => shards.push(ShardRange {
                    group,
                    first: index,
                    end: index + 1,
                }),
            }
        }
        let NodeOptions {
            job, generation, ..
        } = self.options;
        for shards in shards.chunks(ENTRIES_MAX) {
            let finished = Body::Finished(Finished {
                job,
                generation,
                shards: shards.to_vec(),
            });
            self.send(WorkerId::CONTROLLER, Priority::FIRST, &finished);
        }
    }
}

/// As much of the beginning as fits, of whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
