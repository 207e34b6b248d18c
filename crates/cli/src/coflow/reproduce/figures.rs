//! The figures of section IV of Stream (Susanto, Jin, Chen, ICNP 2016): what is run for each, what it shows, and what the
//! paper prints.
//!
//! Figures 6 and 7 are here, and how contenders are compared in all of them; [`waves`], [`bursts`], [`graphs`] and
//! [`classes`] have the others.

mod bursts;
mod classes;
mod graphs;
mod waves;

use super::plan::Contender::{self, Aalo4, Baraat, Fair};
use super::plan::RunPlan;
use super::store::{KeptRuns, RunResult};
use brambling::coflow::simulate::SIZES_A;

/// Pods of Table 1.
const PODS: [u32; 5] = [8, 16, 24, 32, 48];

/// Points over names, or over numbers that are names.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) names: Vec<String>,
    pub(super) series: Vec<(String, Vec<f64>)>,
}

/// What the paper prints, and what we get.
pub(super) struct PrintedFact {
    pub(super) what: &'static str,
    pub(super) paper: &'static str,
    pub(super) ours: String,
}

/// A figure.
pub(super) struct PaperFigure {
    pub(super) number: &'static str,
    pub(super) title: &'static str,
    pub(super) why: &'static str,
    pub(super) plans: Vec<RunPlan>,
    pub(super) panels: fn(&KeptRuns) -> Vec<Panel>,
    pub(super) printed: fn(&KeptRuns) -> Vec<PrintedFact>,
}

/// All of them, in the order of the paper.
pub(super) fn all() -> Vec<PaperFigure> {
    vec![
        figure_6(),
        figure_7(),
        waves::figure_8(),
        bursts::figure_9(),
        bursts::figure_10(),
        classes::figure_11(),
        graphs::figure_12(),
        graphs::figure_13(),
        classes::figure_14(),
    ]
}

/// A factor that the paper prints: how many times as fast Stream is as another one.
struct FactorRow {
    what: &'static str,
    paper: &'static str,
    gbps: u32,
    other: Contender,
    /// Whose time is compared; none: that of all coflows.
    category: Option<&'static str>,
}

impl FactorRow {
    /// Ours, of one run.
    fn factor(
        &self,
        results: &KeptRuns,
        run: &dyn Fn(RunPlan) -> RunPlan,
        sizes: &[f64; 4],
    ) -> f64 {
        match self.category {
            None => beside_stream(results, run, self.other),
            Some(category) => beside_stream_in(category, results, run, self.other, sizes),
        }
    }

    fn fact(&self, ours: f64) -> PrintedFact {
        PrintedFact {
            what: self.what,
            paper: self.paper,
            ours: times(ours),
        }
    }
}

/// A row of all coflows.
const fn all_coflows(
    what: &'static str,
    paper: &'static str,
    gbps: u32,
    other: Contender,
) -> FactorRow {
    FactorRow {
        what,
        paper,
        gbps,
        other,
        category: None,
    }
}

/// A row of the smallest ones, category I.
const fn mice(what: &'static str, paper: &'static str, gbps: u32, other: Contender) -> FactorRow {
    FactorRow {
        what,
        paper,
        gbps,
        other,
        category: Some("I"),
    }
}

/// A run of each contender, each changed alike.
fn each(change: impl Fn(RunPlan) -> RunPlan) -> Vec<RunPlan> {
    let contenders = Contender::MOST.into_iter();
    contenders.map(|it| change(RunPlan::of(it))).collect()
}

/// How many times as long fair sharing takes on average as each contender, over some runs.
fn factors(
    results: &KeptRuns,
    runs: &[&dyn Fn(RunPlan) -> RunPlan],
    of: &dyn Fn(&RunResult) -> f64,
) -> Vec<(String, Vec<f64>)> {
    let time =
        |contender, run: &&dyn Fn(RunPlan) -> RunPlan| of(results.of(&run(RunPlan::of(contender))));
    let contenders = Contender::MOST.into_iter();
    let series = contenders
        .filter(|it| *it != Contender::Fair)
        .map(|contender| {
            let factors = runs
                .iter()
                .map(|run| time(Contender::Fair, run) / time(contender, run));
            (contender.name(), factors.collect())
        });
    series.collect()
}

