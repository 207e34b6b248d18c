//! The command line: what it accepts, and help that teaches.

mod reports;

pub(crate) use reports::REPORT_ENDS;

use crate::Host;
use crate::certs::CertsArguments;
use crate::cluster::{ClusterArguments, ControllerArguments, Where, WorkerArguments};
use crate::coflow::CoflowArguments;
use crate::events::{EventsArguments, SnapshotArguments, SnapshotsArguments};
use crate::grep::{self, GrepArguments};
use crate::jobs::{CancelArguments, JobsArguments};
use crate::logs::LogsArguments;
use crate::model::{self, ModelArguments};
use crate::probe::ProbeArguments;
use crate::restore::RestoreArguments;
use crate::shards::{DrainArguments, MoveArguments};
use crate::sort::{self, SortArguments};
use crate::submit::SubmitArguments;
use crate::top::TopArguments;
use brambling_bench::{GraphName, Precision};
use brambling_machine::units::{self, Quantity};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::{generate, shells};
use std::ffi::OsString;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Examples:
  brambling run flights             an example that comes with the package
  brambling run train.py --rows 5   your own script, with its arguments
  brambling bench task-rate         what a task costs here, beside the machine's limit
  brambling doctor                  what this machine offers, and what is wrong with it
  brambling config                  every setting, and where its value comes from

Settings: arguments, then variables such as BRAMBLING_THREADS, then brambling.toml in the working
directory, then defaults that follow the data and the machine. `brambling config` lists them.

Exit codes: 0 all went well; 1 the script failed, doctor found a problem, or a setting cannot be
used; 2 the command was used wrongly; 130 interrupted; 141 nobody reads the script's output any more.";

const RUN_HELP: &str = "\
Examples:
  brambling run flights
  brambling run train.py --rows 1000
  brambling run train.py --report            then: how near its jobs came to what the machine can do
  brambling run train.py --report r.html --trace t.json
  BRAMBLING_THREADS=4 brambling run train.py
  brambling run train.py -- --report         an option of the script's own of that name
  brambling run --store snapshots train.py   started again after it was killed, it goes on from there

The exit code is the script's.";

const BENCH_HELP: &str = "\
Examples:
  brambling bench                         the benches there are
  brambling bench barrier --threads 2     on two threads
  brambling bench kmeans --k 100          an option that only this bench has
  brambling bench pagerank --graph lognormal
  brambling bench logistic --task-times   how long its tasks take, by stage
  brambling bench kmeans --partitions-per-core 1,2,4,8,16
  brambling bench logistic --workers 2    two workers beside one process of two threads
  brambling bench task-graph --json       for other programs to read; keys are stable

Each figure is the median of seven rounds or more with its extremes. Ours and every limit are
measured in turn within each round; a round in which a limit moved by over 10 % is repeated.";

const DOCTOR_HELP: &str = "\
Every problem comes with its fix. Exit code 1 says that there is one.";

const PROBE_HELP: &str = "\
Examples:
  brambling probe                               this machine, in two minutes at most
  brambling probe --dir /nvme --dir /data       the disks of these directories
  brambling probe --only disk --dir /nvme       nothing else; the rest stays as it was measured
  brambling probe --show --json                 what was measured last
  brambling probe --listen 10.0.0.7:7078 --token-file token      on each host; then, on one of them:
  brambling probe --hosts 10.0.0.7:7078,10.0.0.8:7078 --token-file token

It reads and writes files without names, which are gone when it ends, however it ends. What it found is kept for this host in
~/.cache/brambling/machine.json (or below $XDG_CACHE_HOME). Nothing else should run on the machine meanwhile.
A listener ends with Ctrl-C or SIGTERM.";

const CONFIG_HELP: &str = "\
A source is the environment with the variable's name, brambling.toml with the line, or the default.
Arguments of a program, such as p.run(threads=4), go before all of them.";

