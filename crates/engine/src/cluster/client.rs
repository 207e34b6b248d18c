//! A client: runs programs on a cluster, and fetches what they leave. Here are its connection, and what it asks the controller.

mod again;
mod link_events;
mod talk;

use super::jobs::{WaitReasons, host, ourselves};
use super::wire::{self, board, epoch, framed};
use super::{CONTROLLER_TIME, ClusterError, Rendezvous, Status};
use crate::Error;
use brambling_exchange::transports::switchboard::{PartyRefusal, Switchboard};
use brambling_exchange::transports::tcp::LinkId;
use brambling_memory::Budget;
use brambling_program::ShardId;
use brambling_protocol::message::{Message, Move};
use brambling_protocol::patience::ANSWERED_WITHIN;
use brambling_protocol::{JobId, WorkerId};
use brambling_worker::executor::{CALLER_LOOKS, Caller, Failure, QuietCaller};
use link_events::{LinkEvent, LinkEvents, LinkLoss, LossKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After how long it is tried again at first, where others keep this process out; then twice as long each time, up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(20);
/// At most: so soon after the others have stopped it is in.
const RETRY_MAX: Duration = Duration::from_millis(500);
/// How long the answer to a question may take.
pub(super) const ANSWER: Duration = ANSWERED_WITHIN;
/// How long workers that are asked for results may say nothing, unless a client says otherwise: longer than it takes to read one large partition.
const SILENCE: Duration = Duration::from_secs(300);

/// A connection to a cluster's controller. Dropping it ends the jobs that it runs there.
///
/// ```no_run
/// use brambling::cluster::{Cluster, Rendezvous};
///
/// let cluster = Cluster::connect(&Rendezvous::find(Some("127.0.0.1:7077"), None, None)?)?;
/// for worker in cluster.status()?.workers {
///     println!("{} on {}: {} threads", worker.id, worker.host, worker.threads);
/// }
/// # Ok::<(), brambling::cluster::ClusterError>(())
/// ```
pub struct Cluster {
    address: SocketAddr,
    board: Switchboard,
    controller: Mutex<LinkId>,
    /// How the link to the controller has ended, if it has.
    ended: Mutex<Option<LinkLoss>>,
    /// Whether what it was asked outlives the controller.
    lasts: AtomicBool,
    /// How long workers that are asked for results may say nothing.
    silence: Duration,
    /// One conversation at a time.
    inbox: Mutex<Receiver<LinkEvent>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.address)
    }
}

impl Cluster {
    /// Connects to a controller.
    ///
    /// # Errors
    /// When nobody answers there, or another token is known there, or one side uses TLS and the other does not take part in that.
    pub fn connect(at: &Rendezvous) -> Result<Cluster, ClusterError> {
        let (sender, inbox) = channel();
        let events = Arc::new(LinkEvents(Mutex::new(sender)));
        let system = |source| ClusterError::System { source };
        let board = board(
            None,
            at.token.clone(),
            at.tls.as_ref(),
            epoch()?,
            &Budget::unlimited(),
            events,
        );
        let board = board.map_err(system)?;
        let controller = greeted(&board, &inbox, at.address)?;
        let cluster = Cluster {
            address: at.address,
            board,
            controller: Mutex::new(controller),
            ended: Mutex::new(None),
            lasts: AtomicBool::new(false),
            silence: SILENCE,
            inbox: Mutex::new(inbox),
        };
        cluster.say(controller, Message::Introduce(ourselves()));
        // Who says nothing after the greeting is sent away soon, and a client may think for long before it runs something.
        cluster.status()?;
        Ok(cluster)
    }

    /// How long workers may say nothing while they are asked for what a job has left: five minutes unless this says otherwise. A worker that
    /// is there and does not answer for so long ends the run with [`ClusterError::ResultsGone`].
    pub fn silent_at_most(self, silence: Duration) -> Cluster {
        Cluster { silence, ..self }
    }

