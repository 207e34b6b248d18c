//! Connects the jobs of a process with their peers: for each job and each peer of it one link, made again when it is lost.
//!
//! # Rules
//! * Of two peers one dials, which its owner decides; the other knows it when it calls.
//! * Who dials says [`Call`] first: which job, who it is, whom it wants, and which frames of the session have come. The
//!   other replies with its own. From then on both send what the other lacks ([`Party::on_reconnect`]), and what is new.
//! * What is sent to a peer without a link is dropped: the session has it, and sends it when there is one.
//! * A link that is lost is dialed again, after a while that grows from [`REDIAL_FIRST`] to [`REDIAL_MAX`], until its owner says
//!   that the peer is no more, or that the job is over. Nothing here decides that a peer is dead: its owner hears once when its
//!   machine has not answered for [`CUT_OFF_AFTER`] ([`Party::on_cut_off`]).
//! * A peer whose process was started again is refused: its session is another.
//! * A newer link between the same two takes the place of the older one: whoever dials again has lost it.
//! * Who was forgotten is refused until this side dials it.
//! * A link whose first frame is no call speaks of no job: a [`Reception`] has it, and it is not made again when it is lost.
//!   Whoever says nothing for [`GREETING_TIME`] after the greeting is sent away.

use super::tcp::{Carried, GREETING_TIME, LinkId, Lost, Net, NetOptions, Origin, Owner, Place};
use brambling_protocol::frame::{Body, Call, FORMAT, Frame, Incoming, Packet};
use brambling_protocol::patience::{ACKNOWLEDGED_WITHIN, CUT_OFF_AFTER};
use brambling_protocol::{JobId, Priority, Sequence, WorkerId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long after a link was lost it is dialed again at first.
pub const REDIAL_FIRST: Duration = Duration::from_millis(5);
/// At most.
pub const REDIAL_MAX: Duration = Duration::from_secs(1);

/// What a party refuses, with its reason.
pub type Refused = Box<dyn Error + Send + Sync>;

/// One side of a job's sessions: a worker's node, or the controller. Called on threads of the net, and on those that poll it.
pub trait Party: Send + Sync {
    /// The first frame of the peer's that is missing here.
    fn received(&self, peer: WorkerId) -> Sequence;
    /// There is a new link, and the peer says that it has every frame before `received`.
    ///
    /// # Errors
    /// When it speaks of another session.
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), Refused>;
    /// A frame has come.
    ///
    /// # Errors
    /// When no honest peer says that.
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), Refused>;
    /// A large frame has begun, of which these bytes are there: see [`Owner::place`].
    fn place(&self, _peer: WorkerId, _begun: &[u8]) -> Option<Place> {
        None
    }
    /// The link is lost, and is being dialed again if this side dials; or it could not be made.
    fn on_lost(&self, _peer: WorkerId, _why: &Lost) {}
    /// The peer's machine does not answer, for so long already, and the link is still being dialed again if this side dials. Told once until
    /// there is a link again.
    fn on_cut_off(&self, _peer: WorkerId, _so_long: Duration, _why: &str) {}
}

/// Has the links that speak of no job. Called on threads of the net, and on those that poll it.
pub trait Reception: Send + Sync {
    /// A link that this side has [dialed](Switchboard::visit) is open.
    fn on_open(&self, _link: LinkId) {}
    /// A frame has come.
    ///
    /// # Errors
    /// When no honest process says that: the link ends.
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), Refused>;
    /// The link has ended, or never opened.
    fn on_lost(&self, _link: LinkId, _why: &Lost) {}
}

/// The two ends of a link: a job, and the peer of this process in it.
type Line = (JobId, WorkerId);

struct Job {
    me: WorkerId,
    party: Arc<dyn Party>,
}

/// What is known of a peer.
#[derive(Default)]
struct Peer {
    /// Where to dial it, if this side does.
    dials: Option<SocketAddr>,
    /// The link that it has, once both have said who they are.
    link: Option<LinkId>,
    /// When to dial again, and how long to wait the next time.
    again: Option<Instant>,
    wait: Duration,
    /// Which start of its process it was.
    epoch: Option<u64>,
    /// It takes no part any more.
    is_forgotten: bool,
    /// Since when its machine does not answer.
    cut: Option<Cut>,
}

/// A machine does not answer.
struct Cut {
    /// Since when, in time in which this process ran.
    since: Duration,
    why: String,
    is_told: bool,
}

