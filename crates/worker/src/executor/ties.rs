//! A job's ties to the other workers of a cluster: its node, what carries frames, and which shards come and go.
//!
//! The node is behind a lock, which compute stages never take. What it asks for is carried out after the lock was
//! released, so that nobody waits for a carrier inside. Two threads may then carry out what the node said in
//! another order: a wake-up of a shard that has not been unpacked yet finds nothing, and the unpacking wakes it; frames
//! have their numbers already.
//!
//! What may run users' code, such as to encode a piece that is an object of an interpreter's, the node leaves to whoever asked it, as an errand.

use super::failure::{Failure, Rank};
use super::job::Job;
use super::panics;
use crate::Surroundings;
use crate::assembly::Assembly;
use crate::node::{Around, Effect, Encoded, Errand, Node, NodeError, Piece, Taken};
use crate::pieces::Spares;
use brambling_exchange::place::Place;
use brambling_exchange::{CombiningTree, RouterError};
use brambling_memory::held::{self, Held};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, Plan, Position, ShardId, Turn, Value};
use brambling_protocol::frame::{DataHead, Ending, Frame, Incoming, Packet, SHARED_BYTES};
use brambling_protocol::{Priority, Sequence, Version, WorkerId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// So many pieces whose parts come are remembered before those are forgotten that are no more.
const SWEPT_AT: usize = 64;

/// Carries frames to other workers and to the controller.
pub trait Carrier: Send + Sync {
    /// Sends whole frames, each to a peer. Called from any thread; it must not wait for peers, and may lose frames only
    /// together with their connection: a new one is greeted by [`Job::on_reconnect`].
    fn send(&self, frames: Vec<(WorkerId, Priority, Packet)>);
    /// Takes what has come and hands it to the job; whether anything came or went. Called by threads that have nothing else to do,
    /// again and again.
    fn poll(&self) -> bool {
        false
    }
    /// Takes what has come, too. Called by threads between two tasks, not too often.
    fn look(&self) {}
    /// A thread that polled does so no longer: it goes to sleep.
    fn rest(&self) {}
    /// It has woken.
    fn resume(&self) {}
    /// A worker has left the job: its link is not needed any more.
    fn forget(&self, _worker: WorkerId) {}
    /// A failure of this worker's as the cluster should read it.
    fn explain(&self, failure: &Failure) -> String {
        failure.to_string()
    }
}

/// This worker's part in a job of a cluster.
pub struct Membership {
    /// Its node, with no shard here yet.
    pub node: Node,
    /// What carries its frames.
    pub carrier: Arc<dyn Carrier>,
    /// The shards that start here, with the versions of their entries.
    pub placed: Vec<(ShardId, Version)>,
}

pub(super) struct Ties {
    node: Mutex<Node>,
    carrier: Arc<dyn Carrier>,
    /// By number: whether the shard starts here.
    placed: Box<[bool]>,
    /// By number: whether the shard is here, as far as known without asking the node.
    here: Box<[AtomicBool]>,
    /// By exchange.
    spares: Box<[Arc<Spares>]>,
    /// By exchange: where pieces are merged on their way, and by whose shards.
    trees: Box<[Option<(CombiningTree, GroupId)>]>,
    /// By number: whether the shard has to leave.
    leaving: Box<[AtomicBool]>,
    /// Shards that have come and were not unpacked yet, by number.
    arrived: Mutex<BTreeMap<u32, Vec<Bytes>>>,
    /// Whether something waits in the node for a flush.
    unsent: AtomicBool,
    /// Large pieces of which some parts have come.
    assemblies: Mutex<Assemblies>,
    /// Whether what comes is read to where it will lie. Not where it may be spilled: a piece's memory is free once all of its parts are.
    reads_in_place: bool,
}

/// Whose a piece is: the exchange and its turn, the source, and the first of those who get it alike.
type PieceKey = (ExchangeId, Turn, u64, u32);

/// Large pieces of which some parts have come; they are there for as long as anybody has a part.
struct Assemblies {
    pieces: BTreeMap<PieceKey, Weak<Assembly>>,
    /// How many there may be before those are forgotten that are no more.
    swept_at: usize,
}

impl Default for Assemblies {
    fn default() -> Assemblies {
        Assemblies {
            pieces: BTreeMap::new(),
            swept_at: SWEPT_AT,
        }
    }
}

impl Assemblies {
    fn begin(&mut self, key: PieceKey, assembly: Arc<Assembly>) -> Arc<Assembly> {
        if self.pieces.len() >= self.swept_at {
            self.pieces.retain(|_, piece| piece.strong_count() > 0);
            self.swept_at = SWEPT_AT.max(2 * self.pieces.len());
        }
        self.pieces.insert(key, Arc::downgrade(&assembly));
        assembly
    }

    fn get(&self, key: PieceKey) -> Option<Arc<Assembly>> {
        self.pieces.get(&key)?.upgrade()
    }

    /// What a destination may get of a source: of those that begin before it the last one. Whose it is shows when it is taken.
    fn of(
        &self,
        (exchange, turn): (ExchangeId, Turn),
        source: u32,
        destination: u32,
    ) -> Option<Arc<Assembly>> {
        let key = |first| (exchange, turn, u64::from(source), first);
        let (_, piece) = self.pieces.range(key(0)..=key(destination)).next_back()?;
        piece.upgrade()
    }
}

impl Ties {
    /// # Errors
    /// When a shard cannot be here: the node was not fresh, or its map has another program's shards.
    pub(super) fn new(
        membership: Membership,
        plan: &Plan,
        numbers: &[Box<[u32]>],
        shards: usize,
    ) -> Result<Ties, NodeError> {
        let program = &plan.program;
        let Membership {
            mut node,
            carrier,
            placed: shards_here,
        } = membership;
        let reads_in_place = !node.spills();
        let mut placed = vec![false; shards];
        for (shard, version) in shards_here {
            node.settle(shard, version)?;
            placed[numbers[shard.group.index()][shard.index as usize] as usize] = true;
        }
        let exchanges = (0..program.spec().exchanges.len() as u32).map(ExchangeId);
        let is_used = |exchange: &ExchangeId| plan.exchanges[exchange.index()].is_some();
        let tree = |exchange| {
            is_used(&exchange)
                .then(|| node.combining(exchange))
                .flatten()
        };
        Ok(Ties {
            trees: exchanges.map(tree).collect(),
            node: Mutex::new(node),
            carrier,
            here: placed.iter().map(|here| AtomicBool::new(*here)).collect(),
            placed: placed.into(),
            spares: (0..program.spec().exchanges.len())
                .map(|exchange| program.piece_type(ExchangeId(exchange as u32)))
                .map(|piece| Arc::new(Spares::new(piece)))
                .collect(),
            leaving: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            arrived: Mutex::default(),
            unsent: AtomicBool::new(true),
            assemblies: Mutex::default(),
            reads_in_place,
        })
    }

    pub(super) fn starts_here(&self, number: u32) -> bool {
        self.placed[number as usize]
    }

    #[inline]
    pub(super) fn is_leaving(&self, number: u32) -> bool {
        // Acquire: pairs with the release in `perform`.
        self.leaving[number as usize].load(Ordering::Acquire)
    }

    /// What has come for a shard's number, once.
    pub(super) fn take_arrived(&self, number: u32) -> Option<Vec<Bytes>> {
        held::lock(&self.arrived).remove(&number)
    }

    fn node(&self) -> Held<'_, Node> {
        held::lock(&self.node)
    }

    /// Does something with the node, and then what it asks for.
    fn with<R>(&self, job: &Job, act: impl FnOnce(&mut Node) -> R) -> R {
        let mut node = self.node();
        let result = act(&mut node);
        let effects = node.take_effects();
        drop(node);
        self.perform(job, effects);
        result
    }

    fn perform(&self, job: &Job, effects: Vec<Effect>) {
        if effects.is_empty() {
            return;
        }
        let mut frames = Vec::new();
        let mut complete = Vec::new();
        let mut errands = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send {
                    to,
                    priority,
                    packet,
                } => frames.push((to, priority, packet)),
                Effect::Wake(shard) => job.post(job.number(shard.group, shard.index)),
                Effect::Drain(shard) => {
                    let number = job.number(shard.group, shard.index);
                    // Release: pairs with the acquire in `is_leaving`.
                    self.leaving[number as usize].store(true, Ordering::Release);
                    job.post(number);
                }
                Effect::Settle { shard, body } => {
                    let number = job.number(shard.group, shard.index);
                    held::lock(&self.arrived).insert(number, body);
                    self.here[number as usize].store(true, Ordering::Relaxed);
                    job.post(number);
                }
                Effect::Combine { at, group } => complete.push((at, group)),
                Effect::Errand(errand) => errands.push(errand),
                Effect::Forget(worker) => self.carrier.forget(worker),
                Effect::End { failure } => job.end(failure),
            }
        }
        if !frames.is_empty() {
            self.carrier.send(frames);
        }
        self.run(job, &errands);
        for (at, group) in complete {
            if job.has_stopped() {
                return;
            }
            if let Err(failure) = self.combine(job, at, group) {
                job.fail(Rank::After, failure);
            }
        }
    }

    /// Does what the node has left to whoever asked it.
    fn run(&self, job: &Job, errands: &[Errand]) {
        if errands.is_empty() || job.has_stopped() {
            return;
        }
        // Users' code, as a kernel is.
        let run = || errands.iter().try_for_each(Errand::run);
        let failure = match panics::catch(run) {
            Ok(Ok(())) => {
                let ran = self.with(job, Node::ran);
                self.unsent.store(true, Ordering::Relaxed);
                ran.err().map(|error| job.refusal(None, error))
            }
            Ok(Err(error)) => Some(job.refusal(None, error)),
            Err(payload) => {
                let (message, _) = panics::tell(&*payload);
                Some(Failure::Internal { message })
            }
        };
        if let Some(failure) = failure {
            job.fail(Rank::After, failure);
        }
    }

    // ---- what shards ask and say

    #[cold]
    pub(super) fn around<R>(
        &self,
        job: &Job,
        shard: ShardId,
        ask: impl FnOnce(&mut Around<'_>) -> R,
    ) -> R {
        self.with(job, |node| ask(&mut node.around(shard)))
    }

    pub(super) fn announce(&self, job: &Job, shard: ShardId, outermost: u32) {
        self.around(job, shard, |around| around.announce(outermost));
    }

    /// Where pieces of an exchange get their memory.
    pub(super) fn spares(&self, exchange: ExchangeId) -> &Arc<Spares> {
        &self.spares[exchange.index()]
    }

    /// A scatter has run: what it sent goes its way, encoded where it leaves this process.
    pub(super) fn scattered(
        &self,
        job: &Job,
        shard: ShardId,
        at: (ExchangeId, Turn),
        pieces: impl Iterator<Item = (u32, Value)>,
    ) -> Result<(), NodeError> {
        let source = TreeNode::leaf(shard.index.into());
        // Before the node is locked.
        let pieces: Vec<(u32, Piece)> = pieces
            .map(|(to, value)| (to, self.piece(job, at.0, source, to, value)))
            .collect();
        let done = self.with(job, |node| node.scattered(shard, at, pieces));
        self.unsent.store(true, Ordering::Relaxed);
        done
    }

    /// What a source sends, encoded where it leaves this process next.
    fn piece(
        &self,
        job: &Job,
        exchange: ExchangeId,
        source: TreeNode,
        destination: u32,
        value: Value,
    ) -> Piece {
        let relay = self.trees[exchange.index()]
            .and_then(|(tree, group)| tree.next(source).map(|relay| (group, relay)));
        let (group, index) = relay.unwrap_or((job.ends(exchange).destination, destination));
        let number = job.number(group, index);
        match self.here[number as usize].load(Ordering::Relaxed) {
            true => Piece::Value(value),
            false => Piece::Encoded(Encoded::of(value, self.spares(exchange), SHARED_BYTES)),
        }
    }

    /// All that a group of sources sends is here: it goes on as one.
    fn combine(&self, job: &Job, at: (ExchangeId, Turn), group: TreeNode) -> Result<(), Failure> {
        let refused = |error: NodeError| job.refusal(None, error);
        let taken = self.with(job, |node| node.take_group(at, group));
        let taken = taken.map_err(refused)?;
        let program = &job.plan().program;
        // Users' code, as a kernel is.
        let merged = panics::catch(|| self.merge(job, at.0, group, taken));
        let piece = merged.map_err(|payload| {
            let (message, location) = panics::tell(&*payload);
            Failure::Panic {
                stage: program.spec().exchanges[at.0.index()].name.clone(),
                partition: group.start() as u32,
                turn: at.1,
                message,
                location,
            }
        })?;
        let piece = piece.map_err(refused)?;
        let done = self.with(job, |node| node.combined(at, group, piece));
        self.unsent.store(true, Ordering::Relaxed);
        done.map_err(refused)
    }

    fn merge(
        &self,
        job: &Job,
        exchange: ExchangeId,
        group: TreeNode,
        taken: Vec<Taken>,
    ) -> Result<Piece, NodeError> {
        let spares = self.spares(exchange);
        let values = taken.into_iter().map(|piece| piece.into_value(spares));
        let values: Result<Vec<Value>, _> = values.collect();
        let mut values = values.map_err(|error| NodeError::Piece { exchange, error })?;
        let merge = job.plan().program.combiner(exchange);
        let merge = merge.expect("only such pieces meet");
        let (first, others) = values.split_first_mut().expect("somebody sent something");
        merge(first, others);
        let mut values = values.into_iter();
        let first = values.next().expect("somebody sent something");
        values.for_each(|value| spares.put(value));
        Ok(self.piece(job, exchange, group, 0, first))
    }

    /// The pieces of a complete turn, by ascending source.
    pub(super) fn take(
        &self,
        job: &Job,
        shard: ShardId,
        at: (ExchangeId, Turn),
    ) -> Result<Vec<(u32, Taken)>, NodeError> {
        let mut taken = self.with(job, |node| node.take(shard, at))?;
        for (source, taken) in &mut taken {
            taken.lies_in(|| self.assemblies().of(at, *source, shard.index));
        }
        Ok(taken)
    }

    fn assemblies(&self) -> Held<'_, Assemblies> {
        held::lock(&self.assemblies)
    }

    /// Where the last bytes of a frame are to lie that has begun: in the value of a large piece for shards here.
    fn place(&self, job: &Job, begun: &[u8]) -> Option<Place> {
        let ending = Ending::of(begun)?;
        let DataHead {
            exchange,
            turn,
            group,
            ..
        } = ending.head;
        let ends = job.plan().exchanges.get(exchange.index())?.as_ref()?;
        let destinations = ending.first..ending.end;
        let count = *job.plan().counts.get(group.index())?;
        let is_here = |index| {
            let number = job.number(group, index);
            self.here[number as usize].load(Ordering::Relaxed)
        };
        let spares = &self.spares[exchange.index()];
        let is_sound = group == ends.destination
            && ending.source.level == 0
            && ending.end <= count
            && (destinations.len() == 1 || spares.are_shared())
            && destinations.clone().all(is_here);
        if !is_sound || !self.reads_in_place {
            return None;
        }
        let key = (exchange, turn, ending.source.index, destinations.start);
        let assembly = match ending.before {
            Some(head) => {
                let begun = Assembly::begin(spares, head)?;
                self.assemblies().begin(key, begun)
            }
            None => self.assemblies().get(key)?,
        };
        let start = match ending.last {
            true => assembly.bytes().checked_sub(ending.bytes)?,
            false => (ending.chunk as usize).checked_sub(1)? * ending.bytes,
        };
        let region = assembly.region(start..start + ending.bytes)?;
        Some(Place {
            at: ending.at,
            room: Box::new(region),
        })
    }

    pub(super) fn gathered(
        &self,
        job: &Job,
        shard: ShardId,
        at: (ExchangeId, Turn),
    ) -> Result<(), NodeError> {
        let done = self.with(job, |node| node.gathered(shard, at));
        self.unsent.store(true, Ordering::Relaxed);
        done
    }

    pub(super) fn decided(&self, job: &Job, at: Position, outcome: bool) -> Result<(), NodeError> {
        self.with(job, |node| node.decided(at, outcome))
    }

    pub(super) fn finished(&self, job: &Job, shard: ShardId) {
        self.with(job, |node| node.finished(shard));
        self.unsent.store(true, Ordering::Relaxed);
    }

    /// A failure as the cluster should read it; none when it is the cluster that told it.
    pub(super) fn explain(&self, failure: &Failure) -> Option<String> {
        let is_ours = !matches!(failure, Failure::Elsewhere { .. });
        is_ours.then(|| self.carrier.explain(failure))
    }

    /// Tells the controller that the job has failed here.
    pub(super) fn failed(&self, job: &Job, failure: &str) {
        self.with(job, |node| node.failed(failure));
    }

    /// Sends what waits in the node, if anything does.
    #[inline]
    pub(super) fn flush(&self, job: &Job) {
        if self.unsent.load(Ordering::Relaxed) {
            self.unsent.store(false, Ordering::Relaxed);
            // One by one, so that the first is on its way while the next is made, and what comes meanwhile is taken: large pieces
            // both ways would fill the sockets' buffers else, which lie beyond the cache.
            while self.with(job, Node::flush_pieces) {
                self.look();
            }
            self.with(job, Node::flush_news);
        }
    }

    /// Takes what has come from other workers.
    pub(super) fn poll(&self) -> bool {
        self.carrier.poll()
    }

    /// The same between two tasks.
    pub(super) fn look(&self) {
        self.carrier.look();
    }

    /// The calling thread goes to sleep: somebody else has to look what comes.
    pub(super) fn rest(&self) {
        self.carrier.rest();
    }

    /// It has woken.
    pub(super) fn resume(&self) {
        self.carrier.resume();
    }

    /// No task of a shard runs here any more: it leaves.
    pub(super) fn depart(
        &self,
        job: &Job,
        number: u32,
        shard: ShardId,
        body: Vec<u8>,
    ) -> Result<(), NodeError> {
        // What it was to merge goes on.
        self.unsent.store(true, Ordering::Relaxed);
        let mut body = Some(body);
        loop {
            let (gone, errands) = self.with(job, |node| {
                let errands = node.errands_of(shard);
                if !errands.is_empty() {
                    return (None, errands);
                }
                // Inside the lock: the next order can only come after the shard has come back.
                self.leaving[number as usize].store(false, Ordering::Relaxed);
                self.here[number as usize].store(false, Ordering::Relaxed);
                let body = body.take().expect("it leaves once");
                (Some(node.depart(shard, body)), errands)
            });
            if let Some(gone) = gone {
                return gone;
            }
            // What comes meanwhile is encoded the next time round: at most what its open turns take.
            errands.iter().try_for_each(Errand::run)?;
        }
    }
}