    /// Where the controller is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the cluster fares.
    ///
    /// # Errors
    /// When the controller is gone or does not answer.
    pub fn status(&self) -> Result<Status, ClusterError> {
        let mut silences = Silences::default();
        let mut stuck = Vec::new();
        let mut deaths = Vec::new();
        let mut waits = WaitReasons::default();
        self.ask(Message::Ask, self.answers_soon(), |answer| match answer {
            Message::Silences(told) => {
                silences = Silences(told);
                None
            }
            Message::Waits(told) => {
                waits = WaitReasons::from(told);
                None
            }
            Message::AllStuck(told) => {
                stuck = told;
                None
            }
            Message::Deaths(told) => {
                deaths = told;
                None
            }
            Message::Status(status) => {
                let mut status = silences.told_of(status);
                status.deaths = std::mem::take(&mut deaths);
                waits.tell(status.jobs.iter_mut());
                for worker in &mut status.workers {
                    let own = stuck.iter().filter(|(id, _)| *id == worker.id);
                    worker.stuck = own.map(|(_, it)| it.clone()).collect();
                }
                Some(Ok(status))
            }
            // Of an earlier conversation that was broken off.
            _ => None,
        })
    }

    /// Moves a shard of a job that runs, or of the only one, to a worker; gives the job when the shard is there. What it computes
    /// stays the same to the last bit. A connection has one conversation at a time: while a program runs on this one, give
    /// another.
    ///
    /// `caller` is asked for interruptions, which leave the order as it is.
    ///
    /// # Errors
    /// Why the shard stays where it is; or what became of the cluster.
    pub fn move_shard(
        &self,
        job: Option<JobId>,
        shard: ShardId,
        to: WorkerId,
        caller: &mut dyn Caller,
    ) -> Result<JobId, Error> {
        let wish = Move { job, shard, to };
        self.ask(
            Message::Move(wish),
            looking(caller),
            |answer| match answer {
                Message::Moved(moved) if (moved.shard, moved.to) == (shard, to) => {
                    moved.job.map(Ok)
                }
                Message::Refused { why } => Some(Err(refused(why).into())),
                _ => None,
            },
        )
    }

    /// Drains a worker: it gets no shards of new jobs, those it has move to the others, by their threads, and when it holds none its
    /// process ends. Gives when it has been told so. `caller` is asked for interruptions, which leave the order as it is.
    ///
    /// # Errors
    /// When there is no such worker, or no other one; or what became of the cluster.
    pub fn drain(&self, worker: WorkerId, caller: &mut dyn Caller) -> Result<(), Error> {
        let question = Message::Drain(worker);
        self.ask(question, looking(caller), |answer| match answer {
            Message::Drained(it) if it == worker => Some(Ok(())),
            Message::Refused { why } => Some(Err(refused(why).into())),
            _ => None,
        })
    }

    /// Asks the controller, and waits for what is an answer; looks now and then whether to go on.
    pub(super) fn ask<R, E: From<ClusterError>>(
        &self,
        question: Message<'_>,
        mut look: impl FnMut() -> Result<(), E>,
        mut answer: impl FnMut(Message<'_>) -> Option<Result<R, E>>,
    ) -> Result<R, E> {
        let inbox = self.inbox();
        self.stand_ready(&inbox, CONTROLLER_TIME, &mut QuietCaller)?;
        self.say(self.controller(), question);
        loop {
            look()?;
            match inbox.recv_timeout(CALLER_LOOKS) {
                Ok(LinkEvent::Frame(link, frame)) if link == self.controller() => {
                    let said = wire::message(&frame).map_err(|why| self.broken(why))?;
                    if said == Message::Lasting {
                        self.lasts.store(true, Ordering::Release);
                        continue;
                    }
                    if let Some(answer) = answer(said) {
                        return answer;
                    }
                }
                Ok(LinkEvent::Lost(link, loss)) if link == self.controller() => {
                    return Err(self.lost(loss).into());
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.gone("this side ended".into()).into());
                }
            }
        }
    }

    /// Before a conversation: the controller is there, or is found again if its jobs outlive it.
    fn stand_ready(
        &self,
        inbox: &Receiver<LinkEvent>,
        patience: Duration,
        caller: &mut dyn Caller,
    ) -> Result<(), ClusterError> {
        match self.forget_earlier(inbox) {
            Err(_) if self.lasts() => {
                let found = self.find_again(inbox, patience, caller);
                found.map_err(|error| match error {
                    Error::Cluster(error) => error,
                    other => self.gone(other.to_string()),
                })
            }
            ready => ready,
        }
    }