/// How far a link is.
#[derive(Clone, Copy)]
enum State {
    /// This side dials, and will say who it is.
    Dialing(Line),
    /// Somebody has called, and has not said since then who it is.
    Called(Instant),
    /// It carries frames of this line.
    Serves(Line),
    /// It speaks of no job.
    Visits,
}

#[derive(Default)]
struct Lines {
    jobs: BTreeMap<JobId, Job>,
    peers: BTreeMap<Line, Peer>,
    links: BTreeMap<LinkId, State>,
    ends: bool,
}

struct Shared {
    epoch: u64,
    net: OnceLock<Net>,
    lines: Mutex<Lines>,
    reception: Option<Arc<dyn Reception>>,
    /// Something is to be dialed earlier than was known.
    sooner: Condvar,
}

/// The links of a process. Dropping it ends them all.
pub struct Switchboard {
    shared: Arc<Shared>,
    redialer: Option<JoinHandle<()>>,
}

impl Switchboard {
    /// Starts to listen. `epoch` differs each time the process starts. Whoever speaks of no job is refused.
    ///
    /// # Errors
    /// As [`Net::new`].
    pub fn new(options: NetOptions, epoch: u64) -> io::Result<Switchboard> {
        Switchboard::start(options, epoch, None)
    }

    /// As [`Switchboard::new`], and has links that speak of no job.
    ///
    /// # Errors
    /// As [`Net::new`].
    pub fn receiving(
        options: NetOptions,
        epoch: u64,
        reception: Arc<dyn Reception>,
    ) -> io::Result<Switchboard> {
        Switchboard::start(options, epoch, Some(reception))
    }

    fn start(
        options: NetOptions,
        epoch: u64,
        reception: Option<Arc<dyn Reception>>,
    ) -> io::Result<Switchboard> {
        let shared = Arc::new(Shared {
            epoch,
            net: OnceLock::new(),
            lines: Mutex::default(),
            reception,
            sooner: Condvar::new(),
        });
        let owner = Arc::new(Hearer(Arc::downgrade(&shared)));
        let net = Net::new(options, owner)?;
        assert!(shared.net.set(net).is_ok(), "set once");
        let builder = std::thread::Builder::new().name("brambling-dial".into());
        let dialing = shared.clone();
        let redialer = builder.spawn(move || dialing.redial())?;
        Ok(Switchboard {
            shared,
            redialer: Some(redialer),
        })
    }

    /// Where it listens.
    pub fn listens_at(&self) -> Option<SocketAddr> {
        self.shared.net().listens_at()
    }

    /// What has gone over its links until now.
    pub fn carried(&self) -> Carried {
        self.shared.net().carried()
    }

    /// A job begins, in which this process is `me`. Its peers may call from now on.
    pub fn enter(&self, job: JobId, me: WorkerId, party: Arc<dyn Party>) {
        self.shared.lines().jobs.insert(job, Job { me, party });
    }

    /// A peer is to be dialed there, now and whenever its link is lost.
    pub fn dial(&self, job: JobId, peer: WorkerId, at: SocketAddr) {
        let mut lines = self.shared.lines();
        let line = lines.peers.entry((job, peer)).or_default();
        line.dials = Some(at);
        line.is_forgotten = false;
        line.wait = REDIAL_FIRST;
        line.again = line.link.is_none().then(Instant::now);
        drop(lines);
        self.shared.sooner.notify_all();
    }

    /// A peer is no more: it is not dialed again, its link ends, and when it calls it is refused.
    pub fn forget(&self, job: JobId, peer: WorkerId) {
        let mut lines = self.shared.lines();
        let peer = lines.peers.entry((job, peer)).or_default();
        peer.is_forgotten = true;
        (peer.dials, peer.again) = (None, None);
        let link = peer.link.take();
        drop(lines);
        if let Some(link) = link {
            self.shared.net().close(link);
        }
    }

    /// A job is over: its links end, and whoever calls for it is refused.
    pub fn leave(&self, job: JobId) {
        let mut lines = self.shared.lines();
        lines.jobs.remove(&job);
        lines.peers.retain(|line, _| line.0 != job);
        let of_job = |state: &State| match state {
            State::Dialing(line) | State::Serves(line) => line.0 == job,
            State::Called(_) | State::Visits => false,
        };
        let links = lines.links.iter().filter(|(_, state)| of_job(state));
        let links: Vec<LinkId> = links.map(|(link, _)| *link).collect();
        drop(lines);
        for link in links {
            self.shared.net().close(link);
        }
    }

