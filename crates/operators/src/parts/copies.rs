//! Owns the copies of parts on other workers: a part sends each block that it writes, and each shard
//! of copies writes what comes to files of its own. (Krevat et al., Table 3, the rows with
//! replication.)

use super::PartCount;
use brambling_program::{KernelError, Relation, RelationTable, Streams, Work};
use brambling_storage::{BlockWriter, FileError, OutputFile, Publishing, process_name};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// So many blocks are written at once.
const BLOCKS_BEHIND: usize = 3;

/// Which shard has copies of which part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyPlan {
    /// Parts, and shards of copies: a multiple of the workers.
    pub parts: u32,
    /// Copies of each part.
    pub copies: u32,
    /// How many workers there are: copies go to the next ones.
    pub workers: u32,
}

/// Copies that are not what they are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFault {
    /// Copies are not whole: a fault of ours.
    #[error("{copied_bytes} bytes were copied of {bytes}; please report this")]
    Differs {
        /// Bytes of the parts.
        bytes: u64,
        /// Bytes of their copies.
        copied_bytes: u64,
    },
    /// A copy lies where its part does: workers came or went, or have different numbers of threads.
    #[error(
        "part {part} and a copy of it lie on one worker, since the workers are not alike; the output is there: begin again with workers of equal threads, and --no-balance for the controller"
    )]
    BesidePart {
        /// The part.
        part: u32,
    },
}

impl CopyPlan {
    /// Which part sends to which shard of copies: to the same place of the next workers' ranges, since
    /// shards are placed in ranges of equal length.
    pub(crate) fn relation(&self) -> Relation {
        let table = RelationTable {
            sources: (0..self.parts).map(|shard| self.copied_by(shard)).collect(),
        };
        Relation::Tables {
            prologue: Vec::new(),
            period: vec![table],
        }
    }

    /// The parts of which a shard has copies, ascending.
    pub fn copied_by(&self, shard: u32) -> Vec<u32> {
        let mut parts: Vec<u32> = (1..=self.copies)
            .map(|copy| self.source(shard, copy))
            .collect();
        parts.sort_unstable();
        parts
    }

    /// The part whose copy of this number a shard has.
    fn source(&self, shard: u32, copy: u32) -> u32 {
        let of_worker = self.parts / self.workers.max(1);
        (shard + self.parts - copy * of_worker % self.parts) % self.parts
    }

    /// The number of the copy that a shard has of a part.
    fn copy_of(&self, shard: u32, part: u32) -> Option<u32> {
        (1..=self.copies).find(|copy| self.source(shard, *copy) == part)
    }

    /// Whether each copy is whole, and in another process than the part.
    ///
    /// # Errors
    /// When one is not.
    pub fn check<P: PartCount, C: PartCount>(
        &self,
        parts: &[P],
        copies: &[C],
    ) -> Result<(), CopyFault> {
        for (shard, copied) in (0..).zip(copies) {
            let sources = self.copied_by(shard);
            let of = |part: &u32| &parts[*part as usize];
            let bytes: u64 = sources.iter().map(|part| of(part).bytes()).sum();
            if bytes != copied.bytes() {
                return Err(CopyFault::Differs {
                    bytes,
                    copied_bytes: copied.bytes(),
                });
            }
            let is_beside =
                |part: &&u32| of(part).process() == copied.process() && of(part).bytes() > 0;
            if let Some(part) = sources.iter().find(is_beside) {
                return Err(CopyFault::BesidePart { part: *part });
            }
        }
        Ok(())
    }
}

/// What a shard of copies has written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCount {
    bytes: u64,
    process: String,
}
brambling_program::payload!(CopyCount { bytes, process });

impl PartCount for CopyCount {
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn process(&self) -> &str {
        &self.process
    }
}

/// Files of copies that a shard writes, one part after the other.
#[derive(Default)]
pub(crate) struct CopyFiles {
    open: Option<OpenCopy>,
    publishing: Option<Publishing>,
    /// A block that has come, of which part.
    held: Option<(u32, Vec<u8>)>,
    ended: bool,
    bytes: u64,
}

struct OpenCopy {
    source: u32,
    file: Arc<OutputFile>,
    writer: BlockWriter,
    at: u64,
}

