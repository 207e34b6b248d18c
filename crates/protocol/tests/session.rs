//! Frames survive connections: none is lost, none is taken twice.

use brambling_protocol::session::UNACKNOWLEDGED_MAX;
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
                frames.push((sender.send(sent), sent));
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
                sender.on_ack(received)?;
                sender.on_ack(received)?;
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
    sender.on_ack(receiver.received())?;
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
    session.send("a");
    let never = SessionError::NeverSent {
        received: 2,
        sent: 1,
    };
    assert_eq!(session.on_ack(2), Err(never));
    assert_eq!(session.on_reconnect(2).err(), Some(never));
    for sequence in [UNACKNOWLEDGED_MAX, u64::MAX] {
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

#[test]
fn what_waits_for_acknowledgement_is_bounded() {
    let mut session = Session::new();
    while session.has_room() {
        session.send(());
    }
    session.on_ack(1).unwrap();
    assert_eq!(session.send(()), UNACKNOWLEDGED_MAX);
    assert!(!session.has_room());
}
