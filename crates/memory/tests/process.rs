//! Jobs of one process share its memory: a floor for each, and the rest for whoever comes first.
//!
//! Catches floors that are lost or given twice when jobs begin and end, and jobs that begin without room. Says nothing about who decides when.

use brambling_memory::{AdmissionWait, Budget, BudgetShare, Class, Floors, Memory};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BUDGET_BYTES: u64 = 1_600;

/// The most of one class without a floor that fits now.
fn free_bytes(budget: &Budget) -> u64 {
    let mut bytes = 0;
    while budget.reserve(Class::Given, bytes + 1).is_ok() {
        bytes += 1;
    }
    bytes
}

fn begin(memory: &Memory, weight: u32) -> Result<BudgetShare, AdmissionWait> {
    memory.queue().admit(weight, BUDGET_BYTES)
}

#[test]
fn a_job_alone_has_the_floors_of_all_and_may_use_all() {
    let memory = Memory::new(BUDGET_BYTES);
    for _ in 0..3 {
        let share = begin(&memory, 7).unwrap();
        let floors = Floors::of(BUDGET_BYTES);
        let (exchange, transfer) = (floors.exchange_bytes, floors.transfer_bytes);
        let most = BUDGET_BYTES - exchange - transfer;
        let resident = share.budget().reserve(Class::Resident, most).unwrap();
        assert!(share.budget().reserve(Class::Resident, 1).is_err());
        let _pieces = share.budget().reserve(Class::Exchange, exchange).unwrap();
        drop(resident);
    }
    assert_eq!(memory.in_use_bytes(), 0);
}

#[test]
fn a_floor_is_kept_for_each_job_by_its_weight() {
    let memory = Memory::new(BUDGET_BYTES);
    let (light, heavy) = (begin(&memory, 1).unwrap(), begin(&memory, 3).unwrap());
    // Whatever one of them does, the other has its floors: of a quarter of the budget, and of three quarters.
    let greedy = free_bytes(light.budget());
    let _all = light.budget().reserve(Class::Given, greedy).unwrap();
    for (share, of) in [(&light, 400), (&heavy, 1_200)] {
        let floors = Floors::of(of);
        let budget = share.budget();
        let _resident = budget
            .reserve(Class::Resident, floors.resident_bytes)
            .unwrap();
        let _exchange = budget
            .reserve(Class::Exchange, floors.exchange_bytes)
            .unwrap();
        let _transfer = budget
            .reserve(Class::Transfer, floors.transfer_bytes)
            .unwrap();
        assert!(budget.reserve(Class::Exchange, 1).is_err());
    }
}

#[test]
fn a_job_whose_floor_finds_no_room_waits_until_one_ends() {
    let memory = Memory::new(BUDGET_BYTES);
    let first = begin(&memory, 1).unwrap();
    let room = first.budget().reserve(Class::Resident, 1_200).unwrap();
    let queued = memory.queue();
    let waits = queued.admit(1, BUDGET_BYTES).unwrap_err();
    let AdmissionWait::Room {
        floor_bytes: 550,
        budget_bytes: BUDGET_BYTES,
        jobs: 1,
        ..
    } = waits
    else {
        panic!("{waits}");
    };
    assert!(waits.to_string().contains("BRAMBLING_MEMORY"), "{waits}");
    // Nothing was taken from the one that runs.
    assert!(first.budget().reserve(Class::Exchange, 200).is_ok());
    let behind = memory.queue();
    assert_eq!(
        behind.admit(1, BUDGET_BYTES).unwrap_err(),
        AdmissionWait::Turn { before: 1 }
    );
    let since = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            drop(room);
            drop(first);
        });
        while let Err(waits) = queued.admit(1, BUDGET_BYTES) {
            assert!(matches!(waits, AdmissionWait::Room { .. }), "{waits}");
            queued.wait(Duration::from_secs(20));
        }
    });
    assert!(since.elapsed() < Duration::from_secs(10), "nobody woke it");
    // The first has left the queue.
    drop(behind.admit(1, BUDGET_BYTES).unwrap());
}

