//! `brambling coflow reproduce`: the figures of Stream's section IV, and ours beside them.
//!
//! What is run for a figure, and what it shows, is in [`figures`]; [`store`] keeps what runs came to, so a command that was
//! stopped goes on where it was.

mod figures;
mod page;
mod plan;
mod plot;
mod queues;
mod store;

use super::options::trace;
use super::runs::{RunsCaller, SimulationRun, run_all};
use crate::{FAILED, Host, INTERRUPTED, OK, Streams, USAGE};
use brambling::coflow::simulate::{Outcome, simulate_watched};
use brambling::coflow::workload::{GenerateOptions, Tails, Workload};
use figures::PaperFigure;
use page::{DrawnFigure, Preface};
use plan::{FigureSource, LOAD_OF_MADE, RunPlan};
use std::io;
use std::path::{Path, PathBuf};
use store::KeptRuns;

pub(super) const HELP: &str = "\
Examples:
  brambling coflow reproduce --trace FB2010-1Hr-150-0.txt --output figures
  brambling coflow reproduce --quick --output figures

It writes index.html, an SVG for each panel, and what each run came to into `runs`. A command that was stopped goes on
where it was. Without --trace it makes 526 coflows with the tails of Facebook's.

--quick takes every 20th coflow by size and lets them come 20 times as fast; without it all are taken, but every
fourth on more than 8 pods, of a burst and of graphs.";

/// Coflows that are made where there is no trace: as many as the public one has.
const MADE: u32 = 526;
const MADE_PORTS: u32 = 150;
/// What `--quick` takes, and how often it looks.
const QUICK_EVERY: u32 = 20;
const QUICK_RESOLUTION_S: f64 = 0.05;
/// What all of it takes, and how often it looks. Where all come at once, or six copies of each make queues that grow until the
/// last has come, all flows share links for long: they would take days. From 16 pods on each port has a host of its own, and
/// fabrics hardly differ.
const EVERY: u32 = 1;
const EVERY_OF_LARGE: u32 = 4;
const RESOLUTION_S: f64 = 0.01;

#[derive(clap::Args)]
pub(super) struct ReproduceArguments {
    /// A trace of coflows; without it, coflows are made
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Take few coflows: two minutes in place of hours
    #[arg(long)]
    quick: bool,
    /// Where the page, its figures and what runs came to are written
    #[arg(long, value_name = "DIR", default_value = "coflow-figures")]
    output: PathBuf,
    /// What is made, and where ports and paths are
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

impl ReproduceArguments {
    fn common(&self) -> Result<FigureSource, String> {
        let made = || {
            let made = GenerateOptions {
                coflows: MADE,
                ports: MADE_PORTS,
                tails: Tails::Facebook,
                seed: self.seed,
            };
            Workload::generate(&made).loaded(LOAD_OF_MADE)
        };
        Ok(FigureSource {
            trace: self.trace.as_deref().map_or_else(|| Ok(made()), trace)?,
            every: if self.quick { QUICK_EVERY } else { EVERY },
            every_of_large: if self.quick {
                QUICK_EVERY
            } else {
                EVERY_OF_LARGE
            },
            resolution_s: if self.quick {
                QUICK_RESOLUTION_S
            } else {
                RESOLUTION_S
            },
            seed: self.seed,
        })
    }

