//! Owns the stage `read`: a split is read ahead of the partitioning, each record goes to the part
//! that the splitters say, and chunks leave when they are full. A source's last chunk to a part
//! tells how many bytes the source has sent to all lower ones: the sum over sources is where the
//! part begins in the output. (Krevat et al., §7, phase 1.)

use super::backup::Backup;
use super::plan::SortPlan;
use super::records::RecordReader;
use super::shared::{SharedSort, SortShared};
use super::{SortChunk, SortCount, SortPieces, summed};
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
    count: SortCount,
    check: Option<OrderCheck>,
    backup: Option<Backup>,
    is_read: bool,
    is_sent: bool,
}

pub(super) fn open(plan: &SortPlan, _: &mut Context<'_>) -> SplitReading {
    SplitReading {
        shared: SortShared::of(plan),
        pass: None,
        reader: None,
        parts: None,
        sent: vec![0; plan.parts as usize],
        count: SortCount::default(),
        check: plan.checksums.then(|| OrderCheck::new(plan.format)),
        backup: None,
        is_read: false,
        is_sent: false,
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
        reading.reader = Some(RecordReader::new(plan, pieces.pieces.clone()));
        reading.parts = Some(PartBuffers::new(splitters.clone(), plan.chunk_bytes()));
        if plan.backup {
            reading.backup = Some(Backup::begin(plan)?);
        }
    }
    if !reading.is_read {
        return reading.read_block(plan, pieces, streams);
    }
    if !reading.is_sent {
        reading.send_rest(plan, streams)?;
    }
    if let Some(backup) = &mut reading.backup {
        match backup.poll_written(&waker) {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(written) => written?,
        }
    }
    reading.pass = None;
    reading.shared.flight.look_again();
    reading.count.checksum = summed(reading.check.take())?.checksum;
    *count = std::mem::take(&mut reading.count);
    Ok(Progress::Done)
}

impl SplitReading {
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
        if !self.shared.flight.may_send(own, is_first, &waker) {
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
        let check = &mut self.check;
        let flight = &self.shared.flight;
        let (mut bytes, mut has_room) = (0, true);
        let polled = reader.poll(pieces.inputs(plan), &waker, |records| {
            bytes += records.len() as u64;
            count.bytes += records.len() as u64;
            count.records += plan.count(records);
            if let Some(check) = check {
                check.feed(records);
            }
            parts.cut(records, |part, full| {
                sent[part as usize] += full.len() as u64;
                flight.sent(own, full.len() as u64);
                if let Some(backup) = backup {
                    backup.write(full);
                }
                // What comes next is as long.
                let fresh = Vec::with_capacity(full.capacity());
                let bytes = std::mem::replace(full, fresh);
                has_room &= streams.send(&to, part, SortChunk { bytes, before: 0 });
            });
        });
        match polled {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(read) => {
                if !read? {
                    self.is_read = true;
                    self.reader = None;
                    return Ok(Progress::More);
                }
            }
        }
        // A byte is read, and copied to its part.
        streams.context().worked(Work::streamed(3 * bytes));
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
        let mut before = 0;
        for part in 0..plan.parts {
            let bytes = std::mem::take(parts.part_mut(part));
            let sent = self.sent[part as usize] + bytes.len() as u64;
            self.shared.flight.sent(own, bytes.len() as u64);
            if let Some(backup) = &mut self.backup {
                backup.write(&bytes);
            }
            // What is short gives back the rest of its buffer.
            let bytes = match bytes.len() < bytes.capacity() / 2 {
                true => bytes.as_slice().to_vec(),
                false => bytes,
            };
            streams.send(&to, part, SortChunk { bytes, before });
            before += sent;
        }
        self.is_sent = true;
        Ok(())
    }
}
