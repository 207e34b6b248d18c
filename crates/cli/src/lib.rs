//! The command `brambling`: runs scripts and examples, benches, and looks at the machine.
//!
//! The Python package calls [`main`] with its arguments and a [`Host`], which does what only an
//! interpreter can. Nothing here knows Python.
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | all went well |
//! | 1 | the script or job failed, `doctor` found a problem, or a setting cannot be used |
//! | 2 | the command was used wrongly |
//! | 130 | interrupted |
//! | 141 | whoever read the script's output has closed it |

mod args;
mod bench;
mod certs;
mod cluster;
mod coflow;
mod config;
mod deaths;
mod doctor;
mod events;
mod grep;
mod jobs;
mod logs;
mod metrics;
mod model;
mod nearest;
mod probe;
mod reports;
mod restore;
mod run;
mod shards;
mod sort;
mod steps;
mod submit;
mod table;
mod top;

pub use cluster::status_json;
pub use coflow::{coflow_json, coflow_simulate};
pub use model::model_json;

use args::{Command, Parsed};
use brambling::cluster::Source;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// All went well.
pub const OK: u8 = 0;
/// The script or job failed, or the doctor found a problem.
pub const FAILED: u8 = 1;
/// The command was used wrongly.
pub const USAGE: u8 = 2;
/// A worker ended because its controller had given it up.
pub const FENCED: u8 = 3;
/// A worker ended because a kernel of a job that was over did not.
pub const STUCK: u8 = 4;
/// Interrupted.
pub const INTERRUPTED: u8 = 130;

/// What the process around the command does: an interpreter, with the package's examples.
pub trait Host {
    /// Runs a script with its arguments; the result is the exit code.
    fn run_script(&mut self, path: &Path, args: &[String]) -> u8;
    /// The examples that come with the package: name, and what it shows in one line.
    fn examples(&self) -> Vec<(String, String)>;
    /// Runs an example with its arguments; the result is the exit code.
    fn run_example(&mut self, name: &str, args: &[String]) -> u8;
    /// The benches that need an interpreter: name, and what each claims in one line.
    fn benches(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// Runs one of them and prints what it found; the result is the exit code.
    fn run_bench(&mut self, name: &str, options: HostBench) -> u8 {
        let _ = (name, options);
        FAILED
    }
    /// What makes programs of what clients of a cluster send; none: this command has no workers.
    fn source(&self) -> Option<Box<dyn Source>> {
        None
    }
    /// Programs of this process run on a cluster from now on.
    ///
    /// # Errors
    /// Why they do not.
    fn connect(&mut self, to: HostCluster<'_>) -> Result<(), String> {
        Err(format!(
            "this command runs no programs on the cluster at {}",
            to.address
        ))
    }
    /// Runs a program that was kept as these bytes, and writes what it keeps to a folder, a file for each dataset; the result is the exit code.
    fn run_kept(&mut self, program: &[u8], folder: &Path) -> u8 {
        let _ = (program, folder);
        FAILED
    }
    /// How this command is started in another process.
    fn command(&self) -> Vec<OsString> {
        std::env::args_os().take(1).collect()
    }
    /// A variable was taken out of the environment: what the interpreter keeps of it goes as well.
    fn forget_variable(&mut self, variable: &str) {
        let _ = variable;
    }
    /// Whatever else has a version here, such as the interpreter and its packages: name, version.
    fn versions(&self) -> Vec<(String, String)>;
    /// Whether the user has asked to stop since the last call. Asked every few milliseconds.
    fn interrupted(&mut self) -> bool;
}

/// A cluster, as a user names it.
#[derive(Clone, Copy, Debug)]
pub struct HostCluster<'a> {
    /// Its controller's address.
    pub address: &'a str,
    /// The file that the controller wrote, if it is named.
    pub token_file: Option<&'a Path>,
    /// The folder with its certificates, if it is named.
    pub tls: Option<&'a Path>,
}

/// How a bench of the host's is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBench {
    /// Threads; none: as any job's.
    pub threads: Option<u32>,
    /// Tiny sizes and one round.
    pub smoke: bool,
    /// For other programs to read.
    pub json: bool,
}

/// Where the command writes.
struct Streams<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Whether somebody sees what is written to `out` as it is written.
    is_terminal: bool,
}

