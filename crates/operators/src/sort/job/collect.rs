//! Owns the stage `sort`: a part takes its records as they come, sorts them, and writes them where
//! they belong. Where memory ends it writes sorted runs and merges them at the end. (Krevat et al.,
//! §7, phase 2, and the external sort of Table 3.)

use super::emit::{Emit, Emitted, SortedSource};
use super::merging::MergedRuns;
use super::plan::{SortOutput, SortPlan};
use super::room::RoomAnswer;
use super::shared::SortShared;
use super::{SortChunk, SortCount, summed};
use crate::parts::Pass;
use crate::sort::{Arena, OrderCheck, SortedRecords, extent};
use brambling_program::{Context, KernelError, Progress, Streams, Work};
use brambling_storage::{InputFile, OutputFile, Publishing};
use std::sync::Arc;
use std::task::Poll;

/// A part whose records come.
pub(super) struct Collect {
    shared: Arc<SortShared>,
    part: u32,
    is_begun: bool,
    /// The fingerprint that the chunks of its sources have.
    schema: u64,
    arena: Arena,
    /// What the arena has of the room.
    room_bytes: u64,
    /// Where the part begins in the output.
    before: u64,
    /// Its bytes.
    bytes: u64,
    runs: Vec<Arc<InputFile>>,
    now: Doing,
    pass: Option<Pass>,
    count: SortCount,
    check: Option<OrderCheck>,
}

enum Doing {
    Taking,
    /// Waits for its turn to write a run.
    Full,
    Spilling(Emit, Arc<OutputFile>),
    /// Waits for its turn to write.
    Ready,
    /// With the part's own file, where it has one.
    Writing(Emit, Option<Arc<OutputFile>>),
    Publishing(Publishing),
}

pub(super) fn open(plan: &SortPlan, context: &mut Context<'_>) -> Collect {
    let shared = SortShared::of(plan);
    shared.memory(plan, context);
    Collect {
        shared,
        part: context.partition(),
        is_begun: false,
        schema: plan.format.fingerprint(),
        arena: Arena::new(plan.format),
        room_bytes: 0,
        before: 0,
        bytes: 0,
        runs: Vec::new(),
        now: Doing::Taking,
        pass: None,
        count: SortCount::default(),
        check: plan.checksums.then(|| OrderCheck::new(plan.format)),
    }
}

pub(super) fn sort(
    plan: &SortPlan,
    own: &mut Collect,
    streams: &mut Streams<'_, '_>,
    written: &mut SortCount,
) -> Result<Progress, KernelError> {
    if !own.is_begun {
        // What stands in the way of the output is told before anything is sorted.
        own.shared.staging(plan).map_err(fault)?;
        own.is_begun = true;
    }
    loop {
        let stepped = own.step(plan, streams)?;
        own.tell(streams);
        if let Some(progress) = stepped {
            if progress == Progress::Done {
                *written = std::mem::take(&mut own.count);
            }
            return Ok(progress);
        }
    }
}

/// As [`sort`], of a sort whose parts are copied.
pub(super) fn sort_and_copy(
    plan: &SortPlan,
    own: &mut Collect,
    streams: &mut Streams<'_, '_>,
    written: &mut SortCount,
) -> Result<Progress, KernelError> {
    sort(plan, own, streams, written)
}

/// What became of taking chunks.
enum Taken {
    Pending,
    /// There is no room: what is here goes to a run.
    Spill,
    /// No more come.
    All,
}

impl Collect {
    /// Does what is next. None: there is more to do at once.
    fn step(
        &mut self,
        plan: &SortPlan,
        streams: &mut Streams<'_, '_>,
    ) -> Result<Option<Progress>, KernelError> {
        let waker = streams.context().completion();
        match &mut self.now {
            Doing::Taking => match self.take(plan, streams)? {
                Taken::Pending => return Ok(Some(Progress::Pending)),
                Taken::Spill => self.now = Doing::Full,
                Taken::All => self.now = Doing::Ready,
            },
            Doing::Full | Doing::Ready => {
                match self.shared.writers.enter(self.part, &waker) {
                    Poll::Pending => return Ok(Some(Progress::Pending)),
                    Poll::Ready(pass) => self.pass = Some(pass),
                }
                match self.now {
                    Doing::Full => self.begin_run(plan)?,
                    _ => self.begin_writing(plan)?,
                }
            }
            Doing::Spilling(emit, _) => match emit.poll(&waker, |_| ()) {
                Poll::Pending => return Ok(Some(Progress::Pending)),
                Poll::Ready(emitted) => match emitted? {
                    Emitted::Some => return Ok(Some(Progress::More)),
                    Emitted::All => self.end_run()?,
                },
            },
            Doing::Writing(..) => return self.write(plan, streams),
            Doing::Publishing(publishing) => {
                match publishing.poll(&waker) {
                    Poll::Pending => return Ok(Some(Progress::Pending)),
                    Poll::Ready(published) => published.map_err(fault)?,
                }
                self.pass = None;
                return Ok(Some(Progress::Done));
            }
        }
        Ok(None)
    }

