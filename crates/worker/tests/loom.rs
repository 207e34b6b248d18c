//! The executor's races, enumerated by loom: mail, stamps, queue lock and parker.
//!
//! Run with `RUSTFLAGS="--cfg brambling_loom" cargo test --release -p brambling-worker --test loom`.
#![cfg(brambling_loom)]
#![allow(unsafe_code)] // The queue lock guards a cell, as it does in the executor.

use brambling_exchange::in_process::{Stamp, fences};
use brambling_worker::executor::{BiasedLock, Doorbell, Parker};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A shard posted by two threads is taken at least once after each post.
#[test]
fn no_posted_shard_is_left_lying() {
    loom::model(|| {
        let doorbell = Arc::new(Doorbell::new(2));
        let published = Arc::new(AtomicU32::new(0));
        let posters: Vec<_> = (0..2)
            .map(|shard| {
                let (doorbell, published) = (doorbell.clone(), published.clone());
                loom::thread::spawn(move || {
                    published.fetch_add(1 << shard, Ordering::Release);
                    doorbell.post(shard);
                })
            })
            .collect();
        let mut seen = 0;
        let mut look = || {
            if doorbell.has_any() {
                doorbell.take(|shard| {
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
        let doorbell = Arc::new(Doorbell::new(1));
        let parker = Arc::new(Parker::default());
        let poster = {
            let (doorbell, parker) = (doorbell.clone(), parker.clone());
            loom::thread::spawn(move || {
                if doorbell.post(0) {
                    parker.wake();
                }
            })
        };
        let mut seen = false;
        while !seen {
            parker.park(Duration::ZERO, || doorbell.has_any());
            if doorbell.has_any() {
                doorbell.take(|_| seen = true);
            }
        }
        poster.join().unwrap();
    });
}

/// A source stamps, and tells the thread only if that sleeps; the thread looks at the stamp before it sleeps.
#[test]
fn nobody_sleeps_on_a_stamp() {
    loom::model(|| {
        let (doorbell, parker) = (Arc::new(Doorbell::new(1)), Arc::new(Parker::default()));
        let stamp = Arc::new(Stamp::default());
        let source = {
            let (doorbell, parker, stamp) = (doorbell.clone(), parker.clone(), stamp.clone());
            loom::thread::spawn(move || {
                stamp.end(0);
                fences::light();
                if parker.is_parked() && doorbell.post(0) {
                    parker.wake();
                }
            })
        };
        while !stamp.has_ended(0) {
            parker.park(Duration::ZERO, || doorbell.has_any() || stamp.has_ended(0));
            if doorbell.has_any() {
                doorbell.take(|_| {});
            }
        }
        source.join().unwrap();
    });
}

/// Owner and thief touch the queue: loom's cell reports any overlap.
#[test]
fn owner_and_thief_never_meet_in_the_zone() {
    loom::model(|| {
        let queue_lock = Arc::new(BiasedLock::default());
        let queue = Arc::new(UnsafeCell::new(2u32));
        let taken = Arc::new(AtomicU32::new(0));
        let thief = {
            let (queue_lock, queue, taken) = (queue_lock.clone(), queue.clone(), taken.clone());
            loom::thread::spawn(move || {
                if let Some(locked) = queue_lock.try_lock() {
                    // SAFETY: the lock keeps the owner out.
                    queue.with_mut(|queue| unsafe { *queue -= 1 });
                    taken.fetch_add(1, Ordering::Relaxed);
                    drop(locked);
                }
            })
        };
        queue_lock.enter();
        // SAFETY: under our own queue lock.
        queue.with_mut(|queue| unsafe { *queue -= 1 });
        queue_lock.leave();
        thief.join().unwrap();
        queue_lock.enter();
        // SAFETY: under our own queue lock.
        let left = queue.with(|queue| unsafe { *queue });
        assert_eq!(left + taken.load(Ordering::Relaxed), 1);
    });
}

/// A request is answered once, whoever asks.
#[test]
fn a_request_is_taken_once() {
    loom::model(|| {
        let queue_lock = Arc::new(BiasedLock::default());
        let asked = Arc::new(AtomicBool::new(false));
        let thief = {
            let (queue_lock, asked) = (queue_lock.clone(), asked.clone());
            loom::thread::spawn(move || {
                queue_lock.request(3);
                asked.store(true, Ordering::Release);
            })
        };
        let first = queue_lock.take_request();
        thief.join().unwrap();
        let second = queue_lock.take_request();
        assert_eq!(first.or(second), Some(3));
        assert!(first.is_none() || second.is_none());
    });
}
