//! The figures of section IV of Stream (Susanto, Jin, Chen, ICNP 2016): what is run for each, what it shows, and what the
//! paper prints.

use super::plan::{Contender, RunPlan, Shape, Source};
use super::store::{Results, RunResult};
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
/// Coflows of Figure 10.
const FIRST: usize = 100;

/// Points over names, or over numbers that are names.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) names: Vec<String>,
    pub(super) series: Vec<(String, Vec<f64>)>,
}

/// What the paper prints, and what we get.
pub(super) struct Printed {
    pub(super) what: &'static str,
    pub(super) paper: &'static str,
    pub(super) ours: String,
}

/// A figure.
pub(super) struct Figure {
    pub(super) number: &'static str,
    pub(super) title: &'static str,
    pub(super) why: &'static str,
    pub(super) plans: Vec<RunPlan>,
    pub(super) panels: fn(&Results) -> Vec<Panel>,
    pub(super) printed: fn(&Results) -> Vec<Printed>,
}

/// All of them.
pub(super) fn all() -> Vec<Figure> {
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
    results: &Results,
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
    results: &Results,
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
fn beside_stream(results: &Results, run: &dyn Fn(RunPlan) -> RunPlan, other: Contender) -> f64 {
    let of = |contender| results.of(&run(RunPlan::of(contender))).average_s();
    of(other) / of(Contender::Stream(4))
}

/// The same in the first category.
fn mice_beside_stream(
    results: &Results,
    run: &dyn Fn(RunPlan) -> RunPlan,
    other: Contender,
    sizes: &[f64; 4],
) -> f64 {
    let of = |contender| {
        let result = results.of(&run(RunPlan::of(contender)));
        result.average_of("I", sizes).unwrap_or(f64::NAN)
    };
    of(other) / of(Contender::Stream(4))
}

fn times(factor: f64) -> String {
    format!("{factor:.2} ×")
}

/// A figure over pods, and what is printed of its largest.
fn largest(results: &Results, gbps: u32, other: Contender, is_mice: bool) -> String {
    let of = |pods| {
        let run = move |plan: RunPlan| RunPlan { pods, gbps, ..plan };
        match is_mice {
            true => mice_beside_stream(results, &run, other, &SIZES_A),
            false => beside_stream(results, &run, other),
        }
    };
    times(PODS.into_iter().map(of).fold(f64::NAN, f64::max))
}

fn figure_6() -> Figure {
    let mut plans = Vec::new();
    for pods in PODS {
        for gbps in [1, 10] {
            plans.extend(each(|plan| RunPlan { pods, gbps, ..plan }));
        }
    }
    Figure {
        number: "6",
        title: "Fat trees of 8 to 48 pods",
        why: "The paper merges or cuts the trace in ways that it does not tell: it calls it many-to-one, where 192 of 526 coflows \
              have several reducers. With them as they are, receivers that relay demote wide coflows sooner than the paper's, and \
              Aalo with four queues serves all above 1 GB first come, first served.",
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
            let row = |what, paper, gbps, other, is_mice| Printed {
                what,
                paper,
                ours: largest(results, gbps, other, is_mice),
            };
            use Contender::{Aalo4, Baraat, Fair};
            vec![
                row(
                    "stream beside fair, 1 Gbit/s, all",
                    "up to 1.77 ×",
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
            ]
        },
    }
}

fn figure_7() -> Figure {
    let mut plans = each(|plan| plan);
    plans.extend(each(|plan| RunPlan { gbps: 10, ..plan }));
    Figure {
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
            let row = |what, paper, other| Printed {
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
                row(
                    "stream beside aalo, 1 Gbit/s, I",
                    "slightly below 1 ×",
                    Contender::Aalo4,
                ),
            ]
        },
    }
}

fn waves(waves: u8) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        shape: Shape::Waves(waves),
        ..plan
    }
}

