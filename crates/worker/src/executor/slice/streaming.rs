//! Owns the calls of streaming stages: their tasks are opened, called and closed here, and lent
//! what they need meanwhile. The slice that runs their shard calls it (`slice.rs`). It never keeps
//! a chunk that was handed out beyond the call.
#![allow(unsafe_code)] // Lends kernels their ports.

mod ending;

use super::Slice;
use super::exchanging::told;
use super::mailbox::{self, piece};
use super::view::ShardView;
use crate::arrivals::{Arrivals, ChunkCharge, Delivery, NextArrived};
use crate::executor::job::{Job, LoadedShard, ShardCell};
use crate::executor::open::OpenStreamTask;
use crate::node::NodeError;
use crate::piece_data::PieceData;
use crate::waiting::{ExchangeTurn, WaitingPiece};
use brambling_exchange::Item;
use brambling_memory::mutants;
use brambling_program::tree::TreeNode;
use brambling_program::{
    CHUNK_BYTES_MAX, Code, Context, ExchangeId, Kernel, KernelError, LinksAt, OpenTask,
    PayloadType, Polled, Position, Progress, ShardId, StreamPorts, Value,
};
use std::error::Error;
use std::sync::atomic::Ordering;

impl<'a> Slice<'a, '_> {
    /// Calls a task of a streaming stage; it is open from its first call until it has ended.
    #[inline(never)]
    pub(super) fn stream(
        &mut self,
        at: Position,
        around: &mut ShardView<'a, '_>,
        opened: &mut Vec<OpenStreamTask>,
        (kernel, args): (&dyn Kernel, *const *mut u8),
        context: &mut Context<'_>,
    ) -> Progress {
        // Few are open at a time, so a list is searched.
        let place = opened.iter().position(|it| it.at == at);
        let place = place.unwrap_or_else(|| {
            opened.push(self.open(at));
            opened.len() - 1
        });
        let open = &mut opened[place];
        self.set_busy(open, true);
        open.set_lacks_room(false, self.job);
        open.missing.clear();
        let progress = self.call_open(open, around.arrivals, (kernel, args), context);
        match progress {
            Progress::More | Progress::Pending => {
                // A task that waits for chunks slows nobody: its sources may be what it waits for.
                let is_busy = progress == Progress::More
                    || open.missing.is_empty()
                    || mutants::is_on("tasks-that-wait-slow-their-sources");
                self.set_busy(open, is_busy);
                progress
            }
            Progress::Failed => {
                opened.swap_remove(place);
                progress
            }
            Progress::Done => {
                let open = opened.swap_remove(place);
                told(context, self.close(open, around.arrivals))
            }
        }
    }

    /// Calls it, and sends what it says when it is done.
    fn call_open(
        &self,
        open: &mut OpenStreamTask,
        arrivals: &mut Arrivals,
        (kernel, args): (&dyn Kernel, *const *mut u8),
        context: &mut Context<'_>,
    ) -> Progress {
        let state = open.state.take();
        let mut ports = Ports::new(self, arrivals, open);
        let mut lent = OpenTask {
            state,
            ports: &mut ports,
        };
        // SAFETY: what is lent outlives the call.
        unsafe { context.lend_open(&mut lent) };
        let progress = self.call(kernel, args, context);
        let state = lent.state;
        // Chunks that were handed out belong to the call: after it their memory is used again.
        ports.let_go();
        if progress == Progress::Done && ports.failed.is_none() {
            ports.end();
        }
        ports.open.state = state;
        match ports.failed.take() {
            Some(error) if progress != Progress::Failed => context.fail(error),
            _ => progress,
        }
    }

    fn open(&self, at: Position) -> OpenStreamTask {
        let job = self.job;
        let code = &job.plan.codes[self.resident.group.index()];
        let mut tasks = code.tasks.iter();
        let task = tasks.find(|it| it.stage == at.stage && it.kernel.is_some());
        let stream = task.and_then(|it| it.stream.clone());
        let stream = stream.expect("a streaming stage has its streams");
        let fan_out = stream.output.map_or(0, |id| {
            job.exchange(id)
                .links()
                .fan_out(at.turn, self.resident.index)
        });
        OpenStreamTask::new(at, stream, fan_out)
    }

    /// A task has ended that took from these: what is left of them is not wanted.
    fn close(&self, mut open: OpenStreamTask, arrivals: &mut Arrivals) -> Result<(), NodeError> {
        open.set_lacks_room(false, self.job);
        if !mutants::is_on("ended-tasks-stay-busy") {
            self.set_busy(&mut open, false);
        }
        for &id in &open.stream.inputs {
            let at = (id, open.at.turn);
            arrivals.end(at, &self.job.waits);
            if mutants::is_on("ended-tasks-tell-nobody") {
                continue;
            }
            let exchange = self.job.exchange(id);
            exchange.retire(at.1, self.resident.index, |source| {
                self.has_made_room(id, source);
            });
            if let Some(remote) = &self.job.remote {
                remote.has_retired(at, self.resident.index);
            }
        }
        Ok(())
    }

    /// Sources of an open task are told whether it can go on.
    fn set_busy(&self, open: &mut OpenStreamTask, is_busy: bool) {
        if std::mem::replace(&mut open.is_busy, is_busy) != is_busy {
            for id in &open.stream.inputs {
                self.job.flows[id.index()][self.resident.index as usize].set_busy(is_busy);
            }
        }
    }

    /// Something has come: open tasks that found nothing of it are called again. Whether there are any.
    #[inline(never)]
    pub(super) fn resume(
        &self,
        body: &mut LoadedShard,
        code: &Code,
        arrivals: &mut Arrivals,
    ) -> bool {
        let mut any = false;
        for open in &mut body.open {
            let turn = open.at.turn;
            let mut missing = open.missing.iter();
            if missing.any(|id| arrivals.has_next((*id, turn), self.job))
                && !mutants::is_on("chunks-call-nobody")
                && body.shard.complete(code, open.at)
            {
                self.job.pending.fetch_sub(1, Ordering::AcqRel);
                any = true;
            }
        }
        any
    }
}