const CLUSTER_HELP: &str = "\
Examples:
  brambling cluster --workers 2 --threads 4
  brambling cluster --workers 2 --threads 1 --bind 127.0.0.1:0
  brambling cluster --workers 2 --threads 4 --metrics 127.0.0.1:9177
  brambling cluster --workers 2 --threads 4 --tls certs      with certificates of `brambling certs`

Then, in a script: with br.connect(\"127.0.0.1:7077\"): ...
It ends with Ctrl-C or SIGTERM, and its workers with it.";

const CERTS_HELP: &str = "\
Examples:
  brambling certs --dir certs
  brambling certs --dir certs --host 10.0.0.7 --host 10.0.0.8
  brambling cluster --workers 2 --threads 4 --tls certs

It makes an authority for one cluster, a certificate of it for all members, and its key: ca.pem, cert.pem and key.pem, in a
folder that only this account can read. Nobody can make further ones, since the authority's key is not kept; nothing is overwritten.
With --host the certificate is taken only from who listens there, or on the dialer's own machine.";

const CONTROLLER_HELP: &str = "\
Examples:
  brambling controller
  brambling controller --bind 10.0.0.7:7077
  brambling controller --metrics 127.0.0.1:9177    then http://127.0.0.1:9177/metrics is for Prometheus
  brambling controller --bind 10.0.0.7:7077 --tls certs

It writes its address and a new token to a file that only this account can read; the commands and
br.connect find it there. For other accounts and hosts: --token-file, the file's name in BRAMBLING_TOKEN_FILE,
or the token in BRAMBLING_TOKEN.
Without --bind nobody outside this machine reaches it. It ends with Ctrl-C or SIGTERM.";

const WORKER_HELP: &str = "\
Examples:
  brambling worker --controller 127.0.0.1:7077
  brambling worker --controller 10.0.0.7:7077 --threads 16 --memory 64GB --token-file token.toml --tls certs
  brambling worker --controller 10.0.0.7:7077 --memory 64GB --spill /nvme:500GB

It runs Python that its cluster's clients send: whoever knows the token can do what this account can.
It ends with Ctrl-C or SIGTERM, or when the controller is gone for 10 seconds.";

const STATUS_HELP: &str = "\
Examples:
  brambling status --controller 127.0.0.1:7077
  brambling status                           the one cluster of this account

JSON with `workers` (id, pid, host, threads, shards, memory_bytes, idle_share) and `jobs` (id, name,
state, generation, position: tasks that have run, failure, cut and last_snapshot_age_s of its last snapshot), and `term`.";

const MOVE_HELP: &str = "\
Examples:
  brambling move w2 --shard 0.3            shard 3 of group 0, of the only job that runs
  brambling move w2 --shard 0.3 --job j7 --controller 10.0.0.7:7077

It ends when the shard is there. What the job computes stays the same to the last bit.";

const DRAIN_HELP: &str = "\
Examples:
  brambling drain w2
  brambling drain w2 --controller 10.0.0.7:7077

The worker gets no shards of new jobs, and those it has move to the others. When it holds none, its process ends with
exit code 0. The jobs that run go on.";

const SUBMIT_HELP: &str = "\
Examples:
  brambling submit train.py --rows 1000
  id=$(brambling submit train.py)            standard output is the job's name alone, such as j7
  brambling submit --controller 10.0.0.7:7077 word_count
  brambling submit --weight 4 urgent.py      four times the threads' time of a job of weight 1

Programs, models and analyses of the script run on the cluster; it needs no br.connect. The command ends when the script has its first job;
the script goes on when the terminal is closed, and what it prints goes to its log: brambling logs JOB.
Jobs run side by side, as many as the controller's --jobs-at-once allows, and share the workers' threads by their weights.
Its later jobs are listed by brambling jobs, with logs that are the same. Ctrl-C before it has a job ends it.

A script that ends without a job gives its exit code, and what it said goes to standard error.";

const JOBS_HELP: &str = "\
Examples:
  brambling jobs
  brambling jobs --json | jq '.[] | select(.state == \"running\") | .id'

TASKS: those that have run, as the workers last told, and of how many where that is known before. WHOSE: the account and host
of its client. JSON has `id`, `name`, `state`, `generation`, `position`, `tasks_total`, `workers`, `client` (user, host, pid, log) and
`failure`. The last 100 jobs are remembered, while the controller lives.";

const EVENTS_HELP: &str = "\
A line for each event, the oldest first: time (seconds since 1970), kind, worker, job, generation, cut, bytes, seconds, cause; `-` for what it does not have. JSON \
has the same keys. The controller keeps the last 10,000. With --follow it goes on until Ctrl-C.";

const SNAPSHOTS_HELP: &str = "\
Examples:
  brambling snapshots                           of the one cluster of this account
  brambling snapshots --store /srv/snapshots    of a store, whether its clusters are there or not

The first column is the name for `brambling restore`.";

const RESTORE_HELP: &str = "\
Examples:
  brambling restore j7/12 --store /srv/snapshots
  brambling restore j7/12 --store /srv/snapshots --on 10.0.0.7:7077
  brambling restore j7/12 --store /srv/snapshots --on 10.0.0.7:7077 nightly.py --region north

Without a script the program runs that was kept beside the snapshot, and its results go to files: .npy, and .pickle for what is no array.
With the script that made it, the script runs: its program goes on from the snapshot, and the script gets the results.
Exit code 1: the snapshot, or what it needs, cannot be used.";

const SNAPSHOT_HELP: &str = "\
The job is saved at the next turn of its loop, and goes on. Prints the snapshot's number once it exists. The controller needs --store or --state.";

const CANCEL_HELP: &str = "\
Examples:
  brambling cancel j7
  brambling cancel j7 --controller 10.0.0.7:7077 --patience 5

Its client raises br.ClusterError, which says who has cancelled it: the job ends, and its script only if it ends by that. Kernels that run
end by themselves. Exit code 1: there is no such job, or it was over before.";

const LOGS_HELP: &str = "\
Examples:
  brambling logs j7
  brambling logs j7 --follow                 until the script has ended

Logs are files of the account and machine where brambling submit was called, in ~/.local/state/brambling/logs; the newest 100 are kept. What
kernels print is seen where the workers run.";

const TOP_HELP: &str = "\
Examples:
  brambling top
  brambling top --controller 10.0.0.7:7077
  brambling top --once                       as when the output is no terminal

Once a second. IDLE is the share of its threads' time in which no task ran, lately; TASKS/S counts since the picture before.
`q` or Ctrl-C ends it.";

const COMPLETIONS_HELP: &str = "\
Examples:
  brambling completions bash > ~/.local/share/bash-completion/completions/brambling
  brambling completions zsh > \"${fpath[1]}/_brambling\"
  brambling completions fish > ~/.config/fish/completions/brambling.fish";

#[derive(Parser)]
#[command(
    name = "brambling",
    about = "An in-memory data-parallel engine for iterative analytics",
    after_help = AFTER_HELP,
    disable_version_flag = true,
    arg_required_else_help = false,
    subcommand_required = true
)]
struct Arguments {
    /// Print the versions of Brambling and of what it runs in
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Command,
}