fn figure_8() -> Figure {
    let plans = (2..=4).flat_map(|count| each(waves(count))).collect();
    Figure {
        number: "8",
        title: "Coflows that come in waves, 8 pods, 1 Gbit/s",
        why: "A wave begins here when the one before it is done; the paper does not say when. Flows of a later wave begin in the \
              class that their coflow is in.",
        plans,
        panels: |results| {
            let (two, three, four) = (waves(2), waves(3), waves(4));
            let panel = |title: &str, of: &dyn Fn(&RunResult) -> f64| Panel {
                title: title.to_owned(),
                x: "waves",
                y: "× as fast as fair",
                names: ["2", "3", "4"].map(str::to_owned).to_vec(),
                series: factors(results, &[&two, &three, &four], of),
            };
            vec![
                panel("category I", &|it| {
                    it.average_of("I", &SIZES_A).unwrap_or(f64::NAN)
                }),
                panel("all", &RunResult::average_s),
            ]
        },
        printed: |results| {
            let most = |other| {
                let of = |count| beside_stream(results, &waves(count), other);
                times((2..=4).map(of).fold(f64::NAN, f64::max))
            };
            vec![
                Printed {
                    what: "stream beside fair, all",
                    paper: "1.7 ×",
                    ours: most(Contender::Fair),
                },
                Printed {
                    what: "stream beside baraat, all",
                    paper: "up to 1.9 × (elsewhere 1.7 ×)",
                    ours: most(Contender::Baraat),
                },
                Printed {
                    what: "stream beside aalo, all",
                    paper: "similar",
                    ours: most(Contender::Aalo4),
                },
            ]
        },
    }
}

fn burst(gbps: u32) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        gbps,
        shape: Shape::Burst,
        ..plan
    }
}

fn figure_9() -> Figure {
    let plans = [1, 10]
        .into_iter()
        .flat_map(|gbps| each(burst(gbps)))
        .collect();
    Figure {
        number: "9",
        title: "All coflows at one instant, 8 pods",
        why: "How long a burst takes is the same under any policy that leaves no link idle; orders by size serve most coflows early.",
        plans,
        panels: |results| {
            let of =
                |gbps: u32| by_category(results, format!("{gbps} Gbit/s"), &burst(gbps), &SIZES_A);
            vec![of(1), of(10)]
        },
        printed: |results| {
            let row = |what, paper, gbps, other| Printed {
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
                row("stream beside aalo, 1 Gbit/s", "similar", 1, Aalo4),
                row("stream beside fair, 10 Gbit/s", "1.7 ×", 10, Fair),
                row("stream beside baraat, 10 Gbit/s", "1.6 ×", 10, Baraat),
                row("stream beside aalo, 10 Gbit/s", "within 7 %", 10, Aalo4),
            ]
        },
    }
}

fn figure_10() -> Figure {
    Figure {
        number: "10",
        title: "The first hundred coflows that are done, of a burst, 8 pods, 1 Gbit/s",
        why: "The paper plots times without numbers. Stream's first ones are done at nearly the same time, since all that is \
              small shares the first class; Baraat's come one after the other.",
        plans: each(burst(1)),
        panels: |results| {
            let series = Contender::MOST.into_iter().map(|contender| {
                let ends = results.of(&burst(1)(RunPlan::of(contender))).ends_s();
                (contender.name(), ends.into_iter().take(FIRST).collect())
            });
            let series: Vec<(String, Vec<f64>)> = series.collect();
            let count = series.iter().map(|it| it.1.len()).max().unwrap_or(0);
            vec![Panel {
                title: "when they were done".to_owned(),
                x: "coflow, the first that is done first",
                y: "seconds",
                names: (1..=count).map(|it| it.to_string()).collect(),
                series,
            }]
        },
        printed: |results| {
            let ends = |contender| results.of(&burst(1)(RunPlan::of(contender))).ends_s();
            let middle = |contender| {
                let ends = ends(contender);
                ends.get(FIRST.min(ends.len()) / 2)
                    .copied()
                    .unwrap_or(f64::NAN)
            };
            let ratio = middle(Contender::Baraat) / middle(Contender::Stream(4));
            vec![Printed {
                what: "baraat beside stream, the middle one of them",
                paper: "baraat's rise in a line, stream's are flat",
                ours: times(ratio),
            }]
        },
    }
}

fn made(plan: RunPlan) -> RunPlan {
    RunPlan {
        source: Source::Made(MADE),
        ..plan
    }
}

