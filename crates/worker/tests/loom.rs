//! The executor's races, enumerated by loom: mail, stamps, zone and bed.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p brambling-worker --test loom`.
#![cfg(loom)]
#![allow(unsafe_code)] // The zone guards a cell, as it does in the executor.

use brambling_exchange::in_process::{Stamp, fences};
use brambling_worker::executor::{Bed, Mail, Zone};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A shard posted by two threads is taken at least once after each post.
#[test]
fn no_posted_shard_is_left_lying() {
    loom::model(|| {
        let mail = Arc::new(Mail::new(2));
        let published = Arc::new(AtomicU32::new(0));
        let posters: Vec<_> = (0..2)
            .map(|shard| {
                let (mail, published) = (mail.clone(), published.clone());
                loom::thread::spawn(move || {
                    published.fetch_add(1 << shard, Ordering::Release);
                    mail.post(shard);
                })
            })
            .collect();
        let mut seen = 0;
        let mut look = || {
            if mail.has_any() {
                mail.take(|shard| {
                    assert_ne!(published.load(Ordering::Acquire) & (1 << shard), 0);
                    seen |= 1 << shard;
                });
            }
        };
        look();
        posters
            .into_iter()
            .for_each(|poster| poster.join().unwrap());
        look();
        assert_eq!(seen, 3, "a shard was posted and not found");
    });
}

/// A sleeper that nobody wakes would be a deadlock, which loom reports.
#[test]
fn nobody_sleeps_on_mail() {
    loom::model(|| {
        let mail = Arc::new(Mail::new(1));
        let bed = Arc::new(Bed::default());
        let poster = {
            let (mail, bed) = (mail.clone(), bed.clone());
            loom::thread::spawn(move || {
                if mail.post(0) {
                    bed.wake();
                }
            })
        };
        let mut seen = false;
        while !seen {
            bed.sleep(Duration::ZERO, || mail.has_any());
            if mail.has_any() {
                mail.take(|_| seen = true);
            }
        }
        poster.join().unwrap();
    });
}

/// A source stamps, and tells the thread only if that sleeps; the thread looks at the stamp before it sleeps.
#[test]
fn nobody_sleeps_on_a_stamp() {
    loom::model(|| {
        let (mail, bed) = (Arc::new(Mail::new(1)), Arc::new(Bed::default()));
        let stamp = Arc::new(Stamp::default());
        let source = {
            let (mail, bed, stamp) = (mail.clone(), bed.clone(), stamp.clone());
            loom::thread::spawn(move || {
                stamp.end(0);
                fences::light();
                if bed.is_asleep() && mail.post(0) {
                    bed.wake();
                }
            })
        };
        while !stamp.has_ended(0) {
            bed.sleep(Duration::ZERO, || mail.has_any() || stamp.has_ended(0));
            if mail.has_any() {
                mail.take(|_| {});
            }
        }
        source.join().unwrap();
    });
}

/// Owner and thief touch the queue: loom's cell reports any overlap.
#[test]
fn owner_and_thief_never_meet_in_the_zone() {
    loom::model(|| {
        let zone = Arc::new(Zone::default());
        let queue = Arc::new(UnsafeCell::new(2u32));
        let taken = Arc::new(AtomicU32::new(0));
        let thief = {
            let (zone, queue, taken) = (zone.clone(), queue.clone(), taken.clone());
            loom::thread::spawn(move || {
                if let Some(locked) = zone.try_lock() {
                    // SAFETY: the lock keeps the owner out.
                    queue.with_mut(|queue| unsafe { *queue -= 1 });
                    taken.fetch_add(1, Ordering::Relaxed);
                    drop(locked);
                }
            })
        };
        zone.enter();
        // SAFETY: inside our own zone.
        queue.with_mut(|queue| unsafe { *queue -= 1 });
        zone.leave();
        thief.join().unwrap();
        zone.enter();
        // SAFETY: inside our own zone.
        let left = queue.with(|queue| unsafe { *queue });
        assert_eq!(left + taken.load(Ordering::Relaxed), 1);
    });
}

/// A request is answered once, whoever asks.
#[test]
fn a_request_is_taken_once() {
    loom::model(|| {
        let zone = Arc::new(Zone::default());
        let asked = Arc::new(AtomicBool::new(false));
        let thief = {
            let (zone, asked) = (zone.clone(), asked.clone());
            loom::thread::spawn(move || {
                zone.request(3);
                asked.store(true, Ordering::Release);
            })
        };
        let first = zone.take_request();
        thief.join().unwrap();
        let second = zone.take_request();
        assert_eq!(first.or(second), Some(3));
        assert!(first.is_none() || second.is_none());
    });
}
