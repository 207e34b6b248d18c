//! Figures 12 and 13: jobs that are graphs of coflows.

use super::super::plan::Contender::{Aalo4, Baraat, Fair};
use super::super::plan::{CoflowShape, RunPlan};
use super::super::store::KeptRuns;
use super::{FactorRow, Panel, PaperFigure, PrintedFact, all_coflows, by_category, each, mice};
use brambling::coflow::simulate::SIZES_B;
use brambling::coflow::workload::Dag;

const WHY: &str = "The paper's Figure 4, which has the graphs, gives no sizes; every exchange is a copy of the coflow here, \
    as the text says. Six copies make six times the load: where links cannot carry that while coflows come, queues grow until the \
    last has come.";

/// What the paper prints of Figure 12.
const PRINTED_12: &[FactorRow] = &[
    all_coflows(
        "stream beside fair, 1 Gbit/s, all",
        "1.85 × (elsewhere at least 1.71 ×)",
        1,
        Fair,
    ),
    mice("stream beside fair, 1 Gbit/s, I", "12.12 ×", 1, Fair),
    all_coflows("stream beside baraat, 1 Gbit/s, all", "1.85 ×", 1, Baraat),
    mice("stream beside baraat, 1 Gbit/s, I", "7.43 ×", 1, Baraat),
    all_coflows("stream beside aalo, 1 Gbit/s, all", "comparable", 1, Aalo4),
    mice("stream beside aalo, 1 Gbit/s, I", "1.79 ×", 1, Aalo4),
    FactorRow {
        what: "stream beside aalo, 1 Gbit/s, III",
        paper: "down to about 0.4 ×",
        gbps: 1,
        other: Aalo4,
        category: Some("III"),
    },
    all_coflows(
        "stream beside fair, 10 Gbit/s, all",
        "at least 1.83 ×",
        10,
        Fair,
    ),
    mice("stream beside fair, 10 Gbit/s, I", "6.19 ×", 10, Fair),
    mice("stream beside baraat, 10 Gbit/s, I", "3.51 ×", 10, Baraat),
    mice("stream beside aalo, 10 Gbit/s, I", "1.02 ×", 10, Aalo4),
];

/// What the paper prints of Figure 13.
const PRINTED_13: &[FactorRow] = &[
    all_coflows(
        "stream beside fair, 1 Gbit/s, all",
        "1.833 × (elsewhere at least 1.7 ×)",
        1,
        Fair,
    ),
    mice("stream beside fair, 1 Gbit/s, I", "28.79 ×", 1, Fair),
    all_coflows("stream beside baraat, 1 Gbit/s, all", "1.75 ×", 1, Baraat),
    mice("stream beside baraat, 1 Gbit/s, I", "16.9 ×", 1, Baraat),
    all_coflows("stream beside aalo, 1 Gbit/s, all", "comparable", 1, Aalo4),
    mice("stream beside aalo, 1 Gbit/s, I", "2.81 ×", 1, Aalo4),
    all_coflows("stream beside fair, 10 Gbit/s, all", "1.9 ×", 10, Fair),
    mice("stream beside fair, 10 Gbit/s, I", "15.68 ×", 10, Fair),
    all_coflows("stream beside baraat, 10 Gbit/s, all", "1.85 ×", 10, Baraat),
    mice("stream beside baraat, 10 Gbit/s, I", "7.53 ×", 10, Baraat),
    all_coflows(
        "stream beside aalo, 10 Gbit/s, all",
        "within 2 %",
        10,
        Aalo4,
    ),
    mice("stream beside aalo, 10 Gbit/s, I", "1.1 ×", 10, Aalo4),
];

pub(super) fn graph(dag: Dag, gbps: u32) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        gbps,
        shape: CoflowShape::Graph(dag),
        ..plan
    }
}

fn plans(dag: Dag) -> Vec<RunPlan> {
    [1, 10]
        .into_iter()
        .flat_map(|gbps| each(graph(dag, gbps)))
        .collect()
}

fn panels(results: &KeptRuns, dag: Dag) -> Vec<Panel> {
    let of = |gbps: u32| {
        by_category(
            results,
            format!("{gbps} Gbit/s"),
            &graph(dag, gbps),
            &SIZES_B,
        )
    };
    vec![of(1), of(10)]
}

fn printed(results: &KeptRuns, dag: Dag, rows: &[FactorRow]) -> Vec<PrintedFact> {
    let fact = |row: &FactorRow| row.fact(row.factor(results, &graph(dag, row.gbps), &SIZES_B));
    rows.iter().map(fact).collect()
}

pub(super) fn figure_12() -> PaperFigure {
    PaperFigure {
        number: "12",
        title: "Jobs of the shape of TPC-DS query 42, 8 pods",
        why: WHY,
        plans: plans(Dag::Tpcds42),
        panels: |results| panels(results, Dag::Tpcds42),
        printed: |results| printed(results, Dag::Tpcds42, PRINTED_12),
    }
}

pub(super) fn figure_13() -> PaperFigure {
    PaperFigure {
        number: "13",
        title: "Jobs of the shape of Facebook's Tao, 8 pods",
        why: WHY,
        plans: plans(Dag::Tao),
        panels: |results| panels(results, Dag::Tao),
        printed: |results| printed(results, Dag::Tao, PRINTED_13),
    }
}