fn figure_11() -> Figure {
    let plans = QUEUES.map(|queues| made(RunPlan::of(Contender::Stream(queues))));
    let fair = made(RunPlan::of(Contender::Fair));
    Figure {
        number: "11",
        title: "Stream with 2 to 10 queues, 1,000 coflows that are made, 8 pods",
        why: "The paper's coflows are many-to-one, drawn from the trace; ours are made, with its tails, since the trace has 526. \
              Sizes go up to 950 GB here: with a factor of ten between thresholds, queues up to the sixth still tell coflows apart.",
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
                Printed {
                    what: "4 queues beside 2",
                    paper: "most of the gain",
                    ours: times(of(2) / of(4)),
                },
                Printed {
                    what: "8 queues beside 4",
                    paper: "hardly any: 4 suffice",
                    ours: times(of(4) / of(8)),
                },
            ]
        },
    }
}

fn graph(dag: Dag, gbps: u32) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        gbps,
        shape: Shape::Graph(dag),
        ..plan
    }
}

fn of_graph(results: &Results, dag: Dag) -> Vec<Panel> {
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
    as the text says. Six copies make six times the load, more than the links carry while coflows come, so queues grow until \
    the last has come.";

fn figure_12() -> Figure {
    let plans = [1, 10]
        .into_iter()
        .flat_map(|gbps| each(graph(Dag::Tpcds42, gbps)))
        .collect();
    Figure {
        number: "12",
        title: "Jobs of the shape of TPC-DS query 42, 8 pods",
        why: WHY_GRAPHS,
        plans,
        panels: |results| of_graph(results, Dag::Tpcds42),
        printed: |results| {
            let all = |what, paper, gbps, other| Printed {
                what,
                paper,
                ours: times(beside_stream(results, &graph(Dag::Tpcds42, gbps), other)),
            };
            let first = |what, paper, gbps, other| Printed {
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
                all("stream beside fair, 1 Gbit/s, all", "1.85 ×", 1, Fair),
                first("stream beside fair, 1 Gbit/s, I", "12.12 ×", 1, Fair),
                all("stream beside baraat, 1 Gbit/s, all", "1.85 ×", 1, Baraat),
                first("stream beside baraat, 1 Gbit/s, I", "7.43 ×", 1, Baraat),
                first("stream beside aalo, 1 Gbit/s, I", "1.79 ×", 1, Aalo4),
                first("stream beside fair, 10 Gbit/s, I", "6.19 ×", 10, Fair),
                first("stream beside baraat, 10 Gbit/s, I", "3.51 ×", 10, Baraat),
                first("stream beside aalo, 10 Gbit/s, I", "1.02 ×", 10, Aalo4),
            ]
        },
    }
}

fn figure_13() -> Figure {
    let plans = [1, 10]
        .into_iter()
        .flat_map(|gbps| each(graph(Dag::Tao, gbps)))
        .collect();
    Figure {
        number: "13",
        title: "Jobs of the shape of Facebook's Tao, 8 pods",
        why: WHY_GRAPHS,
        plans,
        panels: |results| of_graph(results, Dag::Tao),
        printed: |results| {
            let all = |what, paper, gbps, other| Printed {
                what,
                paper,
                ours: times(beside_stream(results, &graph(Dag::Tao, gbps), other)),
            };
            let first = |what, paper, gbps, other| Printed {
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
                all("stream beside fair, 1 Gbit/s, all", "1.833 ×", 1, Fair),
                first("stream beside fair, 1 Gbit/s, I", "28.79 ×", 1, Fair),
                all("stream beside baraat, 1 Gbit/s, all", "1.75 ×", 1, Baraat),
                first("stream beside baraat, 1 Gbit/s, I", "16.9 ×", 1, Baraat),
                first("stream beside aalo, 1 Gbit/s, I", "2.81 ×", 1, Aalo4),
                all("stream beside fair, 10 Gbit/s, all", "1.9 ×", 10, Fair),
                first("stream beside fair, 10 Gbit/s, I", "15.68 ×", 10, Fair),
                all("stream beside baraat, 10 Gbit/s, all", "1.85 ×", 10, Baraat),
                first("stream beside baraat, 10 Gbit/s, I", "7.53 ×", 10, Baraat),
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

fn figure_14() -> Figure {
    Figure {
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
        printed: |_| Vec::new(),
    }
}
