//! Figures 11 and 14: Stream's classes, that is how many queues it has and where the first one ends.

use super::super::plan::{CoflowSource, Contender, RunPlan};
use super::graphs::graph;
use super::{Panel, PaperFigure, PrintedFact, times};
use brambling::coflow::simulate::SIZES_B;
use brambling::coflow::workload::Dag;

/// Coflows of Figure 11.
const MADE: u32 = 1000;
/// Queues of Figure 11.
const QUEUES: std::ops::RangeInclusive<u8> = 2..=10;
/// First thresholds of Figure 14, in megabytes.
const THRESHOLDS: [u32; 5] = [1, 3, 10, 30, 100];

fn made(plan: RunPlan) -> RunPlan {
    RunPlan {
        source: CoflowSource::Made(MADE),
        ..plan
    }
}

pub(super) fn figure_11() -> PaperFigure {
    let plans = QUEUES.map(|queues| made(RunPlan::of(Contender::Stream(queues))));
    let fair = made(RunPlan::of(Contender::Fair));
    PaperFigure {
        number: "11",
        title: "Stream with 2 to 10 queues, coflows that are made, 8 pods",
        why: "The paper has 2 to 7 queues and 1,000 coflows, many-to-one, drawn from the trace; ours are made, 1,000 with its tails, since the trace has 526, \
              and come so fast that links are as busy as under the trace. Sizes go up to 950 GB here: with a factor of ten between \
              thresholds, queues up to the sixth still tell coflows apart.",
        plans: plans.chain([fair]).collect(),
        panels: |results| {
            let fair = results.of(&made(RunPlan::of(Contender::Fair))).average_s();
            let of = |queues| {
                fair / results
                    .of(&made(RunPlan::of(Contender::Stream(queues))))
                    .average_s()
            };
            vec![Panel {
                title: "all".to_owned(),
                x: "queues",
                y: "× as fast as fair",
                names: QUEUES.map(|it| it.to_string()).collect(),
                series: vec![("stream".to_owned(), QUEUES.map(of).collect())],
            }]
        },
        printed: |results| {
            let of = |queues| {
                results
                    .of(&made(RunPlan::of(Contender::Stream(queues))))
                    .average_s()
            };
            vec![
                PrintedFact {
                    what: "4 queues beside 2",
                    paper: "most of the gain",
                    ours: times(of(2) / of(4)),
                },
                PrintedFact {
                    what: "7 queues beside 4",
                    paper: "hardly any: 4 suffice",
                    ours: times(of(4) / of(7)),
                },
            ]
        },
    }
}

fn threshold(threshold_mb: u32) -> RunPlan {
    let plan = graph(Dag::Tao, 1)(RunPlan::of(Contender::Stream(4)));
    RunPlan {
        threshold_mb,
        ..plan
    }
}

pub(super) fn figure_14() -> PaperFigure {
    PaperFigure {
        number: "14",
        title: "Stream's first threshold, jobs of the shape of Tao, 8 pods, 1 Gbit/s, 4 queues",
        why: "The paper prints no numbers: a larger first threshold helps some coflows of the first class, and hurts others and \
              all behind it.",
        plans: THRESHOLDS.map(threshold).to_vec(),
        panels: |results| {
            let of = |threshold_mb: u32| results.of(&threshold(threshold_mb));
            let categories = of(THRESHOLDS[0]).categories(&SIZES_B);
            let mut series: Vec<(String, Vec<f64>)> = Vec::new();
            for name in &categories {
                let first = of(THRESHOLDS[0])
                    .average_of(name, &SIZES_B)
                    .unwrap_or(f64::NAN);
                let each = THRESHOLDS
                    .map(|it| of(it).average_of(name, &SIZES_B).unwrap_or(f64::NAN) / first);
                series.push((format!("category {name}"), each.to_vec()));
            }
            let first = of(THRESHOLDS[0]).average_s();
            series.push((
                "all".to_owned(),
                THRESHOLDS.map(|it| of(it).average_s() / first).to_vec(),
            ));
            vec![Panel {
                title: "time beside that with 1 MB".to_owned(),
                x: "first threshold, MB",
                y: "× as long",
                names: THRESHOLDS.map(|it| it.to_string()).to_vec(),
                series,
            }]
        },
        printed: |results| {
            let of = |threshold_mb| results.of(&threshold(threshold_mb)).average_s();
            vec![PrintedFact {
                what: "100 MB beside 1 MB, all: as long",
                paper: "no numbers",
                ours: times(of(100) / of(1)),
            }]
        },
    }
}