/// The same by category: of one run.
fn by_category(
    results: &KeptRuns,
    title: String,
    run: &dyn Fn(RunPlan) -> RunPlan,
    sizes: &[f64; 4],
) -> Panel {
    let fair = results.of(&run(RunPlan::of(Contender::Fair)));
    let categories = fair.categories(sizes);
    let contenders = Contender::MOST.into_iter();
    let series = contenders
        .filter(|it| *it != Contender::Fair)
        .map(|contender| {
            let other = results.of(&run(RunPlan::of(contender)));
            let factor = |result: &RunResult| {
                let of = categories
                    .iter()
                    .map(|name| result.average_of(name, sizes).unwrap_or(f64::NAN));
                of.chain([result.average_s()]).collect::<Vec<f64>>()
            };
            let factors = factor(fair).into_iter().zip(factor(other));
            (
                contender.name(),
                factors.map(|(fair, other)| fair / other).collect(),
            )
        });
    let series = series.collect();
    let names = categories.iter().copied().chain(["all"]);
    Panel {
        title,
        x: "category of Table 3",
        y: "× as fast as fair",
        names: names.map(str::to_owned).collect(),
        series,
    }
}

/// How many times as long a contender takes as Stream with four queues.
fn beside_stream(results: &KeptRuns, run: &dyn Fn(RunPlan) -> RunPlan, other: Contender) -> f64 {
    let of = |contender| results.of(&run(RunPlan::of(contender))).average_s();
    of(other) / of(Contender::Stream(4))
}

/// The same in a category.
fn beside_stream_in(
    category: &str,
    results: &KeptRuns,
    run: &dyn Fn(RunPlan) -> RunPlan,
    other: Contender,
    sizes: &[f64; 4],
) -> f64 {
    let of = |contender| {
        let result = results.of(&run(RunPlan::of(contender)));
        result.average_of(category, sizes).unwrap_or(f64::NAN)
    };
    of(other) / of(Contender::Stream(4))
}

fn mice_beside_stream(
    results: &KeptRuns,
    run: &dyn Fn(RunPlan) -> RunPlan,
    other: Contender,
    sizes: &[f64; 4],
) -> f64 {
    beside_stream_in("I", results, run, other, sizes)
}

fn times(factor: f64) -> String {
    match factor.is_finite() {
        true => format!("{factor:.2} ×"),
        false => "no coflow of it".to_owned(),
    }
}

/// What the paper prints of Figure 6.
const PRINTED_6: &[FactorRow] = &[
    all_coflows(
        "stream beside fair, 1 Gbit/s, all",
        "up to 1.77 × (elsewhere 1.71 ×)",
        1,
        Fair,
    ),
    mice("stream beside fair, 1 Gbit/s, I", "up to 5.1 ×", 1, Fair),
    all_coflows(
        "stream beside fair, 10 Gbit/s, all",
        "up to 2.1 ×",
        10,
        Fair,
    ),
    mice("stream beside fair, 10 Gbit/s, I", "up to 1.9 ×", 10, Fair),
    all_coflows(
        "stream beside baraat, 1 Gbit/s, all",
        "up to 1.4 ×",
        1,
        Baraat,
    ),
    mice(
        "stream beside baraat, 1 Gbit/s, I",
        "up to 2.7 ×",
        1,
        Baraat,
    ),
    all_coflows(
        "stream beside baraat, 10 Gbit/s, all",
        "up to 1.5 ×",
        10,
        Baraat,
    ),
    mice(
        "stream beside baraat, 10 Gbit/s, I",
        "up to 1.8 ×",
        10,
        Baraat,
    ),
    all_coflows("stream beside aalo, 1 Gbit/s, all", "0.87 ×", 1, Aalo4),
    mice("stream beside aalo, 1 Gbit/s, I", "0.76 ×", 1, Aalo4),
    all_coflows("stream beside aalo, 10 Gbit/s, all", "0.83 ×", 10, Aalo4),
    mice("stream beside aalo, 10 Gbit/s, I", "within 13 %", 10, Aalo4),
];

/// How many times as long another one takes as Stream, over all pods: where that is most, or, for whom Stream is behind,
/// least.
fn over_pods(results: &KeptRuns, row: &FactorRow) -> f64 {
    let gbps = row.gbps;
    let of = |pods| row.factor(results, &|plan| RunPlan { pods, gbps, ..plan }, &SIZES_A);
    let factors = PODS.into_iter().map(of);
    match row.other {
        Contender::Aalo4 => factors.fold(f64::NAN, f64::min),
        _ => factors.fold(f64::NAN, f64::max),
    }
}