/// A chunk that a kernel has: its value, and how it counts.
struct Given {
    from: ExchangeId,
    value: Value,
    _charge: ChunkCharge,
}

/// What a call of an open task is lent. It is without the queue lock, so shards are told by doorbell.
struct Ports<'p> {
    job: &'p Job,
    number: u32,
    resident: &'p ShardCell,
    at: Position,
    arrivals: &'p mut Arrivals,
    open: &'p mut OpenStreamTask,
    /// Its output.
    links: Option<LinksAt<'p>>,
    given: Option<Given>,
    failed: Option<KernelError>,
}

impl<'p> Ports<'p> {
    fn new<'a: 'p>(
        slice: &Slice<'a, '_>,
        arrivals: &'p mut Arrivals,
        open: &'p mut OpenStreamTask,
    ) -> Ports<'p> {
        let (job, at) = (slice.job, open.at);
        let links = |id| job.exchange(id).links().at(at.turn);
        Ports {
            job,
            number: slice.number,
            resident: slice.resident,
            at,
            arrivals,
            links: open.stream.output.map(links),
            open,
            given: None,
            failed: None,
        }
    }

    /// The kernel has returned, or asks for another: it has no chunk any more.
    fn let_go(&mut self) {
        if let Some(given) = self.given.take() {
            mailbox::recycle(self.job, given.from, given.value);
        }
    }

    fn fail(&mut self, error: impl Error + Send + Sync + 'static) {
        let error = KernelError::new(error.to_string()).with_source(error);
        self.failed.get_or_insert(error);
    }

    fn next(&mut self, from: ExchangeId) -> Result<Polled, NodeError> {
        let at = (from, self.at.turn);
        let (job, number, task) = (self.job, self.number, self.at);
        let waker = || job.completion(number, task);
        let next = self.arrivals.take_next(at, job, &job.waits, waker)?;
        let (source, taken, charge) = match next {
            NextArrived::Chunk(chunk) => chunk,
            NextArrived::Ended => return Ok(Polled::Ended),
            // The task is woken when there is room.
            NextArrived::NoRoom => return Ok(Polled::Nothing),
            NextArrived::Nothing => {
                // Noted for `resume`, which looks for these alone.
                self.open.missing.push(from);
                return Ok(Polled::Nothing);
            }
        };
        let mut value = mailbox::value(self.job, (at, self.resident.index), source, taken)?;
        value.make_unique();
        let place = value.as_ptr();
        // The chunk is kept with its charge until the next poll: the kernel reads it where it lies.
        self.given = Some(Given {
            from,
            value,
            _charge: charge,
        });
        Ok(Polled::Chunk(source, place))
    }

    /// The place of a destination among those of this turn.
    fn place(&self, destination: u32) -> Option<u32> {
        let is_it = |place: &u32| self.destination(*place) == destination;
        // In a dense relation every destination has the place of its index.
        let here = Some(destination).filter(|place| *place < self.fan_out() && is_it(place));
        here.or_else(|| (0..self.fan_out()).find(is_it))
    }

    fn to(&self, destination: u32) -> (ExchangeTurn, ShardId, u32) {
        let id = self.open.stream.output.expect("it has an output");
        let group = self.job.ends(id).destination;
        let index = destination;
        let number = self.job.number(group, index);
        ((id, self.at.turn), ShardId { group, index }, number)
    }

    fn send(&mut self, place: u32) -> Result<(), NodeError> {
        let outlet = &mut self.open.outlets[place as usize];
        let Some(value) = outlet.begun.take() else {
            return Ok(());
        };
        let chunk = outlet.chunks;
        outlet.chunks += 1;
        let (at, to, number) = self.to(self.destination(place));
        let bytes = value.bytes() as u64;
        if bytes > CHUNK_BYTES_MAX as u64 {
            self.refuse(at.0, bytes);
            return Ok(());
        }
        let source = TreeNode::leaf(self.resident.index.into());
        let job = self.job;
        if job.owner(number).is_none() {
            let mut encoding = Vec::with_capacity(value.bytes());
            value.encode(&mut encoding);
            if encoding.len() > 2 * CHUNK_BYTES_MAX - (1 << 20) {
                self.refuse(at.0, encoding.len() as u64);
                return Ok(());
            }
            mailbox::recycle(job, at.0, value);
            let cargo = PieceData::Bytes(encoding.into());
            return job
                .remote()
                .streamed(job, at, to, &piece(source, (chunk, false), cargo));
        }
        let lowest = job.exchange(at.0).room(to.index).retired();
        let mut admitted = job
            .waits
            .admit(at, to, 1, lowest, PieceData::Value(value))?;
        let mut kept = admitted.next().expect("one for one destination");
        let flow = &job.flows[at.0.index()][to.index as usize];
        kept.slows = Some(flow.add(bytes));
        self.put(at, to, number, piece(source, (chunk, false), kept))
    }

    fn refuse(&mut self, id: ExchangeId, bytes: u64) {
        let name = &self.job.plan.program.spec().exchanges[id.index()].name;
        let error = format!(
            "a chunk of {bytes} bytes was sent to exchange `{name}`, and a chunk has at most {CHUNK_BYTES_MAX}: cut it smaller"
        );
        self.failed.get_or_insert(error.into());
    }

    fn put(
        &self,
        at: ExchangeTurn,
        to: ShardId,
        number: u32,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        let delivery = Delivery { at, item };
        match self.job.residents[number as usize].mailbox.put(delivery) {
            Ok(is_to_be_told) => {
                if is_to_be_told && number != self.number {
                    self.job.post(number);
                }
                Ok(())
            }
            Err(delivery) => self.job.remote().give_back(self.job, to, at, delivery.item),
        }
    }
}

