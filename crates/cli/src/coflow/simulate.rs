//! `brambling coflow simulate`: says how long coflows take under each policy.

use super::options::SimulateArguments;
use super::runs::{RunsCaller, SimulationRun, run_all};
use crate::{FAILED, Host, INTERRUPTED, OK, Streams, USAGE, table};
use brambling::coflow::policy::PolicyName;
use brambling::coflow::simulate::{Outcome, Summary, simulate_watched};
use brambling::coflow::workload::Workload;
use brambling_machine::units;
use clap::Parser;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

pub(super) const HELP: &str = "\
Examples:
  brambling coflow simulate --trace FB2010-1Hr-150-0.txt --policy fair,stream,receiver-driven
  brambling coflow simulate --generate 100 --policy all --json
  brambling coflow simulate --generate 100 --fabric fattree:8 --policy stream --waves 3
  brambling coflow simulate --trace trace.txt --policy stream --relay none --csv times.csv
  brambling coflow simulate --trace trace.txt --policy ours --order class --sizes-off 0.5 --silent 0.01

A trace has `PORTS COFLOWS` in its first line, and then a coflow a line: NAME ARRIVAL_MS MAPPERS PORT... REDUCERS PORT:MB...

JSON has an object for each policy: `average_s`, `p50_s`, `p95_s`, `slowdown` (how many times as long as alone), `category`
(by size, I to V), `bin` (short or long, narrow or wide) and `messages`. CSV has `policy`, `coflow`, `arrival_s`, `cct_s`,
`isolated_s` and `bytes`.";

pub(super) fn simulate(
    arguments: &SimulateArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let workload = match arguments.workload() {
        Ok(workload) => workload,
        Err(error) => {
            streams.err(format!("error: {error}"));
            return USAGE;
        }
    };
    // It is made before anything is simulated: who cannot have it learns that at once.
    let csv = match arguments.csv.as_deref().map(created).transpose() {
        Ok(csv) => csv,
        Err(error) => {
            streams.err(format!("error: {error}; give a file that can be written"));
            return FAILED;
        }
    };
    let mut waits = RunsCaller {
        interrupted: &mut || host.interrupted(),
        is_shown: true,
    };
    let Some(found) = outcomes(arguments, &workload, &mut waits) else {
        return INTERRUPTED;
    };
    if let Some(csv) = csv
        && let Err(error) = csv.write(&found)
    {
        streams.err(format!("error: {error}"));
        return FAILED;
    }
    let summaries = found
        .iter()
        .map(|(name, outcome)| (name.name(), outcome.summary()));
    match arguments.json {
        true => {
            let by_name: BTreeMap<&str, Summary> = summaries.collect();
            streams.out(serde_json::to_string(&by_name).expect("names and finite numbers") + "\n");
        }
        false => streams.out(told(&workload, &summaries.collect::<Vec<_>>())),
    }
    OK
}

/// What each policy came to; none: the user does not want to wait.
fn outcomes(
    arguments: &SimulateArguments,
    workload: &Workload,
    waits: &mut RunsCaller<'_>,
) -> Option<Vec<(PolicyName, Outcome)>> {
    let (choices, options) = (arguments.choices(), arguments.options());
    let (choices, options) = (&choices, &options);
    let job = |name: PolicyName| SimulationRun {
        name: name.to_string(),
        weight: 1.0,
        run: Box::new(move |goes_on| {
            let outcome = simulate_watched(workload, name, choices, options, goes_on)?;
            Some((name, outcome))
        }),
    };
    let jobs = arguments.policies().into_iter().map(job).collect();
    run_all(jobs, waits, &mut |_, _| true)
}

/// The options by themselves, as other hosts of the simulator give them.
#[derive(clap::Parser)]
#[command(name = "simulate", disable_help_flag = true)]
struct SimulateWords {
    #[command(flatten)]
    arguments: SimulateArguments,
}

/// Simulates as the options say that `brambling coflow simulate` has, and asks `interrupted` meanwhile.
///
/// # Errors
/// What is wrong with the options or the trace, in one line; none: it was interrupted.
pub fn coflow_simulate(
    words: &[String],
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Vec<(PolicyName, Outcome)>, Option<String>> {
    let name = "simulate".to_owned();
    let parsed = SimulateWords::try_parse_from(std::iter::once(&name).chain(words));
    let arguments = parsed.map_err(|error| Some(error.to_string()))?.arguments;
    let workload = arguments.workload().map_err(Some)?;
    let mut waits = RunsCaller {
        interrupted,
        is_shown: false,
    };
    outcomes(&arguments, &workload, &mut waits).ok_or(None)
}

/// What an outcome comes to, as JSON has it.
pub fn coflow_json(outcome: &Outcome) -> String {
    serde_json::to_string(&outcome.summary()).expect("names and finite numbers")
}

fn told(workload: &Workload, summaries: &[(&str, Summary)]) -> String {
    let head = format!(
        "{} coflows, {} flows, {}\n",
        workload.coflows.len(),
        workload.flows(),
        units::bytes(workload.bytes())
    );
    let titles = [
        "policy", "average", "median", "95 %", "slowdown", "messages",
    ]
    .map(str::to_owned);
    let mut lines = vec![titles];
    for (name, summary) in summaries {
        lines.push([
            (*name).to_owned(),
            units::seconds(summary.average_s),
            units::seconds(summary.p50_s),
            units::seconds(summary.p95_s),
            format!("{:.2}", summary.slowdown),
            summary.messages.to_string(),
        ]);
    }
    head + &table::rows(&lines)
}

/// The file of times.
struct CsvFile<'p> {
    path: &'p Path,
    file: File,
}

fn created(path: &Path) -> Result<CsvFile<'_>, String> {
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(CsvFile { path, file })
}

impl CsvFile<'_> {
    fn write(mut self, found: &[(PolicyName, Outcome)]) -> Result<(), String> {
        let mut text = "policy,coflow,arrival_s,cct_s,isolated_s,bytes\n".to_owned();
        for (name, outcome) in found {
            for took in &outcome.coflows {
                let _ = writeln!(
                    text,
                    "{name},{},{},{},{},{}",
                    took.name, took.arrival_s, took.cct_s, took.isolated_s, took.bytes
                );
            }
        }
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
