//! Figures 9 and 10: all coflows at one instant.

use super::super::plan::{CoflowShape, Contender, RunPlan};
use super::super::store::KeptRuns;
use super::{
    Panel, PaperFigure, PrintedFact, beside_stream, beside_stream_in, by_category, each, times,
};
use brambling::coflow::simulate::SIZES_A;

/// Coflows of Figure 10: so many of so many, and at least a few.
const FIRST: usize = 100;
const OF_ALL: usize = 526;
const FIRST_LEAST: usize = 10;

fn burst(gbps: u32) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        gbps,
        shape: CoflowShape::Burst,
        ..plan
    }
}

pub(super) fn figure_9() -> PaperFigure {
    let plans = [1, 10]
        .into_iter()
        .flat_map(|gbps| each(burst(gbps)))
        .collect();
    PaperFigure {
        number: "9",
        title: "All coflows at one instant, 8 pods",
        why: "All that is large stays until the end under any policy; orders by size have the rest done early, and gain the more the \
              more coflows wait together. Baraat keeps the order in which coflows are numbered, whatever their size.",
        plans,
        panels: |results| {
            let of =
                |gbps: u32| by_category(results, format!("{gbps} Gbit/s"), &burst(gbps), &SIZES_A);
            vec![of(1), of(10)]
        },
        printed: |results| {
            let row = |what, paper, gbps, other| PrintedFact {
                what,
                paper,
                ours: times(beside_stream(results, &burst(gbps), other)),
            };
            use Contender::{Aalo4, Baraat, Fair};
            vec![
                row("stream beside fair, 1 Gbit/s", "at least 1.9 ×", 1, Fair),
                row(
                    "stream beside baraat, 1 Gbit/s",
                    "at least 1.9 ×",
                    1,
                    Baraat,
                ),
                PrintedFact {
                    what: "stream beside fair, 1 Gbit/s, II",
                    paper: "up to 4 ×",
                    ours: times(beside_stream_in("II", results, &burst(1), Fair, &SIZES_A)),
                },
                PrintedFact {
                    what: "stream beside baraat, 1 Gbit/s, II",
                    paper: "up to 4 ×",
                    ours: times(beside_stream_in("II", results, &burst(1), Baraat, &SIZES_A)),
                },
                row("stream beside aalo, 1 Gbit/s", "similar", 1, Aalo4),
                row("stream beside fair, 10 Gbit/s", "1.7 ×", 10, Fair),
                row("stream beside baraat, 10 Gbit/s", "1.6 ×", 10, Baraat),
                row("stream beside aalo, 10 Gbit/s", "within 7 %", 10, Aalo4),
            ]
        },
    }
}

/// When the first fifth of the coflows of a burst were done: a hundred of the trace's 526.
fn first_ends_s(results: &KeptRuns, gbps: u32, contender: Contender) -> Vec<f64> {
    let mut ends = results.of(&burst(gbps)(RunPlan::of(contender))).ends_s();
    ends.truncate((ends.len() * FIRST).div_ceil(OF_ALL).max(FIRST_LEAST));
    ends
}

pub(super) fn figure_10() -> PaperFigure {
    PaperFigure {
        number: "10",
        title: "The first coflows of a burst that are done, a fifth of all, 8 pods",
        why: "The paper plots a hundred coflows, without numbers. Stream's first ones are done at nearly the same time, since all that \
              is small shares the first class; Baraat's come one after the other.",
        plans: [1, 10]
            .into_iter()
            .flat_map(|gbps| each(burst(gbps)))
            .collect(),
        panels: |results| {
            let panel = |gbps| {
                let contenders = Contender::MOST.into_iter();
                let series = contenders.map(|it| (it.name(), first_ends_s(results, gbps, it)));
                let series: Vec<(String, Vec<f64>)> = series.collect();
                let count = series.iter().map(|it| it.1.len()).max().unwrap_or(0);
                Panel {
                    title: format!("when they were done, {gbps} Gbit/s"),
                    x: "coflow, the first that is done first",
                    y: "seconds",
                    names: (1..=count).map(|it| it.to_string()).collect(),
                    series,
                }
            };
            vec![panel(1), panel(10)]
        },
        printed: |results| {
            let middle = |gbps, contender| {
                let ends = first_ends_s(results, gbps, contender);
                ends.get(ends.len() / 2).copied().unwrap_or(f64::NAN)
            };
            let row = |what, gbps| PrintedFact {
                what,
                paper: "baraat's rise in a line, stream's are flat",
                ours: times(middle(gbps, Contender::Baraat) / middle(gbps, Contender::Stream(4))),
            };
            vec![
                row("baraat beside stream, the middle one, 1 Gbit/s", 1),
                row("baraat beside stream, the middle one, 10 Gbit/s", 10),
            ]
        },
    }
}
