//! Connects the jobs of a process with their peers: for each job and each peer of it one link, made again when it is lost.
//!
//! A job is known here by its [key](JobKey): of two generations of one each has its own side, peers and links, and hears nothing of the other.
//!
//! # Rules
//! * Of two peers one dials, which its owner decides; the other knows it when it calls.
//! * Who dials says [`Call`](brambling_protocol::frame::Call) first: which job, who it is, whom it wants, and which frames of the session have come. The
//!   other replies with its own. From then on both send what the other lacks ([`Party::on_reconnect`]), and what is new.
//! * What is sent to a peer without a link is dropped: the session has it, and sends it when there is one.
//! * A link that is lost is dialed again, after a while that grows from [`REDIAL_FIRST`] to [`REDIAL_MAX`], until its owner says
//!   that the peer is no more, or that the job is over. Nothing here decides that a peer is dead: its owner hears once when its
//!   machine has not answered for [`CUT_OFF_AFTER`](brambling_protocol::patience::CUT_OFF_AFTER), between two workers
//!   [`PEER_CUT_OFF_AFTER`](brambling_protocol::patience::PEER_CUT_OFF_AFTER) ([`Party::on_cut_off`]).
//! * A peer whose process was started again is refused: its session is another.
//! * A newer link between the same two takes the place of the older one: whoever dials again has lost it.
//! * Who was forgotten is refused until this side dials it.
//! * A link whose first frame is no call speaks of no job: a [`Reception`] has it, and it is not made again when it is lost.
//!   Whoever says nothing for [`GREETING_TIME`](super::tcp::GREETING_TIME) after the greeting is sent away.

mod hearing;
mod link_table;
mod redialing;

use super::tcp::{Carried, LinkId, Lost, Net, NetOptions, ReadTarget};
use brambling_protocol::frame::{Incoming, Packet};
use brambling_protocol::{JobKey, Sequence, WorkerId};
use hearing::Hearer;
use link_table::{LinkState, LinkTable, LinkedJob};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long after a link was lost it is dialed again at first.
pub const REDIAL_FIRST: Duration = Duration::from_millis(5);
/// At most.
pub const REDIAL_MAX: Duration = Duration::from_secs(1);

/// What a party refuses, with its reason.
pub type PartyRefusal = Box<dyn Error + Send + Sync>;

/// One side of a job's sessions: a worker's node, or the controller. Called on threads of the net, and on those that poll it.
pub trait Party: Send + Sync {
    /// The first frame of the peer's that is missing here.
    fn received(&self, peer: WorkerId) -> Sequence;
    /// There is a new link, and the peer says that it has every frame before `received`.
    ///
    /// # Errors
    /// When it speaks of another session.
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), PartyRefusal>;
    /// A frame has come.
    ///
    /// # Errors
    /// When no honest peer says that.
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), PartyRefusal>;
    /// A large frame has begun, of which these bytes are there: see [`Owner::place`](super::tcp::Owner::place).
    fn place(&self, _peer: WorkerId, _begun: &[u8]) -> Option<ReadTarget> {
        None
    }
    /// The link is lost, and is being dialed again if this side dials; or it could not be made.
    fn on_lost(&self, _peer: WorkerId, _why: &Lost) {}
    /// The peer's machine does not answer, for so long already, and the link is still being dialed again if this side dials. Told
    /// again and again until there is a link.
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
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), PartyRefusal>;
    /// The link has ended, or never opened.
    fn on_lost(&self, _link: LinkId, _why: &Lost) {}
}

struct SwitchboardShared {
    epoch: u64,
    net: OnceLock<Net>,
    lines: Mutex<LinkTable>,
    reception: Option<Arc<dyn Reception>>,
    /// Something is to be dialed earlier than was known.
    sooner: Condvar,
}

/// The links of a process. Dropping it ends them all.
pub struct Switchboard {
    shared: Arc<SwitchboardShared>,
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
        let shared = Arc::new(SwitchboardShared {
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
    pub fn enter(&self, key: JobKey, me: WorkerId, party: Arc<dyn Party>) {
        self.shared
            .lines()
            .jobs
            .insert(key, LinkedJob { me, party });
    }

    /// A peer is to be dialed there, now and whenever its link is lost.
    pub fn dial(&self, key: JobKey, peer: WorkerId, at: SocketAddr) {
        let mut lines = self.shared.lines();
        let line = lines.peers.entry((key, peer)).or_default();
        line.dials = Some(at);
        line.is_forgotten = false;
        line.wait = REDIAL_FIRST;
        line.again = line.link.is_none().then(Instant::now);
        drop(lines);
        self.shared.sooner.notify_all();
    }

    /// A peer is no more: it is not dialed again, its link ends, and when it calls it is refused.
    pub fn forget(&self, key: JobKey, peer: WorkerId) {
        let mut lines = self.shared.lines();
        let peer = lines.peers.entry((key, peer)).or_default();
        peer.is_forgotten = true;
        (peer.dials, peer.again) = (None, None);
        let link = peer.link.take();
        drop(lines);
        if let Some(link) = link {
            self.shared.net().close(link);
        }
    }

    /// Another process takes a peer's place, and this side's session with it begins anew: the link ends, and is dialed again where it was.
    pub fn begin_anew(&self, key: JobKey, peer: WorkerId) {
        let mut lines = self.shared.lines();
        let peer = lines.peers.entry((key, peer)).or_default();
        peer.epoch = None;
        peer.wait = REDIAL_FIRST;
        let link = peer.link.take();
        peer.again = peer.dials.map(|_| Instant::now());
        drop(lines);
        if let Some(link) = link {
            self.shared.net().close(link);
        }
        self.shared.sooner.notify_all();
    }

    /// A job is over: its links end, and whoever calls for it is refused.
    pub fn leave(&self, key: JobKey) {
        let links = self.shared.lines().leave(key);
        for link in links {
            self.shared.net().close(link);
        }
    }

    /// Sends frames of a job to its peers; drops those to whom there is no link.
    pub fn send<P: Into<Packet>>(
        &self,
        key: JobKey,
        frames: impl IntoIterator<Item = (WorkerId, P)>,
    ) {
        let mut by_link: Vec<(LinkId, Vec<Packet>)> = Vec::new();
        let lines = self.shared.lines();
        for (peer, frame) in frames {
            let Some(link) = lines.peers.get(&(key, peer)).and_then(|peer| peer.link) else {
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
        // Dialed under the lock: the link must be in the table before anything is heard of it.
        let mut lines = self.shared.lines();
        let link = self.shared.net().dial(at)?;
        lines.links.insert(link, LinkState::Visits);
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
    pub fn cut(&self, key: JobKey, peer: WorkerId) {
        let link = self
            .shared
            .lines()
            .peers
            .get(&(key, peer))
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

impl SwitchboardShared {
    fn net(&self) -> &Net {
        self.net.get().expect("set before anybody can ask")
    }

    fn lines(&self) -> MutexGuard<'_, LinkTable> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
