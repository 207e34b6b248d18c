//! How a job ends: the controller hears which shards have finished, or what went wrong, and tells everybody when it is over.

use super::super::ENTRIES_MAX;
use super::{Post, Signals};
use brambling_memory::mutants;
use brambling_program::ShardId;
use brambling_protocol::WorkerId;
use brambling_protocol::frame::{Body, Failed, Finished, ShardRange};

/// Longer texts are cut: a backtrace is read, a dump is not.
const FAILURE_BYTES_MAX: usize = 1 << 16;

impl Signals {
    /// The program has ended for a shard that is here.
    pub(crate) fn finished(&mut self, shard: ShardId) {
        self.finished.insert(shard);
        self.over.insert(shard);
    }

    /// A shard has left; whether it has finished.
    pub(crate) fn leave(&mut self, shard: ShardId) -> bool {
        self.over.remove(&shard)
    }

    /// A shard has come that has finished elsewhere, where that was told.
    pub(crate) fn come_finished(&mut self, shard: ShardId) {
        self.over.insert(shard);
    }

    /// The controller may not know which shards here have finished.
    pub(crate) fn tell_again(&mut self) {
        if !mutants::is_on("ends-are-told-to-one-controller") {
            self.finished.extend(&self.over);
        }
    }

    /// Whether the controller was told which shards have finished.
    pub(crate) fn are_told(&self) -> bool {
        self.finished.is_empty()
    }

    pub(crate) fn tell_finished(&mut self, post: &mut Post) {
        if self.are_told() {
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
        let (job, generation) = post.key();
        for shards in shards.chunks(ENTRIES_MAX) {
            let finished = Body::Finished(Finished {
                job,
                generation,
                shards: shards.to_vec(),
            });
            post.send(WorkerId::CONTROLLER, &finished);
        }
    }
}

impl Post {
    /// The job has failed here, as the text says.
    pub(crate) fn fail(&mut self, failure: &str) {
        let failure = cut(failure, FAILURE_BYTES_MAX);
        self.failure.get_or_insert_with(|| failure.to_owned());
        self.say_failed(failure);
    }

    /// The controller may not know how.
    pub(crate) fn fail_again(&mut self) {
        if let Some(failure) = self.failure.clone() {
            self.say_failed(&failure);
        }
    }

    fn say_failed(&mut self, failure: &str) {
        let (job, generation) = self.key();
        let failed = Failed {
            job,
            generation,
            failure,
        };
        self.send(WorkerId::CONTROLLER, &Body::Failed(failed));
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