/// What a cluster says to a job of its. Called by whoever reads from peers, on any thread.
impl Job {
    /// A frame has come from a peer, or from the controller. One that cannot be taken ends the job: it counts as
    /// received, so it does not come again, and whoever needs it would wait for ever.
    ///
    /// # Errors
    /// What no honest peer sends, and room that is missing.
    ///
    /// # Panics
    /// When the job is no member of a cluster; so do the others here.
    pub fn on_frame<'a>(
        &self,
        from: WorkerId,
        frame: impl Into<Incoming<'a>>,
    ) -> Result<(), NodeError> {
        let incoming = frame.into();
        // Before the node is locked: its checksum takes a while.
        let decoded = Frame::come(incoming).map_err(NodeError::from);
        let ties = self.ties();
        let taken = decoded.and_then(|frame| {
            ties.with(self, |node| {
                node.on_decoded(from, incoming, frame)?;
                // What it forwards would wait for a thread that perhaps sleeps.
                node.flush();
                Ok(())
            })
        });
        // And so would what has been merged meanwhile.
        if ties.unsent.swap(false, Ordering::Relaxed) {
            ties.with(self, Node::flush);
        }
        taken.inspect_err(|error: &NodeError| {
            // After its end nothing can go wrong with a job any more.
            if !self.has_stopped() {
                self.fail(Rank::After, self.refusal(None, error.clone()));
            }
        })
    }

    /// Where the last bytes of a large frame of pieces are to lie, of which these have come: nothing but its header was checked.
    pub fn place(&self, begun: &[u8]) -> Option<Place> {
        self.ties().place(self, begun)
    }

    /// What a job fails with when its node refuses something, perhaps of a stage on a partition.
    pub(super) fn refusal(&self, at: Option<(&str, u32)>, error: NodeError) -> Failure {
        let (stage, partition, exchange, source, spill) = match error {
            NodeError::Router(RouterError::NoRoom(no_room)) => {
                let exchanges = &self.plan.program.spec().exchanges;
                let exchange = exchanges.get(no_room.exchange.index());
                let name = exchange.map(|exchange| exchange.name.clone());
                let arrival = ("arrival of a piece", no_room.shard.index);
                let (stage, partition) = at.unwrap_or(arrival);
                (stage, partition, name, no_room.source, no_room.spill)
            }
            NodeError::NoRoom { shard, source } => {
                ("arrival of a shard", shard.index, None, source, None)
            }
            NodeError::Spilled(error) => return Failure::Spilled(error),
            error => return error.into(),
        };
        Failure::OutOfMemory {
            stage: stage.into(),
            partition,
            exchange,
            source,
            spill,
        }
    }

    /// What this side says when it greets a peer: the first frame of theirs that is missing.
    pub fn received(&self, peer: WorkerId) -> Sequence {
        self.ties().node().received(peer)
    }

    /// Whether the other workers have acknowledged all that this one said.
    pub fn is_settled(&self) -> bool {
        self.ties().node().is_settled()
    }

    /// A new connection, on which the peer says that it has every frame before `received`.
    ///
    /// # Errors
    /// When the peer is unknown, or speaks of another session.
    pub fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), NodeError> {
        self.ties()
            .with(self, |node| node.on_reconnect(peer, received))
    }

    /// Now and then: sends what waits, and asks for outcomes that shards here wait for.
    pub fn on_tick(&self) {
        let ties = self.ties();
        ties.unsent.store(false, Ordering::Relaxed);
        ties.with(self, |node| {
            node.flush();
            node.on_tick();
        });
    }

    /// The job is over, here and everywhere: its threads leave it.
    fn end(&self, failure: Option<String>) {
        match failure {
            Some(failure) => {
                let origin = None;
                self.fail(Rank::After, Failure::Elsewhere { failure, origin });
            }
            None => self.stop(),
        }
        self.note_end();
    }

    pub(super) fn ties(&self) -> &Ties {
        let ties = self.ties.as_ref();
        ties.expect("the job is no member of a cluster")
    }
}