/// What is to be done.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a script, or an example by its name
    #[command(
        after_help = RUN_HELP,
        override_usage = "brambling run [--store DIR [--fresh]] FILE.py|EXAMPLE [--report [FILE.html]] [--trace FILE.json] [ARGS]..."
    )]
    Run {
        /// Tell how near its jobs came to what the machine can do: on the terminal, or in FILE.html, .json or .txt
        #[arg(long, value_name = "FILE.html", num_args = 0..=1, require_equals = true)]
        report: Option<Option<PathBuf>>,
        /// Write what each thread did when, for ui.perfetto.dev: JSON, or packets when the name does not end with .json
        #[arg(long, value_name = "FILE.json")]
        trace: Option<PathBuf>,
        /// Keep snapshots of its jobs in DIR, or s3://BUCKET/PREFIX: started again after it was killed, it goes on from there
        #[arg(long, value_name = "DIR")]
        store: Option<String>,
        /// Ignore what DIR has of an earlier run
        #[arg(long)]
        fresh: bool,
        /// A Python file, or the name of an example
        #[arg(value_name = "FILE.py|EXAMPLE")]
        script: String,
        /// Passed on
        #[arg(last = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Measure this machine and the engine on it
    #[command(after_help = BENCH_HELP)]
    Bench {
        /// Which bench; none: list them
        name: Option<String>,
        /// Threads, 1 to 1024, of the engine and of every limit
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
        threads: Option<u32>,
        /// Centres, 1 to 1024, of the bench kmeans
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
        k: Option<u32>,
        /// The graph of the bench pagerank
        #[arg(long, value_name = "GRAPH", value_parser = named(GraphName::ALL, GraphName::name))]
        graph: Option<GraphName>,
        /// The width of a rank in the bench pagerank
        #[arg(long, value_name = "DTYPE", value_parser = named(Precision::ALL, Precision::name))]
        dtype: Option<Precision>,
        /// Partitions for each thread, 1 to 64, in the benches logistic, kmeans and pagerank; several: a sweep
        #[arg(long, value_name = "N[,N]...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
        partitions_per_core: Vec<u32>,
        /// Also how long each task of an iteration takes, in the benches logistic, kmeans and pagerank
        #[arg(long)]
        task_times: bool,
        /// Bytes of the input, such as 1GB, of the bench sort-costs; it needs six times as many on the disk of the system's
        /// directory for temporary files (TMPDIR)
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        bytes: Option<u64>,
        /// Rounds, 1 to 100, of the bench sort-costs
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
        rounds: Option<u32>,
        /// Workers, 1 to 64, of a cluster on this machine, in benches that can run on one: beside one process of as many
        /// threads, or beside one worker. --threads are then those of each worker, 1 unless given
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
        workers: Option<u32>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Tiny sizes, one round: only shows that the bench works
        #[arg(long)]
        smoke: bool,
    },
    /// Say what this machine offers, and what is wrong with it
    #[command(after_help = DOCTOR_HELP)]
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure disks, memory, arithmetic and network of this machine, or the network between hosts
    #[command(after_help = PROBE_HELP)]
    Probe(ProbeArguments),
    /// Show every setting, its value, and where that comes from
    #[command(after_help = CONFIG_HELP)]
    Config {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Sort files; make files to sort; look whether files are sorted
    #[command(after_help = sort::HELP)]
    Sort(SortArguments),
    /// Say how long a job would take on hardware that is used to the full
    #[command(after_help = model::HELP)]
    Model(ModelArguments),
    /// Say how long coflows, the flows of one exchange, take under each policy
    Coflow(CoflowArguments),
    /// Print lines that match a pattern, of files of any size
    #[command(after_help = grep::HELP, override_usage = "brambling grep [OPTIONS] PATTERN [PATH]...")]
    Grep(Box<GrepArguments>),
    /// Start workers on this machine, and a controller for them
    #[command(after_help = CLUSTER_HELP)]
    Cluster(ClusterArguments),
    /// Make the certificates of a cluster that uses TLS
    #[command(after_help = CERTS_HELP)]
    Certs(CertsArguments),
    /// Start a controller, with which workers register
    #[command(after_help = CONTROLLER_HELP)]
    Controller(ControllerArguments),
    /// Start a worker, which runs what clients send to its cluster
    #[command(after_help = WORKER_HELP)]
    Worker(WorkerArguments),
    /// Say how a cluster fares, as JSON
    #[command(after_help = STATUS_HELP)]
    Status(Where),
    /// Move a shard of a running job to another worker
    #[command(after_help = MOVE_HELP)]
    Move(MoveArguments),
    /// Move all that a worker holds to the others, and end it
    #[command(after_help = DRAIN_HELP)]
    Drain(DrainArguments),
    /// Run a script on a cluster, detached from this terminal; prints its job's name
    #[command(
        after_help = SUBMIT_HELP,
        override_usage = "brambling submit [OPTIONS] FILE.py|EXAMPLE [ARGS]..."
    )]
    Submit(SubmitArguments),
    /// As run, in a session of its own
    #[command(hide = true)]
    RunDetached {
        script: String,
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// List a cluster's jobs
    #[command(after_help = JOBS_HELP)]
    Jobs(JobsArguments),
    /// End a job, whoever's it is
    #[command(after_help = CANCEL_HELP)]
    Cancel(CancelArguments),
    /// Tell what has happened in a cluster
    #[command(after_help = EVENTS_HELP)]
    Events(EventsArguments),
    /// List the snapshots of a cluster's jobs, or those of a store
    #[command(after_help = SNAPSHOTS_HELP)]
    Snapshots(SnapshotsArguments),
    /// Go on from a snapshot, here or on a cluster
    #[command(
        after_help = RESTORE_HELP,
        override_usage = "brambling restore SNAPSHOT [--on HOST:PORT] [--store DIR] [--output DIR] [FILE.py|EXAMPLE [ARGS]...]"
    )]
    Restore(RestoreArguments),
    /// Save a job now
    #[command(after_help = SNAPSHOT_HELP)]
    Snapshot(SnapshotArguments),
    /// Print what a script that was submitted has said
    #[command(after_help = LOGS_HELP)]
    Logs(LogsArguments),
    /// Show workers and jobs, live
    #[command(after_help = TOP_HELP)]
    Top(TopArguments),
    /// Print what makes a shell complete this command
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Shells whose completions are tried.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What a shell reads to complete the command.
pub(crate) fn completions(shell: Shell) -> String {
    let mut out = Vec::new();
    let command = &mut Arguments::command();
    match shell {
        Shell::Bash => generate(shells::Bash, command, "brambling", &mut out),
        Shell::Zsh => generate(shells::Zsh, command, "brambling", &mut out),
        Shell::Fish => generate(shells::Fish, command, "brambling", &mut out),
    }
    String::from_utf8(out).expect("completions are text")
}

