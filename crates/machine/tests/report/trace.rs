//! The trace as JSON: slices nest, follow each other, and sum to the ledger. Whether Perfetto's schema reads the other
//! form is asked by bench/claims/trace.py.

use std::collections::BTreeMap;

use brambling_machine::ledger::Ledger;
use brambling_machine::report::Report;
use serde_json::Value;

use crate::made;

fn slices(ledger: Ledger) -> BTreeMap<(i64, i64), Vec<Value>> {
    let trace: Value =
        serde_json::from_str(&Report::new(ledger, &made::roofs()).to_trace_json()).unwrap();
    let mut threads: BTreeMap<_, Vec<Value>> = BTreeMap::new();
    for event in trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "X")
    {
        threads
            .entry((
                event["pid"].as_i64().unwrap(),
                event["tid"].as_i64().unwrap(),
            ))
            .or_default()
            .push(event.clone());
    }
    threads
}

fn span(event: &Value) -> (f64, f64) {
    let begin = event["ts"].as_f64().unwrap();
    (begin, begin + event["dur"].as_f64().unwrap())
}

#[test]
fn slices_nest_and_sum_to_the_ledger() {
    let ledger = made::healthy(2, 3, 500);
    let threads = slices(ledger.clone());
    assert_eq!(threads.len(), 6);
    for (thread, events) in ledger
        .workers
        .iter()
        .flat_map(|worker| &worker.threads)
        .zip(threads.values())
    {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        let (mut moment, mut part) = ((0.0, 0.0), (0.0, 0.0));
        for event in events {
            let now = span(event);
            if event["cat"] == "moment" {
                assert!(
                    now.0 >= moment.1 - 1e-6,
                    "moments overlap: {moment:?}, {now:?}"
                );
                (moment, part) = (now, (now.0, now.0));
            } else {
                assert!(
                    now.0 >= part.1 - 1e-6 && now.1 <= moment.1 + 1e-6,
                    "{now:?} is not in {moment:?}"
                );
                *sums.entry(event["name"].as_str().unwrap()).or_default() += (now.1 - now.0) / 1e6;
                part = now;
            }
        }
        for (name, seconds) in thread.parts.named() {
            let sum = sums.get(name).copied().unwrap_or(0.0);
            assert!(
                (sum - seconds).abs() <= 0.01 * seconds,
                "{name}: {sum} of {seconds}"
            );
        }
    }
}

#[test]
fn a_thread_without_moments_is_one_slice() {
    let mut ledger = made::healthy(1, 1, 100);
    ledger.workers[0].threads[0].moments.clear();
    let threads = slices(ledger.clone());
    let events = threads.values().next().unwrap();
    assert_eq!(
        events
            .iter()
            .filter(|event| event["cat"] == "moment")
            .count(),
        1
    );
    assert!((span(&events[0]).1 / 1e6 - ledger.wall_s).abs() < 1e-6);
}
