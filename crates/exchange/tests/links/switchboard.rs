//! A switchboard connects jobs with their peers, again and again, and nobody with whom it should not.

use crate::support::{ack, is_local, nonce};
use brambling_exchange::transports::switchboard::{Party, PartyRefusal, Reception, Switchboard};
use brambling_exchange::transports::tcp::{LinkId, Lost, NetOptions};
use brambling_memory::Budget;
use brambling_protocol::frame::Incoming;
use brambling_protocol::greeting::Token;
use brambling_protocol::{Generation, JobId, JobKey, Sequence, WorkerId};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// What must not happen has not happened after so long.
const A_WHILE: Duration = Duration::from_millis(300);

const A: WorkerId = WorkerId(1);
const B: WorkerId = WorkerId(2);
const JOB: JobKey = key(5, 0);
const OTHER: JobKey = key(6, 0);
/// Another generation of [`JOB`].
const YOUNGER: JobKey = key(5, 1);

const fn key(job: u64, generation: u64) -> JobKey {
    JobKey {
        job: JobId(job),
        generation: Generation(generation),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Connected(WorkerId, Sequence),
    Frame(WorkerId, Vec<u8>),
    Lost(WorkerId, String),
}

/// Tells the test what it hears; says in greetings that it has so many frames.
struct Ear {
    received: Sequence,
    events: Mutex<Sender<Heard>>,
}

impl Ear {
    fn tell(&self, heard: Heard) {
        // A test that is over does not listen.
        let _ = self.events.lock().unwrap().send(heard);
    }
}

impl Party for Ear {
    fn received(&self, _: WorkerId) -> Sequence {
        self.received
    }
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), PartyRefusal> {
        self.tell(Heard::Connected(peer, received));
        Ok(())
    }
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        self.tell(Heard::Frame(peer, frame.bytes().to_vec()));
        Ok(())
    }
    fn on_lost(&self, peer: WorkerId, why: &Lost) {
        self.tell(Heard::Lost(peer, why.to_string()));
    }
}

fn board(epoch: u64, at: &str) -> Switchboard {
    let options = NetOptions {
        bind: Some(at.parse().unwrap()),
        token: Token::new([4; 32]),
        nonce,
        tls: None,
        local: is_local(),
        budget: Budget::unlimited(),
    };
    Switchboard::new(options, epoch).unwrap()
}

fn anywhere(epoch: u64) -> (Switchboard, SocketAddr) {
    let board = board(epoch, "127.0.0.1:0");
    let at = board.listens_at().unwrap();
    (board, at)
}

fn enter(board: &Switchboard, job: JobKey, me: WorkerId, received: Sequence) -> Receiver<Heard> {
    let (sender, events) = channel();
    let events_out = Mutex::new(sender);
    let ear = Ear {
        received,
        events: events_out,
    };
    board.enter(job, me, Arc::new(ear));
    events
}

fn next(events: &Receiver<Heard>) -> Heard {
    events.recv_timeout(PATIENCE).expect("something happens")
}

/// The next that is no lost link: dialing may fail while nobody is there.
fn connected(events: &Receiver<Heard>) -> Heard {
    loop {
        match next(events) {
            Heard::Lost(..) => {}
            heard => return heard,
        }
    }
}

#[test]
fn two_jobs_between_two_processes_hear_their_own() {
    let ((a, _), (b, at_b)) = (anywhere(1), anywhere(2));
    let (ours, others) = (enter(&a, JOB, A, 10), enter(&a, OTHER, B, 20));
    let (theirs, their_others) = (enter(&b, JOB, B, 30), enter(&b, OTHER, A, 40));
    a.dial(JOB, B, at_b);
    a.dial(OTHER, A, at_b);
    assert_eq!(next(&ours), Heard::Connected(B, 30));
    assert_eq!(next(&others), Heard::Connected(A, 40));
    assert_eq!(next(&theirs), Heard::Connected(A, 10));
    assert_eq!(next(&their_others), Heard::Connected(B, 20));
    for number in 0..100 {
        a.send(JOB, [(B, ack(number))]);
        a.send(OTHER, [(A, ack(1_000 + number))]);
        b.send(JOB, [(A, ack(2_000 + number))]);
    }
    for number in 0..100 {
        assert_eq!(next(&theirs), Heard::Frame(A, ack(number).to_vec()));
        assert_eq!(
            next(&their_others),
            Heard::Frame(B, ack(1_000 + number).to_vec())
        );
        assert_eq!(next(&ours), Heard::Frame(B, ack(2_000 + number).to_vec()));
    }
    // One job leaves: the other's link stays.
    a.leave(JOB);
    assert!(matches!(next(&theirs), Heard::Lost(peer, _) if peer == A));
    a.send(OTHER, [(A, ack(7))]);
    assert_eq!(next(&their_others), Heard::Frame(B, ack(7).to_vec()));
}

