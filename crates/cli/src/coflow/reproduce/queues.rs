//! Equation 6 beside simulated waits: why a few queues suffice.
//!
//! Coflows of one flow each on one link. The equation takes a class as given when a coflow comes, serves each class first
//! come, first served, and lets nobody interrupt who is served. Aalo serves a class so too, but finds it out while it
//! serves, and interrupts; in Stream's classes all share.

use super::figures::{Panel, PaperFigure, PrintedFact};
use super::store::KeptRuns;
use brambling::coflow::policy::{PolicyChoices, PolicyName};
use brambling::coflow::simulate::{SimulateOptions, Took, simulate};
use brambling::coflow::workload::Workload;

const COFLOWS: u32 = 4000;
/// How busy the link is.
const LOAD: f64 = 0.7;
const SEED: u64 = 1;
const QUEUES: std::ops::RangeInclusive<u8> = 1..=8;
/// Where Stream's classes end: 10 MB, and ten times as much each.
const THRESHOLD: f64 = 10e6;
const LINK: f64 = 125e6;

pub(super) fn figure() -> PaperFigure {
    PaperFigure {
        number: "equation-6",
        title: "Equation 6 beside simulated waits",
        why: "4,000 coflows of one flow, of 1 MB to 10 GB evenly over the logarithm, on a link that is busy for 70 % of the time. A \
              wait is what a coflow takes beyond its time alone. The equation, read as Kleinrock's for queues that are served one after \
              the other, has the classes known on arrival, each first come, first served, and no interruption: with one queue it is \
              Aalo. Beyond four or five queues there is no coflow that another one would tell apart. Flows that share a class, as \
              Stream's do, wait about as long on average with any number of queues; the small ones gain.",
        plans: Vec::new(),
        panels,
        printed,
    }
}

fn panels(_: &KeptRuns) -> Vec<Panel> {
    let aalo = QUEUES.map(|queues| simulated(PolicyName::Aalo, queues));
    let predicted = QUEUES.zip(aalo.clone());
    let predicted = predicted.map(|(queues, coflows)| equation_6(&coflows, queues));
    let stream = QUEUES.map(|queues| mean_wait_s(&simulated(PolicyName::Stream, queues)));
    let series = vec![
        ("equation 6".to_owned(), predicted.collect()),
        ("aalo".to_owned(), aalo.map(|it| mean_wait_s(&it)).collect()),
        ("stream".to_owned(), stream.collect()),
    ];
    vec![Panel {
        title: "mean wait by the number of queues".to_owned(),
        x: "queues",
        y: "seconds",
        names: QUEUES.map(|it| it.to_string()).collect(),
        series,
    }]
}

fn printed(_: &KeptRuns) -> Vec<PrintedFact> {
    let wait = |queues| mean_wait_s(&simulated(PolicyName::Aalo, queues));
    vec![
        PrintedFact {
            what: "aalo, 4 queues beside 1: how many times shorter a wait is",
            paper: "most of the gain",
            ours: format!("{:.2} ×", wait(1) / wait(4)),
        },
        PrintedFact {
            what: "8 queues beside 4",
            paper: "diminishing returns",
            ours: format!("{:.2} ×", wait(4) / wait(8)),
        },
    ]
}

fn simulated(policy: PolicyName, queues: u8) -> Vec<Took> {
    let workload = Workload::on_one_link(COFLOWS, LOAD, SEED);
    let choices = PolicyChoices {
        queues: Some(queues),
        threshold: THRESHOLD,
        ..PolicyChoices::default()
    };
    simulate(&workload, policy, &choices, &SimulateOptions::default()).coflows
}

fn mean_wait_s(coflows: &[Took]) -> f64 {
    let waits = coflows.iter().map(|it| it.cct_s - it.isolated_s);
    waits.sum::<f64>() / coflows.len() as f64
}

/// The mean wait of coflows in so many classes: w = R ÷ ((1 − σ before) (1 − σ)), where σ is the load of classes up to this
/// one, and R what is left on average of the one that is served when another comes.
fn equation_6(coflows: &[Took], queues: u8) -> f64 {
    let last = coflows.iter().map(|it| it.arrival_s).fold(0.0, f64::max);
    let squares = coflows.iter().map(|it| (it.bytes / LINK).powi(2));
    let left_s = squares.sum::<f64>() / last / 2.0;
    let class = |bytes: f64| {
        let ends = (1..queues).map(|it| THRESHOLD * 10_f64.powi(i32::from(it) - 1));
        ends.filter(|end| bytes >= *end).count()
    };
    let mut loads = vec![0.0; usize::from(queues)];
    for coflow in coflows {
        loads[class(coflow.bytes)] += coflow.bytes / LINK / last;
    }
    let mut before = 0.0;
    let waits: Vec<f64> = loads
        .iter()
        .map(|load| {
            let until = before + load;
            let wait = left_s / ((1.0 - before) * (1.0 - until));
            before = until;
            wait
        })
        .collect();
    let all = coflows.iter().map(|it| waits[class(it.bytes)]);
    all.sum::<f64>() / coflows.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one queue the equation is exact for whoever serves first come, first served: Pollaczek and Khinchine's.
    #[test]
    fn one_queue_waits_as_the_equation_says_and_more_wait_ever_less_so() {
        let of = |queues| {
            let coflows = simulated(PolicyName::Aalo, queues);
            (mean_wait_s(&coflows), equation_6(&coflows, queues))
        };
        let waits: Vec<(f64, f64)> = [1, 4, 8].map(of).to_vec();
        let (simulated, predicted) = waits[0];
        assert!((simulated / predicted - 1.0).abs() < 0.1, "{waits:?}");
        let first = waits[0].0 - waits[1].0;
        let second = waits[1].0 - waits[2].0;
        assert!(
            first > waits[0].0 / 4.0 && second.abs() < first / 4.0,
            "{waits:?}"
        );
    }
}