impl Streams<'_> {
    // A reader that has gone away, as `head` does, is no failure of ours.
    fn out(&mut self, text: impl AsRef<str>) {
        let _ = self.out.write_all(text.as_ref().as_bytes());
        let _ = self.out.flush();
    }

    fn err(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.err, "{}", text.as_ref());
    }
}

/// Runs the command. `args` begins with the program's own name; the result is the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>, host: &mut dyn Host) -> u8 {
    let mut out = std::io::stdout();
    let streams = Streams {
        is_terminal: out.is_terminal(),
        out: &mut out,
        err: &mut std::io::stderr(),
    };
    with_streams(args, host, streams)
}

/// As [`main`], writing elsewhere. A script that the host runs writes where it likes.
pub fn main_to(
    args: impl IntoIterator<Item = OsString>,
    host: &mut dyn Host,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let is_terminal = false;
    let streams = Streams {
        out,
        err,
        is_terminal,
    };
    with_streams(args, host, streams)
}

fn with_streams(
    args: impl IntoIterator<Item = OsString>,
    host: &mut dyn Host,
    mut streams: Streams<'_>,
) -> u8 {
    let command = match args::parse(args, host) {
        Parsed::Command(command) => *command,
        Parsed::Help(text) => {
            streams.out(text);
            return OK;
        }
        Parsed::Wrong(text) => {
            streams.err(text.trim_end());
            return USAGE;
        }
    };
    match command {
        Command::Run {
            script,
            args,
            report,
            trace,
            store,
            fresh,
        } => {
            let wanted = reports::Wanted { report, trace };
            let kept = run::KeptIn { store, fresh };
            run::run((&script, &args), &kept, &wanted, host, &mut streams)
        }
        Command::Bench {
            name,
            threads,
            k,
            graph,
            dtype,
            partitions_per_core,
            task_times,
            bytes,
            rounds,
            workers,
            json,
            smoke,
        } => {
            let mut options = brambling_bench::Options::new().smoke(smoke);
            (options.threads, options.k) = (threads, k);
            (options.graph, options.dtype) = (graph, dtype);
            options.partitions_per_core = partitions_per_core;
            options.task_times = task_times;
            (options.bytes, options.rounds) = (bytes, rounds);
            (options.workers, options.command) = (workers, host.command());
            bench::run(name.as_deref(), &options, json, host, &mut streams)
        }
        Command::Doctor { json } => doctor::run(json, host, &mut streams),
        Command::Probe(arguments) => probe::probe(&arguments, host, &mut streams),
        Command::Config { json } => config::run(json, &mut streams),
        Command::Sort(arguments) => sort::sort(&arguments, host, &mut streams),
        Command::Model(arguments) => model::model(&arguments, &mut streams),
        Command::Coflow(arguments) => coflow::coflow(&arguments, host, &mut streams),
        Command::Grep(arguments) => grep::grep(&arguments, host, &mut streams),
        Command::Certs(arguments) => certs::certs(&arguments, &mut streams),
        Command::Controller(arguments) => cluster::controller(&arguments, host, &mut streams),
        Command::Worker(arguments) => cluster::worker(arguments, host, &mut streams),
        Command::Cluster(arguments) => cluster::cluster(&arguments, host, &mut streams),
        Command::Move(arguments) => shards::move_shard(&arguments, host, &mut streams),
        Command::Drain(arguments) => shards::drain(&arguments, host, &mut streams),
        Command::Status(at) => cluster::status(&at, &mut streams),
        Command::Submit(arguments) => submit::submit(&arguments, host, &mut streams),
        Command::RunDetached { script, args } => {
            submit::run_detached(&script, &args, host, &mut streams)
        }
        Command::Jobs(arguments) => jobs::jobs(&arguments, &mut streams),
        Command::Events(arguments) => events::events(&arguments, host, &mut streams),
        Command::Snapshots(arguments) => events::snapshots(&arguments, &mut streams),
        Command::Snapshot(arguments) => events::snapshot(&arguments, host, &mut streams),
        Command::Restore(arguments) => restore::restore(&arguments, host, &mut streams),
        Command::Cancel(arguments) => jobs::cancel(&arguments, host, &mut streams),
        Command::Top(arguments) => top::top(&arguments, host, &mut streams),
        Command::Logs(arguments) => logs::logs(&arguments, host, &mut streams),
        Command::Completions { shell } => {
            streams.out(args::completions(shell));
            OK
        }
    }
}