/// The same two workers, the same job: each generation has links of its own, and its end is not the other's.
#[test]
fn two_generations_of_a_job_hear_their_own() {
    let ((a, _), (b, at_b)) = (anywhere(1), anywhere(2));
    let (old, young) = (enter(&a, JOB, A, 10), enter(&a, YOUNGER, A, 20));
    let (their_old, their_young) = (enter(&b, JOB, B, 30), enter(&b, YOUNGER, B, 40));
    a.dial(JOB, B, at_b);
    a.dial(YOUNGER, B, at_b);
    assert_eq!(next(&old), Heard::Connected(B, 30));
    assert_eq!(next(&young), Heard::Connected(B, 40));
    assert_eq!(next(&their_old), Heard::Connected(A, 10));
    assert_eq!(next(&their_young), Heard::Connected(A, 20));
    for number in 0..100 {
        a.send(JOB, [(B, ack(number))]);
        a.send(YOUNGER, [(B, ack(1_000 + number))]);
        b.send(YOUNGER, [(A, ack(2_000 + number))]);
    }
    for number in 0..100 {
        let of_old = Heard::Frame(A, ack(number).to_vec());
        let of_young = Heard::Frame(A, ack(1_000 + number).to_vec());
        assert_eq!((next(&their_old), next(&their_young)), (of_old, of_young));
        assert_eq!(next(&young), Heard::Frame(B, ack(2_000 + number).to_vec()));
    }
    // A peer of the older is no more, and then the older is over.
    b.forget(JOB, A);
    assert!(matches!(next(&old), Heard::Lost(peer, _) if peer == B));
    a.leave(JOB);
    b.leave(JOB);
    a.send(JOB, [(B, ack(7))]);
    for number in 0..100 {
        a.send(YOUNGER, [(B, ack(number))]);
        b.send(YOUNGER, [(A, ack(number))]);
    }
    for number in 0..100 {
        assert_eq!(next(&their_young), Heard::Frame(A, ack(number).to_vec()));
        assert_eq!(next(&young), Heard::Frame(B, ack(number).to_vec()));
    }
    assert_eq!(
        their_old.try_recv(),
        Err(TryRecvError::Disconnected),
        "nobody hears of what is over"
    );
}

/// Its process was started again, and what it held of the older generation is lost. It takes part in the next one.
#[test]
fn who_was_started_again_takes_part_in_the_next_generation() {
    let (a, at_a) = anywhere(1);
    let (old, young) = (enter(&a, JOB, A, 0), enter(&a, YOUNGER, A, 0));
    let (b, _) = anywhere(2);
    let _theirs = enter(&b, JOB, B, 0);
    b.dial(JOB, A, at_a);
    assert_eq!(connected(&old), Heard::Connected(B, 0));
    drop(b);
    let (b, _) = anywhere(3);
    let (their_old, their_young) = (enter(&b, JOB, B, 0), enter(&b, YOUNGER, B, 0));
    b.dial(JOB, A, at_a);
    b.dial(YOUNGER, A, at_a);
    assert_eq!(connected(&young), Heard::Connected(B, 0));
    assert_eq!(connected(&their_young), Heard::Connected(A, 0));
    assert!(matches!(next(&their_old), Heard::Lost(peer, _) if peer == A));
}

#[test]
fn a_link_that_was_cut_is_made_again_from_either_side() {
    let ((a, _), (b, at_b)) = (anywhere(1), anywhere(2));
    let (ours, theirs) = (enter(&a, JOB, A, 1), enter(&b, JOB, B, 2));
    a.dial(JOB, B, at_b);
    for cut in 0..10 {
        assert_eq!(connected(&ours), Heard::Connected(B, 2));
        assert_eq!(connected(&theirs), Heard::Connected(A, 1));
        if cut % 2 == 0 {
            a.cut(JOB, B);
        } else {
            b.cut(JOB, A);
        }
    }
}