    /// Sends frames of a job to its peers; drops those to whom there is no link.
    pub fn send<P: Into<Packet>>(
        &self,
        job: JobId,
        frames: impl IntoIterator<Item = (WorkerId, P)>,
    ) {
        let mut by_link: Vec<(LinkId, Vec<Packet>)> = Vec::new();
        let lines = self.shared.lines();
        for (peer, frame) in frames {
            let Some(link) = lines.peers.get(&(job, peer)).and_then(|peer| peer.link) else {
                continue;
            };
            match by_link.iter_mut().find(|(it, _)| *it == link) {
                Some((_, frames)) => frames.push(frame.into()),
                None => by_link.push((link, vec![frame.into()])),
            }
        }
        drop(lines);
        for (link, frames) in by_link {
            self.shared.net().send(link, frames);
        }
    }

    /// Begins to dial a process to speak with it of no job. The [`Reception`] hears how that ends.
    ///
    /// # Errors
    /// When the system has no socket to give.
    pub fn visit(&self, at: SocketAddr) -> io::Result<LinkId> {
        // Under the lock: the link must be known before it is heard of.
        let mut lines = self.shared.lines();
        let link = self.shared.net().dial(at)?;
        lines.links.insert(link, State::Visits);
        Ok(link)
    }

    /// Sends frames on a link that speaks of no job. Does nothing on one that has ended.
    pub fn say(&self, link: LinkId, frames: impl IntoIterator<Item: Into<Packet>>) {
        self.shared.net().send(link, frames);
    }

    /// Ends a link. Its reception hears of it, as of any other end.
    pub fn hang_up(&self, link: LinkId) {
        self.shared.net().close(link);
    }

    /// Ends the link to a peer, which is made again: for tests.
    pub fn cut(&self, job: JobId, peer: WorkerId) {
        let link = self
            .shared
            .lines()
            .peers
            .get(&(job, peer))
            .and_then(|peer| peer.link);
        if let Some(link) = link {
            self.shared.net().close(link);
        }
    }

    /// Takes what has come; whether anything came or went. For threads that would otherwise be idle.
    pub fn poll(&self) -> bool {
        self.shared.net().poll()
    }

    /// The same for threads that do so between other work.
    pub fn look(&self) -> bool {
        self.shared.net().look()
    }

    /// A thread that polled goes to sleep.
    pub fn rest(&self) {
        self.shared.net().rest();
    }

    /// It has woken.
    pub fn resume(&self) {
        self.shared.net().resume();
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        self.shared.lines().ends = true;
        self.shared.sooner.notify_all();
        if let Some(redialer) = self.redialer.take() {
            let _ = redialer.join();
        }
    }
}

