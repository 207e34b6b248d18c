//! The races of an exchange within a process, enumerated by loom: stamps, room, and what is sent to one who leaves.
//!
//! Run with `RUSTFLAGS="--cfg brambling_loom" cargo test --release -p brambling-exchange --test loom`.
#![cfg(brambling_loom)]
#![allow(unsafe_code)] // A cell stands for the place of a piece.

use brambling_exchange::in_process::{Mailbox, RetiredTurns, Stamp, fences};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

/// A destination leaves its places while its source stamps one: whoever claims it has the piece, and one of the two does. In a mailbox, too, what was put
/// in is the owner's, and what was not its sender's.
#[test]
fn what_is_sent_to_one_who_leaves_goes_one_way() {
    loom::model(|| {
        let stamp = Arc::new(Stamp::default());
        let place = Arc::new(UnsafeCell::new(0u64));
        let is_away = Arc::new(AtomicBool::new(false));
        let mailbox = Arc::new(Mailbox::new(true));
        let source = {
            let (stamp, place) = (stamp.clone(), place.clone());
            let (is_away, mailbox) = (is_away.clone(), mailbox.clone());
            loom::thread::spawn(move || {
                let kept = mailbox.put(7).is_err();
                // SAFETY: nobody reads the place before it is stamped.
                place.with_mut(|piece| unsafe { *piece = 1 });
                stamp.end(0);
                fences::light();
                let claimed = is_away.load(Ordering::SeqCst) && stamp.claim(0);
                // SAFETY: what was claimed is this thread's alone.
                let piece = claimed.then(|| place.with_mut(|piece| unsafe { *piece }));
                (piece, kept)
            })
        };
        is_away.store(true, Ordering::SeqCst);
        fences::heavy();
        let taken: Vec<i32> = mailbox.close().collect();
        // SAFETY: as above.
        let collected = stamp
            .claim(0)
            .then(|| place.with_mut(|piece| unsafe { *piece }));
        let (given, kept) = source.join().unwrap();
        assert_eq!(
            [collected, given].into_iter().flatten().collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(taken.len() + usize::from(kept), 1);
    });
}

/// A source that lacks room is told of it, or sees it: it never waits for a destination that has retired.
#[test]
fn no_source_waits_for_room_that_is_there() {
    loom::model(|| {
        let room = Arc::new(RetiredTurns::new(1));
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
        let (stamp, room) = (Arc::new(Stamp::default()), Arc::new(RetiredTurns::new(1)));
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
