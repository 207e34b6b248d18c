//! The figures of section IV of Stream (Susanto, Jin, Chen, ICNP 2016): what is run for each, what it shows, and what the
//! paper prints.

use super::plan::{CoflowShape, CoflowSource, Contender, RunPlan};
use super::store::{KeptRuns, RunResult};
use brambling::coflow::simulate::{SIZES_A, SIZES_B};
use brambling::coflow::workload::Dag;

/// Pods of Table 1.
const PODS: [u32; 5] = [8, 16, 24, 32, 48];
/// Coflows of Figure 11.
const MADE: u32 = 1000;
/// First thresholds of Figure 14, in megabytes.
const THRESHOLDS: [u32; 5] = [1, 3, 10, 30, 100];
/// Queues of Figure 11.
const QUEUES: std::ops::RangeInclusive<u8> = 2..=10;
/// Coflows of Figure 10: so many of so many, and at least a few.
const FIRST: usize = 100;
const OF_ALL: usize = 526;
const FIRST_LEAST: usize = 10;

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

/// All of them.
pub(super) fn all() -> Vec<PaperFigure> {
    vec![
        figure_6(),
        figure_7(),
        figure_8(),
        figure_9(),
        figure_10(),
        figure_11(),
        figure_12(),
        figure_13(),
        figure_14(),
    ]
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

/// How many times as long another one takes as Stream, over all pods: where that is most, or, for whom Stream is behind,
/// least.
fn over_pods(results: &KeptRuns, gbps: u32, other: Contender, is_mice: bool) -> String {
    let of = |pods| {
        let run = move |plan: RunPlan| RunPlan { pods, gbps, ..plan };
        match is_mice {
            true => mice_beside_stream(results, &run, other, &SIZES_A),
            false => beside_stream(results, &run, other),
        }
    };
    let factors = PODS.into_iter().map(of);
    times(match other {
        Contender::Aalo4 => factors.fold(f64::NAN, f64::min),
        _ => factors.fold(f64::NAN, f64::max),
    })
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
            let row = |what, paper, gbps, other, is_mice| PrintedFact {
                what,
                paper,
                ours: over_pods(results, gbps, other, is_mice),
            };
            use Contender::{Aalo4, Baraat, Fair};
            vec![
                row(
                    "stream beside fair, 1 Gbit/s, all",
                    "up to 1.77 × (elsewhere 1.71 ×)",
                    1,
                    Fair,
                    false,
                ),
                row(
                    "stream beside fair, 1 Gbit/s, I",
                    "up to 5.1 ×",
                    1,
                    Fair,
                    true,
                ),
                row(
                    "stream beside fair, 10 Gbit/s, all",
                    "up to 2.1 ×",
                    10,
                    Fair,
                    false,
                ),
                row(
                    "stream beside fair, 10 Gbit/s, I",
                    "up to 1.9 ×",
                    10,
                    Fair,
                    true,
                ),
                row(
                    "stream beside baraat, 1 Gbit/s, all",
                    "up to 1.4 ×",
                    1,
                    Baraat,
                    false,
                ),
                row(
                    "stream beside baraat, 1 Gbit/s, I",
                    "up to 2.7 ×",
                    1,
                    Baraat,
                    true,
                ),
                row(
                    "stream beside baraat, 10 Gbit/s, all",
                    "up to 1.5 ×",
                    10,
                    Baraat,
                    false,
                ),
                row(
                    "stream beside baraat, 10 Gbit/s, I",
                    "up to 1.8 ×",
                    10,
                    Baraat,
                    true,
                ),
                row(
                    "stream beside aalo, 1 Gbit/s, all",
                    "0.87 ×",
                    1,
                    Aalo4,
                    false,
                ),
                row("stream beside aalo, 1 Gbit/s, I", "0.76 ×", 1, Aalo4, true),
                row(
                    "stream beside aalo, 10 Gbit/s, all",
                    "0.83 ×",
                    10,
                    Aalo4,
                    false,
                ),
                row(
                    "stream beside aalo, 10 Gbit/s, I",
                    "within 13 %",
                    10,
                    Aalo4,
                    true,
                ),
            ]
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

fn waves(waves: u8) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        shape: CoflowShape::Waves(waves),
        ..plan
    }
}

fn figure_8() -> PaperFigure {
    let plans = (2..=4).flat_map(|count| each(waves(count))).collect();
    PaperFigure {
        number: "8",
        title: "Coflows that come in waves, 8 pods, 1 Gbit/s",
        why: "A wave begins here when the one before it is done; the paper does not say when. Flows of a later wave begin in the \
              class that their coflow is in.",
        plans,
        panels: |results| {
            let of =
                |count: u8| by_category(results, format!("{count} waves"), &waves(count), &SIZES_A);
            vec![of(2), of(3), of(4)]
        },
        printed: |results| {
            let all =
                |other| (2..=4).map(move |count| beside_stream(results, &waves(count), other));
            let first = |other| {
                (2..=4)
                    .map(move |count| mice_beside_stream(results, &waves(count), other, &SIZES_A))
            };
            let (fair, baraat, aalo) = (Contender::Fair, Contender::Baraat, Contender::Aalo4);
            let row = |what, paper, factor| PrintedFact {
                what,
                paper,
                ours: times(factor),
            };
            vec![
                row(
                    "stream beside fair, all",
                    "1.7 ×",
                    all(fair).fold(f64::NAN, f64::max),
                ),
                row(
                    "stream beside fair, I",
                    "up to 2.8 ×",
                    first(fair).fold(f64::NAN, f64::max),
                ),
                row(
                    "stream beside baraat, all",
                    "up to 1.9 × (elsewhere 1.7 ×)",
                    all(baraat).fold(f64::NAN, f64::max),
                ),
                row(
                    "stream beside aalo, all",
                    "similar",
                    all(aalo).fold(f64::NAN, f64::min),
                ),
            ]
        },
    }
}

