//! Owns the stage `read`: a split is read ahead of the partitioning, each record goes to the part
//! that the splitters say, and chunks leave when they are full. A source's last chunk to a part
//! tells how many bytes the source has sent to all lower ones: the sum over sources is where the
//! part begins in the output. (Krevat et al., §7, phase 1.)

use super::backup::Backup;
use super::plan::SortPlan;
use super::records::RecordReader;
use super::shared::{SharedSort, SortShared};
use super::{EXTENT_BYTES, SortChunk, SortCount, SortPieces, summed};
use crate::parts::Pass;
use crate::sort::{OrderCheck, PartBuffers, Splitters};
use brambling_program::{Context, KernelError, Progress, Streams, Work};
use std::sync::Arc;
use std::task::Poll;

/// A split that is being read.
pub(super) struct SplitReading {
    shared: Arc<SortShared>,
    pass: Option<Pass>,
    reader: Option<RecordReader>,
    parts: Option<PartBuffers>,
    /// Bytes sent to each part.
    sent: Vec<u64>,
    /// The fingerprint that each chunk brings along.
    schema: u64,
    count: SortCount,
    check: Option<OrderCheck>,
    backup: Option<Backup>,
    is_read: bool,
    is_sent: bool,
    told: ToldOfReading,
}

/// What has been told of the work.
#[derive(Default)]
struct ToldOfReading {
    partitioned: u64,
    read: u64,
    backed: u64,
}

pub(super) fn open(plan: &SortPlan, _: &mut Context<'_>) -> SplitReading {
    SplitReading {
        shared: SortShared::of(plan),
        pass: None,
        reader: None,
        parts: None,
        sent: vec![0; plan.parts as usize],
        schema: plan.format.fingerprint(),
        count: SortCount::default(),
        check: plan.checksums.then(|| OrderCheck::new(plan.format)),
        backup: None,
        is_read: false,
        is_sent: false,
        told: ToldOfReading::default(),
    }
}

pub(super) fn read(
    plan: &SortPlan,
    reading: &mut SplitReading,
    streams: &mut Streams<'_, '_>,
    _shared: &SharedSort,
    pieces: &SortPieces,
    splitters: &Splitters,
    count: &mut SortCount,
) -> Result<Progress, KernelError> {
    let waker = streams.context().completion();
    let number = streams.context().partition();
    if reading.pass.is_none() {
        match reading.shared.readers.enter(number, &waker) {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(pass) => reading.pass = Some(pass),
        }
        let sizes = &reading.shared.memory(plan, streams.context()).sizes;
        reading.reader = Some(RecordReader::new(plan, sizes, pieces.pieces.clone()));
        reading.parts = Some(PartBuffers::new(splitters.clone(), sizes.chunk_bytes));
        if plan.backup {
            reading.backup = Some(Backup::begin(plan, sizes)?);
        }
    }
    if !reading.is_read {
        let progress = reading.read_block(plan, pieces, streams)?;
        reading.tell(streams);
        return Ok(progress);
    }
    if !reading.is_sent {
        reading.send_rest(plan, streams)?;
        reading.tell(streams);
        reading.reader = None;
    }
    if let Some(backup) = &mut reading.backup {
        match backup.poll_written(&waker) {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(written) => written?,
        }
        reading.count.backup_bytes = backup.written_bytes();
    }
    reading.pass = None;
    let memory = reading.shared.divided();
    memory.flight.look_again();
    if !reading.shared.readers.expects_any() {
        memory.pool.end();
    }
    reading.count.checksum = summed(reading.check.take())?.checksum;
    *count = std::mem::take(&mut reading.count);
    Ok(Progress::Done)
}

impl SplitReading {
    /// Says what was done since the last call: a byte is read, and copied to its part.
    fn tell(&mut self, streams: &mut Streams<'_, '_>) {
        let partitioned = self.count.bytes - self.told.partitioned;
        let read = self
            .reader
            .as_ref()
            .map_or(self.told.read, |it| it.read_bytes)
            - self.told.read;
        let backed = self.backup.as_ref().map_or(0, Backup::bytes) - self.told.backed;
        self.told.partitioned += partitioned;
        self.told.read += read;
        self.told.backed += backed;
        let work = Work::streamed(3 * partitioned);
        streams
            .context()
            .worked(work.and_file_read(read).and_file_written(backed));
        self.shared.progress.add_read(read);
    }

    /// Takes a block and sends what is full.
    fn read_block(
        &mut self,
        plan: &SortPlan,
        pieces: &SortPieces,
        streams: &mut Streams<'_, '_>,
    ) -> Result<Progress, KernelError> {
        let waker = streams.context().completion();
        let own = streams.context().partition();
        let is_first = self.shared.readers.is_first(own);
        let memory = self.shared.divided();
        if !memory.flight.may_send(own, is_first, &waker) {
            return Ok(Progress::Pending);
        }
        if let Some(backup) = &mut self.backup {
            match backup.poll_room(&waker) {
                Poll::Pending => return Ok(Progress::Pending),
                Poll::Ready(room) => room?,
            }
        }
        let to = streams.output::<SortChunk>();
        let reader = self.reader.as_mut().expect("begun with the pass");
        let parts = self.parts.as_mut().expect("begun with the pass");
        let (sent, backup, count) = (&mut self.sent, &mut self.backup, &mut self.count);
        let (check, schema) = (&mut self.check, self.schema);
        let (mut bytes, mut has_room) = (0, true);
        let polled = reader.poll(pieces.inputs(plan), &waker, |records| {
            bytes += records.len() as u64;
            count.bytes += records.len() as u64;
            count.records += plan.count(records);
            if let Some(check) = check {
                check.feed(records);
            }
            parts.cut(records, |part, full| {
                if full.capacity() == 0 {
                    *full = memory.pool.take(memory.sizes.chunk_bytes);
                    return;
                }
                sent[part as usize] += full.len() as u64;
                memory.flight.sent(own, full.len() as u64);
                if let Some(backup) = backup {
                    backup.write(full);
                }
                // What comes next is as long.
                let fresh = memory.pool.take(memory.sizes.chunk_bytes);
                let chunk = SortChunk {
                    schema,
                    bytes: std::mem::replace(full, fresh),
                    before: 0,
                };
                count.extent_bytes += EXTENT_BYTES;
                has_room &= streams.send(&to, part, chunk);
            });
        });
        match polled {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(read) => {
                if !read? {
                    self.is_read = true;
                    return Ok(Progress::More);
                }
            }
        }
        Ok(match has_room {
            true => Progress::More,
            false => Progress::Pending,
        })
    }

    /// Sends the rest, with where parts begin.
    fn send_rest(
        &mut self,
        plan: &SortPlan,
        streams: &mut Streams<'_, '_>,
    ) -> Result<(), KernelError> {
        let to = streams.output::<SortChunk>();
        let mut parts = self.parts.take().expect("begun with the pass");
        let own = streams.context().partition();
        let memory = self.shared.divided();
        let mut before = 0;
        for part in 0..plan.parts {
            let bytes = std::mem::take(parts.part_mut(part));
            let sent = self.sent[part as usize] + bytes.len() as u64;
            memory.flight.sent(own, bytes.len() as u64);
            if let Some(backup) = &mut self.backup {
                backup.write(&bytes);
            }
            // What is short gives its buffer back.
            let bytes = memory.pool.fit(bytes);
            self.count.extent_bytes += EXTENT_BYTES;
            let chunk = SortChunk {
                schema: self.schema,
                bytes,
                before,
            };
            streams.send(&to, part, chunk);
            before += sent;
        }
        self.is_sent = true;
        Ok(())
    }
}
