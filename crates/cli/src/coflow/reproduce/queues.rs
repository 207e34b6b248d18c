//! Equation 6 beside simulated waits: why a few queues suffice.
//!
//! Coflows of one flow each on one link, in Stream's classes. The equation takes a class as given when a coflow comes, and
//! lets nobody interrupt who is served; Stream finds the class out while it serves, and interrupts.

use super::figures::{Figure, Panel, Printed};
use super::store::Results;
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

pub(super) fn figure() -> Figure {
    Figure {
        number: "equation-6",
        title: "Equation 6 beside simulated waits",
        why: "4,000 coflows of one flow, of 1 MB to 10 GB evenly over the logarithm, on a link that is busy for 70 % of the time. \
              The equation, read as Kleinrock's for queues that are served one after the other, says where classes stop to pay; it \
              is for classes that are known on arrival and service that is not interrupted, so its waits are longer: a small coflow \
              waits for the end of what is served when it comes. A wait is what a coflow takes beyond its time alone.",
        plans: Vec::new(),
        panels,
        printed,
    }
}

fn panels(_: &Results) -> Vec<Panel> {
    let (simulated, predicted) = waits();
    vec![Panel {
        title: "mean wait by the number of queues".to_owned(),
        x: "queues",
        y: "seconds",
        names: QUEUES.map(|it| it.to_string()).collect(),
        series: vec![
            ("simulated".to_owned(), simulated),
            ("equation 6".to_owned(), predicted),
        ],
    }]
}

fn printed(_: &Results) -> Vec<Printed> {
    let (simulated, _) = waits();
    let gain = |from: usize, to: usize| format!("{:.2} ×", simulated[from - 1] / simulated[to - 1]);
    vec![
        Printed {
            what: "4 queues beside 1: how many times shorter a wait is",
            paper: "most of the gain",
            ours: gain(1, 4),
        },
        Printed {
            what: "8 queues beside 4",
            paper: "diminishing returns",
            ours: gain(4, 8),
        },
    ]
}

/// Mean waits in seconds, by the number of queues: simulated, and as the equation has them.
fn waits() -> (Vec<f64>, Vec<f64>) {
    let workload = Workload::on_one_link(COFLOWS, LOAD, SEED);
    let of = |queues| {
        let choices = PolicyChoices {
            queues: Some(queues),
            threshold: THRESHOLD,
            ..PolicyChoices::default()
        };
        let options = SimulateOptions::default();
        let coflows = simulate(&workload, PolicyName::Stream, &choices, &options).coflows;
        let count = coflows.len() as f64;
        let waited = coflows
            .iter()
            .map(|it| it.cct_s - it.isolated_s)
            .sum::<f64>()
            / count;
        (waited, equation_6(&coflows, queues))
    };
    QUEUES.map(of).unzip()
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

    #[test]
    fn more_queues_never_pay_less_but_ever_less() {
        let (simulated, predicted) = waits();
        for waits in [simulated, predicted] {
            assert!(waits[3] < waits[0] / 2.0, "{waits:?}");
            let (first, second) = (waits[0] - waits[3], waits[3] - waits[7]);
            assert!(second < first / 4.0, "{waits:?}");
        }
    }
}