impl Shared {
    fn net(&self) -> &Net {
        self.net.get().expect("set before anybody can ask")
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the thread that dials

    fn redial(&self) {
        let mut lines = self.lines();
        while !lines.ends {
            let now = Instant::now();
            if let Some(silent) = lines.silent_at(now) {
                lines.links.remove(&silent);
                drop(lines);
                self.net().close(silent);
                lines = self.lines();
                continue;
            }
            if let Some((line, so_long, why)) = lines.cut_off(self.net().ran()) {
                let party = lines.jobs.get(&line.0).map(|job| job.party.clone());
                drop(lines);
                if let Some(party) = party {
                    party.on_cut_off(line.1, so_long, &why);
                }
                lines = self.lines();
                continue;
            }
            let due = lines
                .peers
                .iter_mut()
                .find(|(_, peer)| peer.again.is_some_and(|at| at <= now));
            if let Some((line, peer)) = due {
                let (line, at) = (
                    *line,
                    peer.dials
                        .expect("only who dials has something to dial again"),
                );
                peer.again = None;
                drop(lines);
                self.dial(line, at);
                lines = self.lines();
                continue;
            }
            let next = lines.peers.values().filter_map(|peer| peer.again).min();
            let patience = next.map_or(REDIAL_MAX, |at| at.saturating_duration_since(now));
            let waited = self.sooner.wait_timeout(lines, patience);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn dial(&self, line: Line, at: SocketAddr) {
        // Under the lock: the link must be known before it is heard of.
        let mut lines = self.lines();
        match self.net().dial(at) {
            Ok(link) => {
                lines.links.insert(link, State::Dialing(line));
            }
            Err(error) => {
                let why = Lost::Io(error);
                lines.note(line, &why, Duration::ZERO, self.net().ran());
                lines.dial_again(line);
                self.tell_lost(lines, line, &why);
            }
        }
    }

    fn tell_lost(&self, lines: MutexGuard<'_, Lines>, line: Line, why: &Lost) {
        let party = lines.jobs.get(&line.0).map(|job| job.party.clone());
        drop(lines);
        self.sooner.notify_all();
        if let Some(party) = party {
            party.on_lost(line.1, why);
        }
    }

    // ---- what links say

    fn call(&self, job: JobId, me: WorkerId, peer: WorkerId, party: &dyn Party) -> Bytes {
        let call = Call {
            job,
            worker: me,
            peer,
            epoch: self.epoch,
            format: FORMAT,
            received: party.received(peer),
        };
        Frame {
            priority: Priority::FIRST,
            sequence: None,
            body: Body::Call(call),
        }
        .to_bytes()
    }

    fn opened(&self, link: LinkId, origin: Origin) {
        let mut lines = self.lines();
        if let Origin::Accepted(_) = origin {
            lines.links.insert(link, State::Called(Instant::now()));
            return;
        }
        let line = match lines.links.get(&link).copied() {
            Some(State::Dialing(line)) => line,
            Some(State::Visits) => {
                drop(lines);
                if let Some(reception) = &self.reception {
                    reception.on_open(link);
                }
                return;
            }
            _ => return,
        };
        let job = lines
            .jobs
            .get(&line.0)
            .map(|job| (job.me, job.party.clone()));
        drop(lines);
        match job {
            Some((me, party)) => {
                let call = self.call(line.0, me, line.1, &*party);
                self.net().send(link, [call]);
            }
            None => self.net().close(link),
        }
    }

    fn frame(&self, link: LinkId, frame: Incoming<'_>) -> Result<(), Refused> {
        let lines = self.lines();
        let state = lines.links.get(&link).copied();
        match state {
            Some(State::Serves((job, peer))) => {
                let party = lines.jobs.get(&job).map(|job| job.party.clone());
                drop(lines);
                // A job that is over has left; its link is being closed.
                party.map_or(Ok(()), |party| party.on_frame(peer, frame))
            }
            Some(State::Visits) => {
                drop(lines);
                self.received(link, frame)
            }
            Some(state) => self.greeted(lines, link, state, frame),
            // It was closed here meanwhile.
            None => Ok(()),
        }
    }

    /// Only a job's frames have places.
    fn place(&self, link: LinkId, begun: &[u8]) -> Option<Place> {
        let lines = self.lines();
        let Some(State::Serves((job, peer))) = lines.links.get(&link).copied() else {
            return None;
        };
        let party = lines.jobs.get(&job)?.party.clone();
        drop(lines);
        party.place(peer, begun)
    }

    fn received(&self, link: LinkId, frame: Incoming<'_>) -> Result<(), Refused> {
        match &self.reception {
            Some(reception) => reception.on_frame(link, frame.bytes()),
            None => Err("the first frame is no call, and nobody is received here".into()),
        }
    }

    /// The first frame of a link says whose it is.
    fn greeted(
        &self,
        mut lines: MutexGuard<'_, Lines>,
        link: LinkId,
        state: State,
        frame: Incoming<'_>,
    ) -> Result<(), Refused> {
        let (Frame { body, .. }, _) = Frame::decode(frame.bytes())?;
        let Body::Call(call) = body else {
            if matches!(state, State::Called(_)) && self.reception.is_some() {
                lines.links.insert(link, State::Visits);
            }
            drop(lines);
            return match state {
                State::Called(_) => self.received(link, frame),
                _ => Err("the first frame is no call".into()),
            };
        };
        let line = (call.job, call.worker);
        let Some(job) = lines.jobs.get(&call.job) else {
            return Err(format!("there is no job {} here", call.job).into());
        };
        let expected = match state {
            State::Dialing(expected) => expected == line,
            _ => true,
        };
        if call.peer != job.me || !expected {
            return Err(format!(
                "{} calls {}, and this is {}",
                call.worker, call.peer, job.me
            )
            .into());
        }
        let (me, party) = (job.me, job.party.clone());
        drop(lines);
        let reply =
            matches!(state, State::Called(_)).then(|| self.call(line.0, me, line.1, &*party));
        let mut lines = self.lines();
        if !lines.jobs.contains_key(&line.0) {
            return Err(format!("job {} is over here", line.0).into());
        }
        if !lines.links.contains_key(&link) {
            // It was lost while nobody held the lock, and nobody will hear of that again.
            return Err("the link has ended".into());
        }
        let peer = lines.peers.entry(line).or_default();
        if peer.is_forgotten {
            return Err(format!("{} takes no part in job {} any more", line.1, line.0).into());
        }
        if *peer.epoch.get_or_insert(call.epoch) != call.epoch {
            return Err(format!("{} has been started again: what it held is lost", line.1).into());
        }
        // Before anybody finds the link: nothing may go before it.
        if let Some(reply) = reply {
            self.net().send(link, [reply]);
        }
        let older = peer.link.replace(link);
        (peer.again, peer.wait, peer.cut) = (None, REDIAL_FIRST, None);
        lines.links.insert(link, State::Serves(line));
        drop(lines);
        if let Some(older) = older.filter(|older| *older != link) {
            self.net().close(older);
        }
        party.on_reconnect(line.1, call.received)
    }

    fn lost(&self, link: LinkId, why: &Lost) {
        let mut lines = self.lines();
        let (line, before) = match lines.links.remove(&link) {
            Some(State::Dialing(line)) => (line, GREETING_TIME),
            Some(State::Serves(line)) => (line, ACKNOWLEDGED_WITHIN),
            Some(State::Visits) => {
                drop(lines);
                if let Some(reception) = &self.reception {
                    reception.on_lost(link, why);
                }
                return;
            }
            Some(State::Called(_)) | None => return,
        };
        let is_current = lines.peers.get(&line).is_some_and(|peer| {
            !peer.is_forgotten && peer.link.is_none_or(|current| current == link)
        });
        if !is_current {
            return;
        }
        lines.note(line, why, before, self.net().ran());
        lines.dial_again(line);
        self.tell_lost(lines, line, why);
    }
}

impl Lines {
    /// A link on which nobody has said anything for too long since its greeting.
    fn silent_at(&self, now: Instant) -> Option<LinkId> {
        let is_silent = |(link, state): (&LinkId, &State)| match state {
            State::Called(since) if now.saturating_duration_since(*since) > GREETING_TIME => {
                Some(*link)
            }
            _ => None,
        };
        self.links.iter().find_map(is_silent)
    }

    /// What the end of a link tells of the peer's machine, at a time when this process had run for `ran`. Where it has not answered, that
    /// began a while `before`.
    fn note(&mut self, line: Line, why: &Lost, before: Duration, ran: Duration) {
        let Some(peer) = self.peers.get_mut(&line) else {
            return;
        };
        if !why.is_cut() {
            peer.cut = None;
            return;
        }
        peer.cut.get_or_insert_with(|| Cut {
            since: ran.saturating_sub(before),
            why: why.to_string(),
            is_told: false,
        });
    }

    /// A peer whose machine has not answered for too long, which is told once.
    fn cut_off(&mut self, ran: Duration) -> Option<(Line, Duration, String)> {
        let mut peers = self.peers.iter_mut();
        peers.find_map(|(line, peer)| {
            let cut = peer.cut.as_mut().filter(|cut| !cut.is_told)?;
            let so_long = ran.saturating_sub(cut.since);
            cut.is_told = so_long >= CUT_OFF_AFTER;
            cut.is_told.then(|| (*line, so_long, cut.why.clone()))
        })
    }

    /// The peer has no link: it is dialed again after a while, if this side dials.
    fn dial_again(&mut self, line: Line) {
        if let Some(peer) = self.peers.get_mut(&line) {
            peer.link = None;
            if peer.dials.is_some() {
                peer.again = Some(Instant::now() + peer.wait);
                peer.wait = (peer.wait * 2).min(REDIAL_MAX);
            }
        }
    }
}

/// What a net tells. Weakly, since the switchboard holds the net.
struct Hearer(Weak<Shared>);

impl Owner for Hearer {
    fn opened(&self, link: LinkId, origin: Origin) {
        if let Some(shared) = self.0.upgrade() {
            shared.opened(link, origin);
        }
    }
    fn frame(&self, link: LinkId, frame: Incoming<'_>) -> Result<(), Refused> {
        match self.0.upgrade() {
            Some(shared) => shared.frame(link, frame),
            None => Ok(()),
        }
    }
    fn place(&self, link: LinkId, begun: &[u8]) -> Option<Place> {
        self.0.upgrade()?.place(link, begun)
    }
    fn lost(&self, link: LinkId, why: Lost) {
        if let Some(shared) = self.0.upgrade() {
            shared.lost(link, &why);
        }
    }
}