    /// What the page says of how it was made.
    fn preface(&self, common: &FigureSource) -> Preface {
        let of = match &self.trace {
            Some(path) => format!("The trace is {}.", path.display()),
            None => format!(
                "No trace was given: {MADE} coflows were made with the tails of Facebook's."
            ),
        };
        let taken = |every: u32| match every {
            1 => "every coflow is taken".to_owned(),
            every => format!(
                "coflows in the order of their size, the middle one of each {every} is taken, and they come {every} times as fast, so \
                 links are as busy"
            ),
        };
        let sampled = match common.every == common.every_of_large {
            true => format!(
                "Of the trace, {}: few coflows are in each category.",
                taken(common.every)
            ),
            false => format!(
                "Of the trace, {}; on more than 8 pods, for bursts and for graphs, {}.",
                taken(common.every),
                taken(common.every_of_large)
            ),
        };
        Preface {
            facts: vec![
                of,
                sampled,
                format!(
                    "Flows that end are looked at each {} ms at 1 Gbit/s, and ten times as often at 10: what one leaves is idle until then, \
                     and what waits for it begins then. Stream's receivers know at once what others have. Ports go to hosts by a \
                     permutation, modulo the hosts. Seed {}.",
                    common.resolution_s * 1e3,
                    common.seed
                ),
            ],
        }
    }
}

pub(super) fn reproduce(
    arguments: &ReproduceArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let common = match arguments.common() {
        Ok(common) => common,
        Err(error) => {
            streams.err(format!("error: {error}"));
            return USAGE;
        }
    };
    let figures = figures::all();
    let mut waits = RunsCaller {
        interrupted: &mut || host.interrupted(),
        is_shown: true,
    };
    match run_and_write(arguments, &common, &figures, &mut waits) {
        Ok(Some(page)) => {
            streams.out(format!(
                "{} figures in {}\n",
                figures.len() + 1,
                page.display()
            ));
            OK
        }
        Ok(None) => {
            let again = "the same command goes on where it was";
            streams.err(format!("interrupted; {again}"));
            INTERRUPTED
        }
        Err(error) => {
            streams.err(format!("error: {}: {error}", arguments.output.display()));
            FAILED
        }
    }
}

/// Runs what has not been run, and writes the page: its path. None: the user does not want to wait.
fn run_and_write(
    arguments: &ReproduceArguments,
    common: &FigureSource,
    figures: &[PaperFigure],
    waits: &mut RunsCaller<'_>,
) -> io::Result<Option<PathBuf>> {
    let mut results = KeptRuns::open(&arguments.output.join("runs"), common)?;
    let mut missing: Vec<RunPlan> = Vec::new();
    for plan in figures.iter().flat_map(|it| &it.plans) {
        if !missing.contains(plan) && !results.has(plan) {
            missing.push(*plan);
        }
    }
    // The longest first: no thread is left with one at the end.
    missing.sort_by(|one, other| other.weight(common).total_cmp(&one.weight(common)));
    let jobs = missing.iter().map(|plan| job(*plan, common)).collect();
    let mut failed = Ok(());
    let done = run_all(jobs, waits, &mut |at, outcome| {
        if failed.is_ok() {
            failed = results.keep(&missing[at], outcome);
        }
        failed.is_ok()
    });
    failed?;
    if done.is_none() {
        return Ok(None);
    }
    let mut drawn: Vec<DrawnFigure<'_>> = figures
        .iter()
        .map(|figure| DrawnFigure {
            figure,
            panels: named(figure, (figure.panels)(&results)),
            printed: (figure.printed)(&results),
        })
        .collect();
    let queues = queues::figure();
    drawn.push(DrawnFigure {
        figure: &queues,
        panels: named(&queues, (queues.panels)(&results)),
        printed: (queues.printed)(&results),
    });
    write(&arguments.output, &arguments.preface(common), &drawn).map(Some)
}

fn job(plan: RunPlan, common: &FigureSource) -> SimulationRun<'_, Outcome> {
    SimulationRun {
        name: plan.key(),
        weight: plan.weight(common),
        run: Box::new(move |goes_on| {
            let workload = plan.workload(common);
            let (policy, choices) = plan.choices();
            simulate_watched(&workload, policy, &choices, &plan.options(common), goes_on)
        }),
    }
}

/// Panels with the names of their files.
fn named(figure: &PaperFigure, panels: Vec<figures::Panel>) -> Vec<(String, figures::Panel)> {
    let named = (b'a'..).zip(panels).map(|(letter, panel)| {
        let file = format!("figure-{}{}.svg", figure.number, char::from(letter));
        (file, panel)
    });
    named.collect()
}

fn write(folder: &Path, preface: &Preface, drawn: &[DrawnFigure<'_>]) -> io::Result<PathBuf> {
    for (file, panel) in drawn.iter().flat_map(|it| &it.panels) {
        std::fs::write(folder.join(file), plot::svg(panel))?;
    }
    let page = folder.join("index.html");
    std::fs::write(&page, page::html(preface, drawn))?;
    Ok(page)
}