fn figure_6() -> PaperFigure {
    let mut plans = Vec::new();
    for pods in PODS {
        for gbps in [1, 10] {
            plans.extend(each(|plan| RunPlan { pods, gbps, ..plan }));
        }
    }
    PaperFigure {
        number: "6",
        title: "Fat trees of 8 to 48 pods",
        why: "The paper merges or cuts the trace in ways that it does not tell: it calls it many-to-one, where 192 of 526 coflows \
              have several reducers. With them as they are, receivers that relay demote wide coflows sooner than the paper's, and \
              Aalo with four queues serves all above 1 GB first come, first served. 8 pods have 128 hosts for the trace's 150 ports, \
              so some hosts have two of them; from 16 pods on each has its own, and only paths that collide tell fabrics apart.",
        plans,
        panels: |results| {
            let mut panels = Vec::new();
            for gbps in [1, 10] {
                let runs: Vec<Box<dyn Fn(RunPlan) -> RunPlan>> = PODS
                    .into_iter()
                    .map(|pods| {
                        Box::new(move |plan: RunPlan| RunPlan { pods, gbps, ..plan })
                            as Box<dyn Fn(RunPlan) -> RunPlan>
                    })
                    .collect();
                let runs: Vec<&dyn Fn(RunPlan) -> RunPlan> = runs.iter().map(|it| &**it).collect();
                let names = || PODS.iter().map(u32::to_string).collect();
                panels.push(Panel {
                    title: format!("{gbps} Gbit/s, category I"),
                    x: "pods",
                    y: "× as fast as fair",
                    names: names(),
                    series: factors(results, &runs, &|it| {
                        it.average_of("I", &SIZES_A).unwrap_or(f64::NAN)
                    }),
                });
                panels.push(Panel {
                    title: format!("{gbps} Gbit/s, all"),
                    x: "pods",
                    y: "× as fast as fair",
                    names: names(),
                    series: factors(results, &runs, &RunResult::average_s),
                });
            }
            panels
        },
        printed: |results| {
            let fact = |row: &FactorRow| row.fact(over_pods(results, row));
            PRINTED_6.iter().map(fact).collect()
        },
    }
}

fn figure_7() -> PaperFigure {
    let mut plans = each(|plan| plan);
    plans.extend(each(|plan| RunPlan { gbps: 10, ..plan }));
    PaperFigure {
        number: "7",
        title: "By category, 8 pods",
        why: "As in Figure 6. Small coflows gain most from any order by size; those of the last category pay for it.",
        plans,
        panels: |results| {
            let of = |gbps: u32| {
                let run = move |plan: RunPlan| RunPlan { gbps, ..plan };
                by_category(results, format!("{gbps} Gbit/s"), &run, &SIZES_A)
            };
            vec![of(1), of(10)]
        },
        printed: |results| {
            let row = |what, paper, other| PrintedFact {
                what,
                paper,
                ours: times(mice_beside_stream(results, &|plan| plan, other, &SIZES_A)),
            };
            vec![
                row(
                    "stream beside fair, 1 Gbit/s, I",
                    "up to 5 ×",
                    Contender::Fair,
                ),
                row(
                    "stream beside baraat, 1 Gbit/s, I",
                    "up to 3 ×",
                    Contender::Baraat,
                ),
                PrintedFact {
                    what: "stream beside baraat, 1 Gbit/s, II",
                    paper: "up to 3 ×",
                    ours: times(beside_stream_in(
                        "II",
                        results,
                        &|plan| plan,
                        Contender::Baraat,
                        &SIZES_A,
                    )),
                },
                row(
                    "stream beside aalo, 1 Gbit/s, I",
                    "slightly below 1 ×",
                    Contender::Aalo4,
                ),
                PrintedFact {
                    what: "stream beside fair, 10 Gbit/s, all",
                    paper: "better in all categories",
                    ours: times(beside_stream(
                        results,
                        &|plan| RunPlan { gbps: 10, ..plan },
                        Contender::Fair,
                    )),
                },
                PrintedFact {
                    what: "stream beside aalo, 10 Gbit/s, all",
                    paper: "comparable",
                    ours: times(beside_stream(
                        results,
                        &|plan| RunPlan { gbps: 10, ..plan },
                        Contender::Aalo4,
                    )),
                },
            ]
        },
    }
}
