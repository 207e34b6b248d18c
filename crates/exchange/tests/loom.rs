//! The races of an exchange within a process, enumerated by loom: arrivals, stamps and room.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p brambling-exchange --test loom`.
#![cfg(loom)]
#![allow(unsafe_code)] // A cell stands for the place of a piece.

use brambling_exchange::in_process::{Arrivals, Room, Stamp};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

/// One source on the destination's thread, two on others: the last arrival finds the turn complete, or
/// posts somebody who does; and every piece is visible then.
#[test]
fn no_arrival_is_lost() {
    loom::model(|| {
        let arrivals = Arc::new(Arrivals::new(3));
        let pieces = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let posted = Arc::new(AtomicBool::new(false));
        let far: Vec<_> = (0..2)
            .map(|source| {
                let (arrivals, pieces, posted) = (arrivals.clone(), pieces.clone(), posted.clone());
                loom::thread::spawn(move || {
                    // SAFETY: nobody reads the place before this source has arrived.
                    pieces[source].with_mut(|piece| unsafe { *piece = 1 });
                    arrivals.arrive_far();
                    posted.store(true, Ordering::Release);
                })
            })
            .collect();
        let read = || {
            for piece in pieces.iter() {
                // SAFETY: the turn is complete.
                assert_eq!(piece.with(|piece| unsafe { *piece }), 1);
            }
        };
        let mut complete = arrivals.arrive_near();
        if complete {
            read();
        }
        far.into_iter().for_each(|source| source.join().unwrap());
        if !complete && posted.load(Ordering::Acquire) {
            complete = arrivals.is_complete();
        }
        assert!(complete);
        read();
    });
}

/// A source that lacks room is told of it, or sees it: it never waits for a destination that has retired.
#[test]
fn no_source_waits_for_room_that_is_there() {
    loom::model(|| {
        let room = Arc::new(Room::new(1));
        let woken = Arc::new(AtomicBool::new(false));
        let destination = {
            let (room, woken) = (room.clone(), woken.clone());
            loom::thread::spawn(move || room.retire(|_| woken.store(true, Ordering::Release)))
        };
        let seen = room.has_retired(1) || room.await_retired(1, 0);
        destination.join().unwrap();
        assert!(
            seen || woken.load(Ordering::Acquire),
            "nobody told the source, and it did not see"
        );
        assert!(room.has_retired(1));
    });
}

/// Two turns through one place: loom's cell reports a write during a read.
#[test]
fn a_place_is_never_written_while_it_is_read() {
    loom::model(|| {
        let (stamp, room) = (Arc::new(Stamp::default()), Arc::new(Room::new(1)));
        let place = Arc::new(UnsafeCell::new(0u64));
        let source = {
            let (stamp, room, place) = (stamp.clone(), room.clone(), place.clone());
            loom::thread::spawn(move || {
                for turn in 0..2 {
                    while !room.has_retired(turn) {
                        loom::thread::yield_now();
                    }
                    // SAFETY: the destination has retired the turn before.
                    place.with_mut(|piece| unsafe { *piece = turn + 10 });
                    stamp.end(turn);
                }
            })
        };
        for turn in 0..2 {
            while !stamp.has_ended(turn) {
                loom::thread::yield_now();
            }
            // SAFETY: the source's turn has ended, and it waits for room.
            assert_eq!(place.with(|piece| unsafe { *piece }), turn + 10);
            room.retire(|_| {});
        }
        source.join().unwrap();
    });
}
