//! Owns the check of files that should be sorted: each shard looks at a split, and whoever drives it
//! joins what they found in order.

use super::SortPieces;
use super::plan::SortPlan;
use super::records::RecordReader;
use super::shared::{SharedSort, SortShared};
use crate::parts::Pass;
use crate::sort::{OrderCheck, RecordSummary};
use brambling_program::{
    Context, Dataset, KernelError, Partitioner, Program, Progress, Streams, Work,
};
use std::sync::Arc;
use std::task::Poll;

/// Adds the stage, and gives what each split has; kept.
pub fn build(p: &mut Program, plan: &SortPlan) -> Dataset<RecordSummary> {
    let pieces = p.scan(
        "splits",
        plan.splits,
        Partitioner::Opaque,
        plan.clone(),
        |plan: &SortPlan, number: u32, _: u32| SortPieces {
            pieces: plan.split(number),
            own: None,
        },
    );
    let shared = p.scan(
        "checks",
        plan.splits,
        Partitioner::Opaque,
        plan.clone(),
        |plan: &SortPlan, number: u32, _: u32| SharedSort::of(plan, number),
    );
    let found = p.like::<RecordSummary, _>("found", &pieces);
    p.keep(&found);
    p.stream("check")
        .read(&shared)
        .read(&pieces)
        .write(&found)
        .with(plan.clone())
        .run(open, check);
    found
}

struct Checking {
    shared: Arc<SortShared>,
    pass: Option<Pass>,
    reader: Option<RecordReader>,
    check: Option<OrderCheck>,
}

fn open(plan: &SortPlan, _: &mut Context<'_>) -> Checking {
    Checking {
        shared: SortShared::of(plan),
        pass: None,
        reader: None,
        check: Some(OrderCheck::new(plan.format)),
    }
}

fn check(
    plan: &SortPlan,
    own: &mut Checking,
    streams: &mut Streams<'_, '_>,
    _shared: &SharedSort,
    pieces: &SortPieces,
    found: &mut RecordSummary,
) -> Result<Progress, KernelError> {
    let waker = streams.context().completion();
    if own.pass.is_none() {
        match own
            .shared
            .readers
            .enter(streams.context().partition(), &waker)
        {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(pass) => own.pass = Some(pass),
        }
        let sizes = &own.shared.memory(plan, streams.context()).sizes;
        own.reader = Some(RecordReader::new(plan, sizes, pieces.pieces.clone()));
    }
    let reader = own.reader.as_mut().expect("begun with the pass");
    let check = own.check.as_mut().expect("not finished");
    let before = reader.read_bytes;
    let polled = reader.poll(pieces.inputs(plan), &waker, |records| check.feed(records));
    let bytes = reader.read_bytes - before;
    let work = Work::streamed(bytes).and_file_read(bytes);
    streams.context().worked(work);
    match polled {
        Poll::Pending => Ok(Progress::Pending),
        Poll::Ready(read) => {
            if read? {
                return Ok(Progress::More);
            }
            own.pass = None;
            let check = own.check.take().expect("not finished");
            let summary = check.finish();
            *found = summary.map_err(|cut| KernelError::new(cut.to_string()).with_source(cut))?;
            Ok(Progress::Done)
        }
    }
}