/// Whoever is dialed may come later, and may have been elsewhere meanwhile.
#[test]
fn who_is_not_there_yet_is_dialed_until_it_is() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at_b = free.local_addr().unwrap();
    drop(free);
    let (a, _) = anywhere(1);
    let ours = enter(&a, JOB, A, 1);
    a.dial(JOB, B, at_b);
    assert!(matches!(next(&ours), Heard::Lost(peer, _) if peer == B));
    assert!(matches!(next(&ours), Heard::Lost(peer, _) if peer == B));
    let b = board(2, &at_b.to_string());
    let _theirs = enter(&b, JOB, B, 2);
    assert_eq!(connected(&ours), Heard::Connected(B, 2));
    // Who is no more is not dialed, and nothing is told of it.
    a.forget(JOB, B);
    drop(b);
    assert_eq!(ours.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
}

#[test]
fn callers_for_another_job_or_another_worker_are_refused() {
    let ((a, _), (b, at_b)) = (anywhere(1), anywhere(2));
    let theirs = enter(&b, JOB, B, 0);
    // No such job there, or not this generation of it; and there is another worker than the one that is wanted.
    for (job, wanted) in [(OTHER, B), (YOUNGER, B), (JOB, WorkerId(77))] {
        let ours = enter(&a, job, A, 0);
        a.dial(job, wanted, at_b);
        assert!(matches!(next(&ours), Heard::Lost(peer, _) if peer == wanted));
        a.leave(job);
    }
    assert!(theirs.recv_timeout(A_WHILE).is_err());
}

/// A process that was started again has forgotten its sessions: frames of the old one would be taken for new.
#[test]
fn a_peer_that_was_started_again_is_refused() {
    let (a, at_a) = anywhere(1);
    let ours = enter(&a, JOB, A, 0);
    let (b, _) = anywhere(2);
    let theirs = enter(&b, JOB, B, 0);
    b.dial(JOB, A, at_a);
    assert_eq!(connected(&ours), Heard::Connected(B, 0));
    assert_eq!(connected(&theirs), Heard::Connected(A, 0));
    drop(b);
    assert!(matches!(next(&ours), Heard::Lost(peer, _) if peer == B));
    let (b, _) = anywhere(3);
    let theirs = enter(&b, JOB, B, 0);
    b.dial(JOB, A, at_a);
    assert!(matches!(next(&theirs), Heard::Lost(peer, _) if peer == A));
    while let Ok(heard) = ours.recv_timeout(A_WHILE) {
        assert!(matches!(heard, Heard::Lost(..)), "{heard:?}");
    }
}

#[test]
fn a_forgotten_peer_is_refused_until_it_is_dialed() {
    let ((a, at_a), (b, at_b)) = (anywhere(1), anywhere(2));
    let (ours, theirs) = (enter(&a, JOB, A, 0), enter(&b, JOB, B, 0));
    b.dial(JOB, A, at_a);
    assert_eq!(connected(&ours), Heard::Connected(B, 0));
    assert_eq!(connected(&theirs), Heard::Connected(A, 0));
    a.forget(JOB, B);
    assert!(matches!(next(&theirs), Heard::Lost(..)));
    // It dials again and again, and does not get through.
    assert!(matches!(next(&theirs), Heard::Lost(..)));
    assert_eq!(ours.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
    a.dial(JOB, B, at_b);
    assert_eq!(connected(&ours), Heard::Connected(B, 0));
}

/// Tells the test what comes on links that speak of no job.
struct Hall(Mutex<Sender<Visit>>);

#[derive(Debug, PartialEq, Eq)]
enum Visit {
    Open,
    Frame(LinkId, Vec<u8>),
    Lost(LinkId, String),
}

impl Reception for Hall {
    fn on_open(&self, _: LinkId) {
        let _ = self.0.lock().unwrap().send(Visit::Open);
    }
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), PartyRefusal> {
        assert_ne!(frame, &*ack(13), "this one panics");
        let _ = self
            .0
            .lock()
            .unwrap()
            .send(Visit::Frame(link, frame.to_vec()));
        Ok(())
    }
    fn on_lost(&self, link: LinkId, why: &Lost) {
        // A panic while a test is failing must not hide what failed.
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sender.send(Visit::Lost(link, why.to_string()));
    }
}