fn burst(gbps: u32) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        gbps,
        shape: CoflowShape::Burst,
        ..plan
    }
}

fn figure_9() -> PaperFigure {
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

fn figure_10() -> PaperFigure {
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

fn made(plan: RunPlan) -> RunPlan {
    RunPlan {
        source: CoflowSource::Made(MADE),
        ..plan
    }
}

fn figure_11() -> PaperFigure {
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

fn graph(dag: Dag, gbps: u32) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        gbps,
        shape: CoflowShape::Graph(dag),
        ..plan
    }
}

fn of_graph(results: &KeptRuns, dag: Dag) -> Vec<Panel> {
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

const WHY_GRAPHS: &str = "The paper's Figure 4, which has the graphs, gives no sizes; every exchange is a copy of the coflow here, \
    as the text says. Six copies make six times the load: where links cannot carry that while coflows come, queues grow until the \
    last has come.";

fn figure_12() -> PaperFigure {
    let plans = [1, 10]
        .into_iter()
        .flat_map(|gbps| each(graph(Dag::Tpcds42, gbps)))
        .collect();
    PaperFigure {
        number: "12",
        title: "Jobs of the shape of TPC-DS query 42, 8 pods",
        why: WHY_GRAPHS,
        plans,
        panels: |results| of_graph(results, Dag::Tpcds42),
        printed: |results| {
            let all = |what, paper, gbps, other| PrintedFact {
                what,
                paper,
                ours: times(beside_stream(results, &graph(Dag::Tpcds42, gbps), other)),
            };
            let first = |what, paper, gbps, other| PrintedFact {
                what,
                paper,
                ours: times(mice_beside_stream(
                    results,
                    &graph(Dag::Tpcds42, gbps),
                    other,
                    &SIZES_B,
                )),
            };
            use Contender::{Aalo4, Baraat, Fair};
            vec![
                all(
                    "stream beside fair, 1 Gbit/s, all",
                    "1.85 × (elsewhere at least 1.71 ×)",
                    1,
                    Fair,
                ),
                first("stream beside fair, 1 Gbit/s, I", "12.12 ×", 1, Fair),
                all("stream beside baraat, 1 Gbit/s, all", "1.85 ×", 1, Baraat),
                first("stream beside baraat, 1 Gbit/s, I", "7.43 ×", 1, Baraat),
                all("stream beside aalo, 1 Gbit/s, all", "comparable", 1, Aalo4),
                first("stream beside aalo, 1 Gbit/s, I", "1.79 ×", 1, Aalo4),
                PrintedFact {
                    what: "stream beside aalo, 1 Gbit/s, III",
                    paper: "down to about 0.4 ×",
                    ours: times(beside_stream_in(
                        "III",
                        results,
                        &graph(Dag::Tpcds42, 1),
                        Aalo4,
                        &SIZES_B,
                    )),
                },
                all(
                    "stream beside fair, 10 Gbit/s, all",
                    "at least 1.83 ×",
                    10,
                    Fair,
                ),
                first("stream beside fair, 10 Gbit/s, I", "6.19 ×", 10, Fair),
                first("stream beside baraat, 10 Gbit/s, I", "3.51 ×", 10, Baraat),
                first("stream beside aalo, 10 Gbit/s, I", "1.02 ×", 10, Aalo4),
            ]
        },
    }
}

fn figure_13() -> PaperFigure {
    let plans = [1, 10]
        .into_iter()
        .flat_map(|gbps| each(graph(Dag::Tao, gbps)))
        .collect();
    PaperFigure {
        number: "13",
        title: "Jobs of the shape of Facebook's Tao, 8 pods",
        why: WHY_GRAPHS,
        plans,
        panels: |results| of_graph(results, Dag::Tao),
        printed: |results| {
            let all = |what, paper, gbps, other| PrintedFact {
                what,
                paper,
                ours: times(beside_stream(results, &graph(Dag::Tao, gbps), other)),
            };
            let first = |what, paper, gbps, other| PrintedFact {
                what,
                paper,
                ours: times(mice_beside_stream(
                    results,
                    &graph(Dag::Tao, gbps),
                    other,
                    &SIZES_B,
                )),
            };
            use Contender::{Aalo4, Baraat, Fair};
            vec![
                all(
                    "stream beside fair, 1 Gbit/s, all",
                    "1.833 × (elsewhere at least 1.7 ×)",
                    1,
                    Fair,
                ),
                first("stream beside fair, 1 Gbit/s, I", "28.79 ×", 1, Fair),
                all("stream beside baraat, 1 Gbit/s, all", "1.75 ×", 1, Baraat),
                first("stream beside baraat, 1 Gbit/s, I", "16.9 ×", 1, Baraat),
                all("stream beside aalo, 1 Gbit/s, all", "comparable", 1, Aalo4),
                first("stream beside aalo, 1 Gbit/s, I", "2.81 ×", 1, Aalo4),
                all("stream beside fair, 10 Gbit/s, all", "1.9 ×", 10, Fair),
                first("stream beside fair, 10 Gbit/s, I", "15.68 ×", 10, Fair),
                all("stream beside baraat, 10 Gbit/s, all", "1.85 ×", 10, Baraat),
                first("stream beside baraat, 10 Gbit/s, I", "7.53 ×", 10, Baraat),
                all(
                    "stream beside aalo, 10 Gbit/s, all",
                    "within 2 %",
                    10,
                    Aalo4,
                ),
                first("stream beside aalo, 10 Gbit/s, I", "1.1 ×", 10, Aalo4),
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

fn figure_14() -> PaperFigure {
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