impl CopyFiles {
    /// Writes what comes. Ready when all of it is on the disk. `create` makes the file of a copy by
    /// its number and its part's.
    pub(crate) fn poll(
        &mut self,
        plan: &CopyPlan,
        streams: &mut Streams<'_, '_>,
        create: impl Fn(u32, u32) -> Result<Arc<OutputFile>, KernelError>,
    ) -> Result<Poll<CopyCount>, KernelError> {
        let waker = streams.context().completion();
        let shard = streams.context().partition();
        let create = |part| {
            let copy = plan.copy_of(shard, part);
            create(copy.expect("only related parts send"), part)
        };
        let from = streams.input::<Vec<u8>>(0);
        loop {
            let before = self.bytes;
            let is_ready = self.write_what_came(&create, &waker)?;
            let written = self.bytes - before;
            let work = Work::streamed(2 * written).and_file_written(written);
            streams.context().worked(work);
            if !is_ready {
                return Ok(Poll::Pending);
            }
            if self.ended {
                return Ok(Poll::Ready(CopyCount {
                    bytes: self.bytes,
                    process: process_name().into(),
                }));
            }
            match streams.poll(&from) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(None) => self.ended = true,
                Poll::Ready(Some((source, block))) => {
                    self.held = Some((source, std::mem::take(block)));
                }
            }
        }
    }

    /// Whether nothing that came has still to be given to the disk; at the end, whether all is there.
    fn write_what_came(
        &mut self,
        create: &impl Fn(u32) -> Result<Arc<OutputFile>, KernelError>,
        waker: &Waker,
    ) -> Result<bool, KernelError> {
        if let Some(publishing) = &mut self.publishing {
            match publishing.poll(waker) {
                Poll::Pending => return Ok(false),
                Poll::Ready(published) => published.map_err(fault)?,
            }
            self.publishing = None;
        }
        let next = self.held.as_ref().map(|held| held.0);
        if let Some(open) = &mut self.open {
            let is_over = self.ended || next.is_some_and(|source| source != open.source);
            let polled = match is_over {
                true => open.writer.poll_written(waker),
                false => open.writer.poll_room(waker),
            };
            match polled {
                Poll::Pending => return Ok(false),
                Poll::Ready(done) => done.map_err(fault)?,
            }
            if is_over {
                self.publishing = Some(Publishing::new(&open.file));
                self.open = None;
                return self.write_what_came(create, waker);
            }
        }
        if let Some((source, block)) = self.held.take() {
            let open = match &mut self.open {
                Some(open) => open,
                none => {
                    let file = create(source)?;
                    none.insert(OpenCopy {
                        source,
                        writer: BlockWriter::new(&file, BLOCKS_BEHIND),
                        file,
                        at: 0,
                    })
                }
            };
            let mut out = open.writer.take_block_at(open.at, block.len());
            out.extend_from_slice(&block);
            if !out.is_empty() {
                open.writer.write(open.at, out);
            }
            open.at += block.len() as u64;
            self.bytes += block.len() as u64;
        }
        Ok(true)
    }
}

fn fault(error: FileError) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_copies_on_the_next_workers() {
        for (workers, copies) in [(2, 1), (3, 1), (3, 2), (4, 2)] {
            let plan = CopyPlan {
                parts: 4 * workers,
                copies,
                workers,
            };
            let worker_of = |shard: u32| shard / 4;
            for part in 0..plan.parts {
                let shards: Vec<u32> = (0..plan.parts)
                    .filter(|shard| plan.copied_by(*shard).contains(&part))
                    .collect();
                let mut numbers: Vec<u32> = shards
                    .iter()
                    .filter_map(|shard| plan.copy_of(*shard, part))
                    .collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (1..=copies).collect::<Vec<_>>());
                let mut on: Vec<u32> = shards.iter().map(|shard| worker_of(*shard)).collect();
                on.push(worker_of(part));
                on.sort_unstable();
                on.dedup();
                assert_eq!(
                    on.len() as u32,
                    copies + 1,
                    "{plan:?}, part {part}: {shards:?}"
                );
            }
        }
    }

    #[test]
    fn a_copy_that_is_short_or_beside_its_part_is_told() {
        let plan = CopyPlan {
            parts: 2,
            copies: 1,
            workers: 2,
        };
        let count = |bytes, process: &str| CopyCount {
            bytes,
            process: process.into(),
        };
        let parts = [count(10, "a"), count(20, "b")];
        let check = |copies: [CopyCount; 2]| plan.check(&parts, &copies);
        assert_eq!(check([count(20, "a"), count(10, "b")]), Ok(()));
        let short = CopyFault::Differs {
            bytes: 20,
            copied_bytes: 19,
        };
        assert_eq!(check([count(19, "a"), count(10, "b")]), Err(short));
        let beside = CopyFault::BesidePart { part: 1 };
        assert_eq!(check([count(20, "b"), count(10, "a")]), Err(beside));
    }
}