#[test]
fn who_leaves_the_queue_lets_the_next_one_begin() {
    let memory = Memory::new(BUDGET_BYTES);
    let (first, second) = (memory.queue(), memory.queue());
    assert!(second.admit(1, BUDGET_BYTES).is_err());
    drop(first);
    assert!(second.admit(1, BUDGET_BYTES).is_ok());
}

#[test]
fn a_job_of_another_budget_begins_when_no_other_runs() {
    let memory = Memory::new(BUDGET_BYTES);
    let share = begin(&memory, 1).unwrap();
    let queued = memory.queue();
    let waits = queued.admit(1, 900).unwrap_err();
    assert!(
        waits
            .to_string()
            .contains("900 bytes, and 1600 were given to 1 job that runs"),
        "{waits}"
    );
    drop(share);
    let share = queued.admit(1, 900).unwrap();
    assert_eq!(share.budget().budget_bytes(), 900);
    assert!(share.budget().reserve(Class::Resident, 901).is_err());
    drop(share);
    assert!(
        begin(&memory, 1)
            .unwrap()
            .budget()
            .reserve(Class::Resident, 1_000)
            .is_ok()
    );
}

#[test]
fn what_results_take_is_counted_no_more_when_their_job_has_ended() {
    let memory = Memory::new(BUDGET_BYTES);
    let share = begin(&memory, 1).unwrap();
    let kept = share.budget().reserve(Class::Resident, 1_000).unwrap();
    drop(share);
    let next = begin(&memory, 1).unwrap();
    let room = next.budget().reserve(Class::Resident, 1_200).unwrap();
    drop(kept);
    assert!(next.budget().reserve(Class::Resident, 200).is_err());
    drop(room);
    assert_eq!(memory.in_use_bytes(), 0);
}

#[test]
fn at_once_a_job_has_as_much_of_its_floors_as_there_is_room_for() {
    let memory = Memory::new(BUDGET_BYTES);
    let own = memory.own().reserve(Class::Given, 1_500).unwrap();
    let share = memory.admit(1);
    assert!(share.budget().reserve(Class::Resident, 51).is_ok());
    assert!(share.budget().reserve(Class::Resident, 200).is_err());
    drop(own);
    share.weigh(2);
    assert!(share.budget().reserve(Class::Resident, 1_300).is_ok());
}

/// Jobs begin and end while threads take and give back: nothing is lost, and the budget is never exceeded.
#[test]
fn floors_that_change_while_others_take_lose_nothing() {
    const BUDGET_BYTES: u64 = 1 << 20;
    let memory = Memory::new(BUDGET_BYTES);
    let over = AtomicBool::new(false);
    let first = memory.admit(2);
    thread::scope(|scope| {
        for thread in 0..3u64 {
            let (budget, over, memory) = (first.budget(), &over, &memory);
            scope.spawn(move || {
                let mut round = thread;
                while !over.load(Ordering::Relaxed) {
                    round += 3;
                    let class = Class::ALL[(round % 5) as usize];
                    let got = budget.reserve(class, round * 7_919 % (BUDGET_BYTES / 4));
                    assert!(memory.in_use_bytes() <= BUDGET_BYTES);
                    drop(got);
                }
            });
        }
        for round in 0..3_000u32 {
            let other = memory.admit(1 + round % 5);
            let taken = other
                .budget()
                .reserve(Class::ALL[(round % 5) as usize], 60_000);
            if round % 3 == 0 {
                first.weigh(1 + round % 4);
            }
            drop((other, taken));
        }
        over.store(true, Ordering::Relaxed);
    });
    drop(first);
    assert_eq!(memory.in_use_bytes(), 0);
    let share = memory.queue().admit(1, BUDGET_BYTES).unwrap();
    let floors = Floors::of(BUDGET_BYTES);
    let most = BUDGET_BYTES - floors.exchange_bytes - floors.transfer_bytes;
    let _all = share.budget().reserve(Class::Resident, most).unwrap();
    let _pieces = share
        .budget()
        .reserve(Class::Exchange, floors.exchange_bytes)
        .unwrap();
    let _moves = share
        .budget()
        .reserve(Class::Transfer, floors.transfer_bytes)
        .unwrap();
    assert!(share.budget().reserve(Class::Given, 1).is_err());
}
