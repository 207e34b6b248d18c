//! Frames survive connections: none is lost, none is taken twice.

use brambling_protocol::session::WINDOW;
use brambling_protocol::{Received, Session, SessionError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    /// One of the frames under way arrives.
    Arrive(usize),
    /// As before, and it stays under way.
    ArriveTwice(usize),
    /// One of the acknowledgements under way arrives.
    Acknowledge(usize),
    /// The connection breaks: all that is under way is lost.
    Break,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Send),
        4 => any::<usize>().prop_map(Step::Arrive),
        2 => any::<usize>().prop_map(Step::ArriveTwice),
        2 => any::<usize>().prop_map(Step::Acknowledge),
        1 => Just(Step::Break),
    ];
    prop::collection::vec(step, 0..80)
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut sender, mut receiver) = (Session::new(), Session::<u64>::new());
    let (mut frames, mut acks, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let mut sent = 0u64;
    for step in steps.into_iter().chain([Step::Break]) {
        match step {
            Step::Send => {
                let sequence = sender.send(sent);
                frames.push((sequence.expect("few wait"), sent));
                sent += 1;
            }
            Step::Arrive(which) | Step::ArriveTwice(which) if !frames.is_empty() => {
                let which = which % frames.len();
                let (sequence, frame) = frames[which];
                if matches!(step, Step::Arrive(_)) {
                    frames.swap_remove(which);
                }
                for _ in 0..2 {
                    if receiver.receive(sequence)? == Received::New {
                        taken.push(frame);
                    }
                }
                acks.extend(receiver.ack());
            }
            Step::Acknowledge(which) if !acks.is_empty() => {
                let received = acks[which % acks.len()];
                for _ in 0..2 {
                    prop_assert_eq!(sender.on_ack(received)?.count(), 0, "few wait");
                }
            }
            Step::Break => {
                acks.clear();
                frames = sender
                    .on_reconnect(receiver.received())?
                    .map(|(sequence, &frame)| (sequence, frame))
                    .collect();
            }
            _ => {}
        }
    }
    for (sequence, frame) in frames {
        if receiver.receive(sequence)? == Received::New {
            taken.push(frame);
        }
    }
    taken.sort_unstable();
    prop_assert_eq!(taken, (0..sent).collect::<Vec<_>>());
    let _ = sender.on_ack(receiver.received())?;
    prop_assert!(sender.is_settled());
    Ok(())
}

fn run() -> Result<(), String> {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(400)
    };
    TestRunner::new(config)
        .run(&steps(), check)
        .map_err(|error| error.to_string())
}

#[test]
fn every_frame_is_taken_once() {
    run().unwrap();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    for name in [
        "session-delivers-twice",
        "session-acknowledges-gaps",
        "session-forgets-on-reconnect",
    ] {
        brambling_memory::mutants::assert_caught(name, || run().unwrap());
    }
}

#[test]
fn what_no_honest_peer_says_is_an_error() {
    let mut session = Session::new();
    assert_eq!(session.send("a"), Some(0));
    let never = SessionError::NeverSent {
        received: 2,
        sent: 1,
    };
    assert_eq!(session.on_ack(2).err(), Some(never));
    assert_eq!(session.on_reconnect(2).err(), Some(never));
    for sequence in [WINDOW, u64::MAX] {
        let error = session.receive(sequence);
        assert_eq!(
            error,
            Err(SessionError::TooFarAhead {
                sequence,
                received: 0
            })
        );
    }
    assert_eq!(session.received(), 0);
    assert!(!session.is_settled());
}

/// Far more is said than may be under way, to a receiver that is silent at first: all of it arrives once, in the order of
/// its numbers, and the receiver never has to remember more than the window.
#[test]
fn what_is_said_beyond_the_window_waits_for_acknowledgements() {
    let (mut sender, mut receiver) = (Session::new(), Session::<u64>::new());
    const SAID: u64 = 200_000;
    let mut under_way: Vec<u64> = (0..SAID).filter_map(|frame| sender.send(frame)).collect();
    assert_eq!(under_way, (0..WINDOW).collect::<Vec<_>>());
    assert_eq!(sender.waiting(), SAID - WINDOW);
    // No honest peer has what waits here.
    let (received, sent) = (WINDOW + 1, WINDOW);
    let never = SessionError::NeverSent { received, sent };
    assert_eq!(sender.on_ack(received).err(), Some(never));

    let mut taken = 0;
    for round in 0.. {
        // The first frame comes last, so that all the others lie beyond a gap.
        let first = under_way.first().copied();
        for sequence in under_way.drain(..).skip(1).chain(first) {
            assert_eq!(receiver.receive(sequence), Ok(Received::New));
            taken += 1;
        }
        let Some(received) = receiver.ack() else {
            break;
        };
        assert_eq!(received, taken, "no gap is left");
        let opened = match round % 2 {
            // With its connection some of what goes out is lost, and is sent again.
            0 => {
                let _ = sender.on_ack(received - 1000).unwrap();
                sender.on_reconnect(received).unwrap()
            }
            _ => {
                under_way.extend(sender.on_ack(received).unwrap().map(|(_, frame)| *frame));
                assert_eq!(
                    sender.on_ack(received).unwrap().count(),
                    0,
                    "given out once"
                );
                continue;
            }
        };
        under_way.extend(opened.map(|(sequence, frame)| {
            assert_eq!(sequence, *frame);
            sequence
        }));
    }
    assert_eq!(taken, SAID);
    assert!(sender.is_settled() && sender.waiting() == 0);
}

/// An acknowledgement that is lost with its connection is said again on the next one, also when nothing new has come.
#[test]
fn an_acknowledgement_that_was_lost_is_said_again() {
    let mut receiver = Session::<()>::new();
    for sequence in 0..3 {
        assert_eq!(receiver.receive(sequence), Ok(Received::New));
    }
    assert_eq!((receiver.ack(), receiver.ack()), (Some(3), None));
    let _ = receiver.on_reconnect(0).unwrap();
    assert_eq!(receiver.ack_after(1), Some(3));
    assert_eq!(receiver.ack_after(1), None);
    // Nothing has come: nothing is said.
    let mut fresh = Session::<()>::new();
    let _ = fresh.on_reconnect(0).unwrap();
    assert_eq!(fresh.ack(), None);
}
