//! Invariant 12's floor: room is made before bytes arrive, and a floor is nobody else's.

use brambling_memory::{Budget, Class, Floors, OutOfMemory, Reservation};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const FLOORS: Floors = Floors {
    resident_bytes: 30,
    exchange_bytes: 20,
    transfer_bytes: 10,
};
const BUDGET_BYTES: u64 = 100;

fn floor(class: Class) -> u64 {
    match class {
        Class::Resident => 30,
        Class::Exchange => 20,
        Class::Early | Class::Given => 0,
        Class::Transfer => 10,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(usize, u64),
    Release(usize),
    Grow(usize, u64),
    Shrink(usize, u64),
    Move(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..Class::ALL.len(), 0..45u64).prop_map(|(class, bytes)| Step::Reserve(class, bytes)),
        2 => any::<usize>().prop_map(Step::Release),
        1 => (any::<usize>(), 0..30u64).prop_map(|(which, bytes)| Step::Grow(which, bytes)),
        1 => (any::<usize>(), 0..30u64).prop_map(|(which, bytes)| Step::Shrink(which, bytes)),
        1 => (any::<usize>(), 0..Class::ALL.len()).prop_map(|(which, class)| Step::Move(which, class)),
    ];
    prop::collection::vec(step, 0..60)
}

/// A plain model: who uses what, and whether more fits.
fn fits(held: &[Reservation], class: Class, more: u64) -> bool {
    let sum = |of: Class| -> u64 {
        let own: u64 = held
            .iter()
            .filter(|r| r.class() == of)
            .map(Reservation::bytes)
            .sum();
        own + if of == class { more } else { 0 }
    };
    let needed: u64 = Class::ALL
        .into_iter()
        .map(|of| sum(of).max(floor(of)))
        .sum();
    needed <= BUDGET_BYTES
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let budget = Budget::new(BUDGET_BYTES, FLOORS);
    let mut held: Vec<Reservation> = Vec::new();
    for step in steps {
        match step {
            Step::Reserve(class, bytes) => {
                let class = Class::ALL[class];
                let got = budget.reserve(class, bytes);
                prop_assert_eq!(got.is_ok(), fits(&held, class, bytes));
                held.extend(got);
            }
            Step::Release(which) if !held.is_empty() => {
                let which = which % held.len();
                drop(held.swap_remove(which));
            }
            Step::Grow(which, bytes) if !held.is_empty() => {
                let which = which % held.len();
                let expected = fits(&held, held[which].class(), bytes);
                prop_assert_eq!(held[which].grow(bytes).is_ok(), expected);
            }
            Step::Shrink(which, bytes) if !held.is_empty() => {
                let which = which % held.len();
                let bytes = bytes.min(held[which].bytes());
                held[which].shrink(bytes);
            }
            Step::Move(which, class) if !held.is_empty() => {
                let which = which % held.len();
                // Refused or not, the sums below must stay right.
                let _ = held[which].move_to(Class::ALL[class]);
            }
            _ => {}
        }
        for class in Class::ALL {
            let sum: u64 = held
                .iter()
                .filter(|r| r.class() == class)
                .map(|r| r.bytes())
                .sum();
            prop_assert_eq!(budget.class_in_use_bytes(class), sum);
        }
        prop_assert!(budget.in_use_bytes() <= BUDGET_BYTES);
        prop_assert!(budget.peak_bytes() >= budget.in_use_bytes());
    }
    drop(held);
    prop_assert_eq!(budget.in_use_bytes(), 0);
    // Everything was given back, also to the rest: the whole of it can be taken again.
    prop_assert!(budget.reserve(Class::Early, BUDGET_BYTES - 60).is_ok());
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
fn admits_exactly_what_the_model_admits() {
    run().unwrap();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    for name in ["budget-ignores-floors", "budget-admits-everything"] {
        brambling_memory::mutants::assert_caught(name, || run().unwrap());
    }
}

#[test]
fn a_floor_is_there_when_others_have_filled_the_rest() {
    let budget = Budget::new(BUDGET_BYTES, FLOORS);
    let _resident = budget.reserve(Class::Resident, 70).unwrap();
    assert!(budget.reserve(Class::Early, 1).is_err());
    let _exchange = budget.reserve(Class::Exchange, 20).unwrap();
    let refused = budget.reserve(Class::Exchange, 1).unwrap_err();
    assert_eq!(
        refused,
        OutOfMemory {
            class: Class::Exchange,
            asked_bytes: 1,
            in_use_bytes: 90,
            budget_bytes: 100
        }
    );
    let text = refused.to_string();
    assert!(
        text.contains("BRAMBLING_MEMORY") && text.contains("brambling.toml"),
        "{text}"
    );
}

#[test]
fn absurd_sizes_are_refused_not_wrapped() {
    let budget = Budget::unlimited();
    let _one = budget.reserve(Class::Resident, 1).unwrap();
    assert!(budget.reserve(Class::Resident, u64::MAX).is_err());
    assert!(budget.reserve(Class::Exchange, u64::MAX).is_err());
    assert_eq!(budget.in_use_bytes(), 1);
}

#[test]
fn adjust_counts_growth_and_shrinkage() {
    let budget = Budget::new(BUDGET_BYTES, FLOORS);
    budget.adjust(Class::Resident, 0, 60).unwrap();
    budget.adjust(Class::Resident, 60, 60).unwrap();
    assert!(budget.adjust(Class::Resident, 60, 71).is_err());
    assert_eq!(budget.class_in_use_bytes(Class::Resident), 60);
    budget.adjust(Class::Resident, 60, 5).unwrap();
    assert_eq!((budget.in_use_bytes(), budget.peak_bytes()), (5, 60));
}

#[test]
fn threads_never_exceed_the_budget_and_give_everything_back() {
    let budget = Budget::new(BUDGET_BYTES, FLOORS);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let budget = &budget;
            scope.spawn(move || {
                for round in 0..20_000u64 {
                    let class = Class::ALL[((round + thread) % 5) as usize];
                    let got = budget.reserve(class, (round * 7 + thread) % 37);
                    let rest: u64 = Class::ALL
                        .into_iter()
                        .map(|class| {
                            budget
                                .class_in_use_bytes(class)
                                .saturating_sub(floor(class))
                        })
                        .max()
                        .unwrap();
                    assert!(rest <= 40, "one class alone takes {rest} of the rest");
                    drop(got);
                }
            });
        }
    });
    assert_eq!(budget.in_use_bytes(), 0);
    assert!(budget.peak_bytes() <= BUDGET_BYTES);
    assert!(budget.reserve(Class::Early, 40).is_ok());
}