    /// What an earlier conversation left is of no interest, but that the controller is gone, or that jobs outlive it: it says so to whoever
    /// introduces itself, so before the first question or behind it.
    fn forget_earlier(&self, inbox: &Receiver<LinkEvent>) -> Result<(), ClusterError> {
        for heard in inbox.try_iter() {
            match heard {
                LinkEvent::Lost(link, loss) if link == self.controller() => {
                    return Err(self.lost(loss));
                }
                LinkEvent::Frame(link, frame) if link == self.controller() => {
                    if matches!(wire::message(&frame), Ok(Message::Lasting)) {
                        self.lasts.store(true, Ordering::Release);
                    }
                }
                _ => {}
            }
        }
        match self.loss() {
            Some(loss) => Err(self.lost(loss)),
            None => Ok(()),
        }
    }

    /// Asked again and again while an answer is awaited: whether it may still come.
    pub(super) fn answers_soon(&self) -> impl FnMut() -> Result<(), ClusterError> {
        let (at, asked) = (self.address, Instant::now());
        move || match asked.elapsed() < ANSWER {
            true => Ok(()),
            false => Err(ClusterError::NoAnswer { at, after: ANSWER }),
        }
    }

    /// The link to the controller has ended: this conversation cannot go on, and there will be no other.
    fn lost(&self, loss: LinkLoss) -> ClusterError {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // The first loss is told, at each further call as well.
        let loss = ended.get_or_insert(loss).clone();
        drop(ended);
        self.gone_by(loss)
    }

    fn inbox(&self) -> MutexGuard<'_, Receiver<LinkEvent>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, to: LinkId, message: Message<'_>) {
        self.board.say(to, [framed(message)]);
    }

    pub(super) fn gone(&self, why: String) -> ClusterError {
        ClusterError::ControllerGone {
            at: self.address,
            why,
        }
    }

    fn broken(&self, why: PartyRefusal) -> ClusterError {
        ClusterError::Broken {
            who: format!("the controller at {}", self.address),
            why: why.to_string(),
        }
    }
}

/// A link to a controller that has let this process in. Where strangers flood it, whoever is being greeted may be put out, and comes again.
fn greeted(
    board: &Switchboard,
    inbox: &Receiver<LinkEvent>,
    at: SocketAddr,
) -> Result<LinkId, ClusterError> {
    let missing = |why: &str| ClusterError::NoController {
        at,
        why: why.into(),
    };
    let deadline = Instant::now() + CONTROLLER_TIME;
    let mut pause = RETRY_FIRST;
    loop {
        let link = board.visit(at);
        let link = link.map_err(|source| ClusterError::System { source })?;
        let patience = deadline.saturating_duration_since(Instant::now());
        match inbox.recv_timeout(patience) {
            Ok(LinkEvent::Open(_)) => return Ok(link),
            Ok(LinkEvent::Lost(_, loss)) if loss.may_pass && Instant::now() + pause < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(RETRY_MAX);
            }
            Ok(LinkEvent::Lost(_, LinkLoss { why, how, .. })) => {
                return Err(match how {
                    LossKind::Refused => ClusterError::Unwelcome { at, why },
                    _ => missing(&why),
                });
            }
            Ok(LinkEvent::Frame(..)) => return Err(missing("it speaks before it is asked")),
            Err(_) => return Err(missing("it does not answer")),
        }
    }
}

/// This process has no way to another.
pub(super) fn cut_off(whom: String, why: String) -> ClusterError {
    ClusterError::CutOff {
        who: format!("this client, process {} on {},", std::process::id(), host()),
        whom,
        why,
    }
}

/// How long workers have told nothing, as the controller says before it says the rest of how they fare.
#[derive(Default)]
pub(super) struct Silences(pub(super) Vec<(WorkerId, u64)>);

impl Silences {
    pub(super) fn told_of(&self, mut status: Status) -> Status {
        for worker in &mut status.workers {
            let told = self.0.iter().find(|(it, _)| *it == worker.id);
            worker.silent_ms = told.map_or(0, |(_, silent_ms)| *silent_ms);
        }
        status
    }
}

pub(super) fn refused(why: &str) -> ClusterError {
    let why = why.to_owned();
    ClusterError::Refused { why }
}

/// Whether a caller has not interrupted.
pub(super) fn looking(caller: &mut dyn Caller) -> impl FnMut() -> Result<(), Error> {
    || match caller.check() {
        Ok(()) => Ok(()),
        Err(_) => Err(Failure::Interrupted.into()),
    }
}