impl StreamPorts for Ports<'_> {
    fn poll(&mut self, from: ExchangeId) -> Polled {
        assert!(
            self.open.stream.inputs.contains(&from),
            "the stage does not take from this exchange; declare it with take"
        );
        self.let_go();
        if self.failed.is_some() {
            return Polled::Nothing;
        }
        self.next(from).unwrap_or_else(|error| {
            self.fail(error);
            Polled::Nothing
        })
    }

    fn input(&self, place: usize) -> Option<(ExchangeId, &'static PayloadType)> {
        let id = *self.open.stream.inputs.get(place)?;
        Some((id, self.job.plan.program.piece_type(id)))
    }

    fn output(&self) -> Option<(ExchangeId, &'static PayloadType)> {
        let id = self.open.stream.output?;
        Some((id, self.job.plan.program.piece_type(id)))
    }

    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let (id, place) = (self.open.stream.output?, self.place(destination)?);
        let job = self.job;
        let fresh = || match &job.remote {
            Some(remote) => remote.spares(id).take_to_send(),
            None => Value::default_of(job.plan.program.piece_type(id)),
        };
        let begun = &mut self.open.outlets[place as usize].begun;
        let value = begun.get_or_insert_with(fresh);
        value.make_unique();
        Some(value.as_ptr())
    }

    fn flush(&mut self, destination: u32) {
        let place = self.place(destination);
        if let Some(place) = place.filter(|_| self.failed.is_none())
            && let Err(error) = self.send(place)
        {
            self.fail(error);
        }
    }

    fn has_room(&mut self, destination: u32) -> bool {
        let job = self.job;
        let (at, to, number) = self.to(destination);
        let waker = || job.completion(self.number, self.at);
        let flow = &job.flows[at.0.index()][to.index as usize];
        // A chunk for another process is not slowed here: that process spills it where it finds no
        // room.
        let has_room = job.owner(number).is_none() || flow.has_room(waker);
        if !has_room {
            self.open.set_lacks_room(true, job);
        }
        has_room
    }

    fn fan_out(&self) -> u32 {
        self.open.outlets.len() as u32
    }

    fn destination(&self, place: u32) -> u32 {
        let links = self.links.as_ref().expect("it has an output");
        links.destination(self.resident.index, place).0
    }
}