    /// Writes a block, and sends it to where copies are.
    fn write(
        &mut self,
        plan: &SortPlan,
        streams: &mut Streams<'_, '_>,
    ) -> Result<Option<Progress>, KernelError> {
        let waker = streams.context().completion();
        let Doing::Writing(emit, file) = &mut self.now else {
            return Ok(None);
        };
        let (count, check) = (&mut self.count, &mut self.check);
        let mut has_room = true;
        let polled = emit.poll(&waker, |bytes| {
            count.bytes += bytes.len() as u64;
            if let Some(check) = check {
                check.feed(bytes);
            }
            if plan.copies > 0 {
                let to = streams.output::<Vec<u8>>();
                let destinations: Vec<u32> = streams.destinations().collect();
                for destination in destinations {
                    has_room &= streams.send(&to, destination, bytes.to_vec());
                }
            }
        });
        match polled {
            Poll::Pending => return Ok(Some(Progress::Pending)),
            Poll::Ready(emitted) => {
                if let Emitted::Some = emitted? {
                    return Ok(Some(match has_room {
                        true => Progress::More,
                        false => Progress::Pending,
                    }));
                }
            }
        }
        if plan.copies > 0 && self.bytes == 0 {
            // Copies of an empty part are empty files.
            let to = streams.output::<Vec<u8>>();
            let destinations: Vec<u32> = streams.destinations().collect();
            for destination in destinations {
                streams.send(&to, destination, Vec::new());
            }
        }
        let seen = summed(self.check.take())?;
        if let Some(fault) = seen.fault {
            return Err(format!("record {} of a part is out of order", fault.record).into());
        }
        self.count.checksum = seen.checksum;
        self.count.note_process();
        let next = match file.take() {
            Some(file) => Doing::Publishing(Publishing::new(&file)),
            None => Doing::Taking,
        };
        let is_done = matches!(next, Doing::Taking);
        if let Doing::Writing(emit, _) = std::mem::replace(&mut self.now, next) {
            self.shared.divided().pool.give(emit.into_chunks());
        }
        self.let_go();
        if is_done {
            self.pass = None;
        }
        Ok(is_done.then_some(Progress::Done))
    }

    /// Says what was written since the last call, and read of runs. Each record is copied from its place to the block.
    fn tell(&mut self, streams: &mut Streams<'_, '_>) {
        let (is_run, emit) = match &mut self.now {
            Doing::Spilling(emit, _) => (true, emit),
            Doing::Writing(emit, _) => (false, emit),
            _ => return,
        };
        let (written, read) = emit.news();
        if written + read == 0 {
            return;
        }
        let so_far = &self.shared.progress;
        match is_run {
            true => so_far.add_run_written(written),
            false => so_far.add_written(written),
        }
        so_far.add_run_read(read);
        // A record of the mean length.
        let records = u128::from(self.count.records) * u128::from(written);
        let records = (records / u128::from(self.bytes.max(1))) as u64;
        let work = Work::streamed(2 * written).and_random(records, self.bytes);
        streams
            .context()
            .worked(work.and_file_written(written).and_file_read(read));
    }

    /// The memory of the records is free.
    fn let_go(&mut self) {
        let bytes = std::mem::take(&mut self.room_bytes);
        self.shared.divided().room.let_go(self.part, bytes);
    }