fn hall(epoch: u64) -> (Switchboard, Receiver<Visit>) {
    let (sender, events) = channel();
    let options = NetOptions {
        bind: Some("127.0.0.1:0".parse().unwrap()),
        token: Token::new([4; 32]),
        nonce,
        tls: None,
        local: is_local(),
        budget: Budget::unlimited(),
    };
    let hall = Arc::new(Hall(Mutex::new(sender)));
    (
        Switchboard::receiving(options, epoch, hall).unwrap(),
        events,
    )
}

#[test]
fn links_without_a_job_are_received_beside_those_of_jobs() {
    let ((a, visits), (b, theirs)) = (hall(1), hall(2));
    let ours = enter(&a, JOB, A, 7);
    let link = b.visit(a.listens_at().unwrap()).unwrap();
    assert_eq!(theirs.recv_timeout(PATIENCE), Ok(Visit::Open));
    b.say(link, [ack(1), ack(2)]);
    let Ok(Visit::Frame(here, first)) = visits.recv_timeout(PATIENCE) else {
        panic!("the first frame");
    };
    assert_eq!(first, ack(1).to_vec());
    assert_eq!(
        visits.recv_timeout(PATIENCE),
        Ok(Visit::Frame(here, ack(2).to_vec()))
    );
    // And back.
    a.say(here, [ack(3)]);
    assert_eq!(
        theirs.recv_timeout(PATIENCE),
        Ok(Visit::Frame(link, ack(3).to_vec()))
    );
    // A job between the same two processes has its own link.
    let job = enter(&b, JOB, B, 9);
    b.dial(JOB, A, a.listens_at().unwrap());
    assert_eq!(connected(&ours), Heard::Connected(B, 9));
    assert_eq!(connected(&job), Heard::Connected(A, 7));
    b.hang_up(link);
    assert!(matches!(theirs.recv_timeout(PATIENCE), Ok(Visit::Lost(it, _)) if it == link));
    assert!(matches!(visits.recv_timeout(PATIENCE), Ok(Visit::Lost(it, _)) if it == here));
    b.send(JOB, [(A, ack(5))]);
    assert_eq!(next(&ours), Heard::Frame(B, ack(5).to_vec()));
}

#[test]
fn where_nobody_is_received_the_first_frame_has_to_be_a_call() {
    let ((b, theirs), (a, at_a)) = (hall(1), anywhere(2));
    let link = b.visit(at_a).unwrap();
    assert_eq!(theirs.recv_timeout(PATIENCE), Ok(Visit::Open));
    b.say(link, [ack(1)]);
    assert!(matches!(theirs.recv_timeout(PATIENCE), Ok(Visit::Lost(..))));
    drop(a);
}

#[test]
fn a_panic_of_who_is_handed_a_frame_ends_that_link_and_no_other() {
    let ((a, visits), (b, theirs)) = (hall(1), hall(2));
    let at = a.listens_at().unwrap();
    let (first, second) = (b.visit(at).unwrap(), b.visit(at).unwrap());
    for _ in 0..2 {
        assert_eq!(theirs.recv_timeout(PATIENCE), Ok(Visit::Open));
    }
    b.say(second, [ack(1)]);
    let Ok(Visit::Frame(second_here, _)) = visits.recv_timeout(PATIENCE) else {
        panic!("the second link");
    };
    b.say(first, [ack(13)]);
    let lost = visits.recv_timeout(PATIENCE).unwrap();
    assert!(
        matches!(&lost, Visit::Lost(_, why) if why.contains("panic")),
        "{lost:?}"
    );
    assert!(matches!(theirs.recv_timeout(PATIENCE), Ok(Visit::Lost(it, _)) if it == first));
    b.say(second, [ack(2)]);
    let frame = Visit::Frame(second_here, ack(2).to_vec());
    assert_eq!(visits.recv_timeout(PATIENCE), Ok(frame));
}

#[test]
fn who_says_nothing_after_the_greeting_is_sent_away() {
    let ((a, visits), (b, theirs)) = (hall(1), hall(2));
    let link = b.visit(a.listens_at().unwrap()).unwrap();
    assert_eq!(theirs.recv_timeout(PATIENCE), Ok(Visit::Open));
    let lost = theirs.recv_timeout(PATIENCE);
    assert!(
        matches!(lost, Ok(Visit::Lost(it, _)) if it == link),
        "{lost:?}"
    );
    assert_eq!(
        visits.try_recv(),
        Err(TryRecvError::Empty),
        "nobody was received"
    );
}
