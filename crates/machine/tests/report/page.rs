//! The page: names that would be tags are text, nothing is fetched, and the timeline has the ledger's sums.
//!
//! A browser is not asked here: bench/claims/report_page.py does that.

use brambling_machine::report::Report;
use serde_json::Value;

use crate::made;

const HOSTILE: &str =
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{ 7*7 }}<!--";

fn data(page: &str) -> Value {
    let begin = page.find("class=\"data\">").expect("the page has data") + "class=\"data\">".len();
    let end = begin + page[begin..].find("</script>").expect("which end");
    serde_json::from_str(&page[begin..end]).expect("and are JSON")
}

#[test]
fn hostile_names_are_text() {
    let mut ledger = made::healthy(2, 2, 50);
    ledger.program = HOSTILE.into();
    ledger.stages[2].name = HOSTILE.into();
    (ledger.stages[2].kind, ledger.stages[2].python) = (HOSTILE.into(), true);
    ledger
        .workers
        .iter_mut()
        .for_each(|worker| (worker.name, worker.host) = (HOSTILE.into(), HOSTILE.into()));
    ledger.workers[0].threads[0].name = HOSTILE.into();
    let plain = Report::new(made::healthy(2, 2, 50), &made::roofs()).to_html();
    let report = Report::new(ledger, &made::roofs());
    for page in [report.to_html(), report.to_html_fragment()] {
        assert!(
            !page.contains("<img") && !page.contains("alert(1)</script>") && !page.contains("<!--"),
            "a tag of a name"
        );
        assert!(page.contains("&lt;img src=x onerror=alert(2)&gt;") && page.contains("{{ 7*7 }}"));
        assert_eq!(
            page.matches("<script").count(),
            plain.matches("<script").count()
        );
        assert_eq!(data(&page)["stages"][2], HOSTILE);
    }
}

#[test]
fn nothing_is_fetched() {
    let page = Report::new(made::healthy(2, 2, 50), &made::roofs()).to_html();
    for way in [
        "http://",
        "https://",
        "src=",
        "@import",
        "url(",
        "//cdn",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!page.contains(way), "{way}");
    }
    // An icon of nothing, or a browser asks for one.
    assert_eq!(page.matches("href=").count(), 1);
    assert!(page.contains("href=\"data:,\""));
}

#[test]
fn the_timeline_sums_to_the_ledger() {
    for (workers, threads, moments) in [(1, 1, 3), (2, 4, 2_500), (2, 2, 30_000), (40, 2, 100)] {
        let ledger = made::healthy(workers, threads, moments);
        let kernels: f64 = ledger
            .workers
            .iter()
            .flat_map(|worker| &worker.threads)
            .map(|thread| thread.parts.kernels)
            .sum();
        let page = Report::new(ledger, &made::roofs()).to_html();
        assert!(page.len() < 4 << 20, "{} bytes", page.len());
        let lanes = data(&page)["lanes"].as_array().unwrap().clone();
        // Of many rows each is the mean of a worker's threads.
        let weight = (workers * threads) as f64 / lanes.len() as f64;
        let drawn: f64 = lanes.iter().map(|lane| kernels_of(lane) * weight).sum();
        assert!(
            (drawn / kernels - 1.0).abs() < 0.01,
            "{drawn} of {kernels} s in {workers} × {threads} × {moments}"
        );
    }
}

/// Seconds of part 0 in a row's moments.
fn kernels_of(lane: &Value) -> f64 {
    let numbers: Vec<i64> = lane["moments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_i64().unwrap())
        .collect();
    let (mut at, mut sum) = (0, 0);
    while at < numbers.len() {
        let parts = numbers[at + 3] as usize;
        sum += (0..parts)
            .filter(|part| numbers[at + 4 + 2 * part] == 0)
            .map(|part| numbers[at + 5 + 2 * part])
            .sum::<i64>();
        at += 4 + 2 * parts;
    }
    sum as f64 / 1e6
}