    fn take(
        &mut self,
        plan: &SortPlan,
        streams: &mut Streams<'_, '_>,
    ) -> Result<Taken, KernelError> {
        let from = streams.input::<SortChunk>(0);
        let (shared, part) = (self.shared.clone(), self.part);
        let memory = shared.divided();
        loop {
            // Asked for before the chunk is taken: what waits is counted by the exchange.
            let most = memory.sizes.chunk_room_bytes();
            match memory.room.ask(part, most, streams.context()) {
                RoomAnswer::Taken => {}
                RoomAnswer::Spill => return Ok(Taken::Spill),
                RoomAnswer::Wait => return Ok(Taken::Pending),
            }
            let polled = streams
                .poll(&from)
                .map(|chunk| chunk.map(|(source, chunk)| (source, std::mem::take(chunk))));
            let Poll::Ready(Some((source, chunk))) = polled else {
                memory.room.let_go(part, most);
                return Ok(match polled {
                    Poll::Ready(_) => Taken::All,
                    // Others may be short of room while nothing comes for this one.
                    Poll::Pending => match memory.room.is_to_spill(part, streams.context()) {
                        true => Taken::Spill,
                        false => Taken::Pending,
                    },
                });
            };
            let SortChunk {
                schema,
                bytes,
                before,
            } = chunk;
            memory.flight.taken(source, bytes.len() as u64);
            extent::check(schema, self.schema).map_err(fault)?;
            self.before += before;
            self.bytes += bytes.len() as u64;
            let records = plan.count(&bytes);
            self.count.records += records;
            let kept = memory.sizes.room_bytes_of(&bytes, records);
            memory.room.let_go(part, most.saturating_sub(kept));
            self.room_bytes += kept;
            if !bytes.is_empty() {
                self.arena.push(bytes);
            }
        }
    }

    fn begin_run(&mut self, plan: &SortPlan) -> Result<(), KernelError> {
        let arena = std::mem::replace(&mut self.arena, Arena::new(plan.format));
        let bytes = arena.bytes();
        let file = OutputFile::unnamed(&plan.tmp).map_err(fault)?;
        let source = SortedSource::Memory(sorted(plan, arena));
        let block_bytes = self.shared.divided().sizes.write_block_bytes;
        let emit = Emit::new(source, &file, (0, bytes), block_bytes);
        self.now = Doing::Spilling(emit, file);
        Ok(())
    }

    /// Its turn has come: where it begins is known, since all have said what they sent.
    fn begin_writing(&mut self, plan: &SortPlan) -> Result<(), KernelError> {
        let arena = std::mem::replace(&mut self.arena, Arena::new(plan.format));
        let last = sorted(plan, arena);
        let sizes = self.shared.divided().sizes;
        let source = match self.runs.is_empty() {
            true => SortedSource::Memory(last),
            false => {
                let runs = std::mem::take(&mut self.runs);
                SortedSource::Runs(Box::new(MergedRuns::new(plan, &sizes, &runs, last)))
            }
        };
        let (file, own, begin) = match (&plan.output, self.shared.output.get()) {
            (SortOutput::File, Some(file)) => (file.clone(), None, self.before),
            (SortOutput::File, None) => {
                return Err("the process that sorts into a file has it open".into());
            }
            (SortOutput::Parts(_), _) => {
                let staging = self.shared.staging(plan).map_err(fault)?;
                let staging = staging.expect("a sort into parts has their directory");
                let file = staging.part(self.part, Some(self.bytes)).map_err(fault)?;
                (file.clone(), Some(file), 0)
            }
        };
        let range = (begin, begin + self.bytes);
        self.now = Doing::Writing(
            Emit::new(source, &file, range, sizes.write_block_bytes),
            own,
        );
        Ok(())
    }

    fn end_run(&mut self) -> Result<(), KernelError> {
        let Doing::Spilling(emit, file) = std::mem::replace(&mut self.now, Doing::Taking) else {
            return Ok(());
        };
        let run = file.as_input().map_err(fault)?;
        self.count.run_bytes += emit.written_bytes();
        self.runs.push(run);
        self.shared.divided().pool.give(emit.into_chunks());
        self.pass = None;
        self.let_go();
        Ok(())
    }
}

fn sorted(plan: &SortPlan, arena: Arena) -> SortedRecords {
    match plan.is_unstable {
        true => arena.sort_unstable(),
        false => arena.sort(),
    }
}

/// A part that ends early keeps nobody waiting for its memory.
impl Drop for Collect {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn fault(error: impl std::error::Error + Send + Sync + 'static) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}
