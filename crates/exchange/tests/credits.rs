//! Credit depends on what was retired, not on how the news came.

use brambling_exchange::*;
use brambling_program::ExchangeId;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const X: ExchangeId = ExchangeId(5);
const DESTINATIONS: u32 = 6;

fn news() -> impl Strategy<Value = Vec<(u32, u32, u64)>> {
    let one = (0..DESTINATIONS, 1..DESTINATIONS, 0..8u64)
        .prop_map(|(first, len, turns)| (first, (first + len).min(DESTINATIONS), turns));
    prop::collection::vec(one, 0..20)
}

fn check((news, open): (Vec<(u32, u32, u64)>, u64)) -> Result<(), TestCaseError> {
    let mut credits = Credits::new([(X, DESTINATIONS), (ExchangeId(1), 0)]);
    let mut retired = [0u64; DESTINATIONS as usize];
    for (first, end, turns) in news {
        let least = retired.iter().copied().min().unwrap();
        for known in &mut retired[first as usize..end as usize] {
            *known = turns.max(*known);
        }
        let moved = credits.on_credit(X, first..end, turns)?;
        prop_assert_eq!(moved, retired.iter().copied().min().unwrap() > least);
        prop_assert_eq!(
            credits.on_credit(X, first..end, turns),
            Ok(false),
            "the second delivery"
        );
        let least = retired.iter().copied().min().unwrap();
        prop_assert_eq!(credits.lowest_open(X), least);
        let runs = credits.retired(X);
        let mut told = [0u64; DESTINATIONS as usize];
        for (run, turns) in &runs {
            prop_assert!(*turns > 0, "nothing is told of who has retired nothing");
            told[run.start as usize..run.end as usize].fill(*turns);
        }
        prop_assert_eq!(told, retired);
        let meet = |pair: &[(std::ops::Range<u32>, u64)]| {
            pair[0].0.end == pair[1].0.start && pair[0].1 == pair[1].1
        };
        prop_assert!(!runs.windows(2).any(meet), "{:?}", runs);
        for turn in 0..16 {
            for destination in 0..DESTINATIONS {
                let known = credits.retired_by(X, destination);
                prop_assert_eq!(known, retired[destination as usize]);
                prop_assert_eq!(fits(turn, known, open), turn < known + open);
            }
        }
    }
    Ok(())
}

fn run() -> Result<(), String> {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(300)
    };
    TestRunner::new(config)
        .run(&(news(), 1..5u64), check)
        .map_err(|error| error.to_string())
}

#[test]
fn room_is_what_the_newest_credits_leave() {
    run().unwrap();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    for name in ["credit-goes-back", "credit-opens-one-too-many"] {
        brambling_memory::mutants::assert_caught(name, || run().unwrap());
    }
}

#[test]
fn unknown_destinations_are_an_error_and_change_nothing() {
    let mut credits = Credits::new([(X, DESTINATIONS)]);
    let before = credits.clone();
    for (exchange, destinations) in [
        (X, 5..7),
        (X, 9..12),
        (X, 0..u32::MAX),
        (ExchangeId(0), 0..1),
    ] {
        let expected = UnknownDestination {
            exchange,
            destinations: destinations.clone(),
        };
        assert_eq!(credits.on_credit(exchange, destinations, 1), Err(expected));
    }
    assert_eq!(credits, before);
    // A turn count that no program reaches neither wraps nor panics.
    assert_eq!(credits.on_credit(X, 0..DESTINATIONS, u64::MAX), Ok(true));
    assert!(fits(u64::MAX - 1, credits.lowest_open(X), OPEN_TURNS));
}