/// Takes one of some values by its name.
pub(crate) fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let of = move |given: String| all.into_iter().find(|value| name(*value) == given);
    PossibleValuesParser::new(all.map(name)).map(move |given| of(given).expect("a possible value"))
}

/// A number of bytes, with its unit.
fn bytes(text: &str) -> Result<u64, String> {
    let bytes = units::parse(text, Quantity::Size).map_err(|error| error.to_string())?;
    Ok(bytes as u64)
}

/// What the arguments come to.
pub(crate) enum Parsed {
    Command(Box<Command>),
    /// Help or versions were asked for.
    Help(String),
    Wrong(String),
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>, host: &dyn Host) -> Parsed {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.len() <= 1 {
        // Nobody who types the bare name wants an error.
        args.push("--help".into());
    }
    if matches!(args[1].to_str(), Some("--version" | "-V")) {
        return Parsed::Help(versions(host));
    }
    let names_a_script = |arg: &OsString| !arg.to_string_lossy().starts_with('-');
    if args[1] == "run" {
        let behind = args.split_off(2);
        args.extend(reports::sorted(behind));
    }
    if args[1] == "run-detached" && args.get(2).is_some_and(names_a_script) {
        // What follows the script is the script's, `--help` included.
        args.insert(3, "--".into());
    }
    let command = Arguments::command().bin_name("brambling");
    let parsed = command
        .try_get_matches_from(args)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    match parsed {
        Ok(arguments) => Parsed::Command(Box::new(arguments.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => Parsed::Help(error.render().to_string()),
            _ => Parsed::Wrong(error.render().to_string()),
        },
    }
}

fn versions(host: &dyn Host) -> String {
    let mut text = format!("brambling {}\n", env!("CARGO_PKG_VERSION"));
    for (name, version) in host.versions() {
        text.push_str(&format!("{name} {version}\n"));
    }
    text
}
