//! `brambling controller`, `worker`, `cluster`, `status`: the processes of a cluster, and how it fares.

use crate::deaths::DeathLine;
use crate::metrics::{self, MetricsAt};
use crate::{FAILED, FENCED, Host, OK, STUCK, Streams};
use brambling::cluster::{
    BALANCE_EACH, Certificates, Children, Cluster, ClusterError, ControllerOptions,
    ControllerProcess, JOBS_AT_ONCE, JobStatus, MetricsEndpoint, Prints, Published, Rendezvous,
    Share, SnapshotOptions, Source, Status, TOKEN_VARIABLE, WorkerEnd, WorkerOptions,
    WorkerProcess, forget_variable, stand_by, token_of,
};
use brambling::program::Program;
use brambling::{Caller, Error, Failure, Settings};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a process looks whether it has to end.
pub(crate) const LOOKS: Duration = Duration::from_millis(50);
/// How long the workers of `cluster` may take to register.
const STARTING: Duration = Duration::from_secs(60);

/// Where a cluster is, as the user gave it.
#[derive(clap::Args)]
pub(crate) struct Where {
    /// The controller's address; the port is 7077 unless given. Otherwise BRAMBLING_CONTROLLER, or the one cluster of this account
    #[arg(long, value_name = "HOST:PORT")]
    controller: Option<String>,
    #[command(flatten)]
    token: TokenFile,
    #[command(flatten)]
    tls: TlsFolder,
}

impl Where {
    pub(crate) fn find(&self) -> Result<Rendezvous, ClusterError> {
        let (token, tls) = (&self.token.token_file, &self.tls.tls);
        Rendezvous::find(self.controller.as_deref(), token.as_deref(), tls.as_deref())
    }

    /// Whether the user names one.
    pub(crate) fn is_given(&self) -> bool {
        self.controller.is_some()
    }

    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.token.token_file.as_deref()
    }
}

#[derive(clap::Args)]
pub(crate) struct TokenFile {
    /// The file that the controller wrote, where it is not on this account
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenFile {
    pub(crate) fn path(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }
}

#[derive(clap::Args)]
pub(crate) struct TlsFolder {
    /// The folder with the cluster's certificates, as `brambling certs` makes it: all connections are encrypted, and whoever has none of them
    /// is refused. Otherwise BRAMBLING_TLS, or where the file with the token says they are
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
}

impl TlsFolder {
    pub(crate) fn path(&self) -> Option<&Path> {
        self.tls.as_deref()
    }
}

#[derive(clap::Args)]
pub(crate) struct ControllerArguments {
    /// Where it listens; port 0 is any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7077")]
    bind: String,
    #[command(flatten)]
    jobs: Jobs,
    /// Wait until the controller of --state is gone, and then take its cluster over
    #[arg(long, requires = "state")]
    standby: bool,
    #[command(flatten)]
    metrics: MetricsAt,
    #[command(flatten)]
    token: TokenFile,
    #[command(flatten)]
    tls: TlsFolder,
}

/// What a controller does with jobs.
#[derive(clap::Args)]
struct Jobs {
    /// How many jobs run at a time, 1 to 1000; further ones wait
    #[arg(long, value_name = "N", default_value_t = JOBS_AT_ONCE, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    jobs_at_once: u32,
    /// Leave shards where they are, unless somebody moves them or drains their worker
    #[arg(long)]
    no_balance: bool,
    /// Save the jobs in this directory, which all hosts of the cluster see, or in s3://BUCKET/PREFIX: a job whose worker dies goes on from its last snapshot. How often: the setting
    /// snapshot_every
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Keep what is known of the cluster in this directory, or in s3://BUCKET/PREFIX: its jobs outlive this controller, and another one with the same directory and address goes on with
    /// them. Snapshots are kept there as well, unless --store says where
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// A directory as processes started elsewhere know it; a bucket as it is.
fn whole(store: &Path) -> String {
    let text = store.display().to_string();
    if text.starts_with("s3://") {
        return text;
    }
    std::path::absolute(store).map_or(text, |it| it.display().to_string())
}

impl Jobs {
    fn balance_each(&self) -> Option<Duration> {
        (!self.no_balance).then_some(BALANCE_EACH)
    }

    /// Where jobs are saved, and how often.
    fn snapshots(&self) -> Result<Option<SnapshotOptions>, Error> {
        let beside = self.state.as_ref().map(|state| state.join("snapshots"));
        let Some(store) = self.store.as_ref().or(beside.as_ref()) else {
            return Ok(None);
        };
        let every = Settings::default().resolve()?.snapshot_every;
        // Workers may have been started elsewhere.
        let store = whole(store);
        Ok(Some(SnapshotOptions { store, every }))
    }

    /// Where the cluster is kept.
    fn state(&self) -> Option<String> {
        self.state.as_deref().map(whole)
    }
}

#[derive(clap::Args)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    at: Where,
    /// Threads, 1 to 1024; otherwise as for any program
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    threads: Option<u32>,
    /// Its memory budget, such as 8GB; otherwise as for any program
    #[arg(long, value_name = "BYTES")]
    memory: Option<String>,
    /// Where it spills pieces that find no room in memory, such as /var/tmp:100GB; otherwise as the setting `spill` says
    #[arg(long, value_name = "DIR[:SIZE]")]
    spill: Option<String>,
    #[command(flatten)]
    metrics: MetricsAt,
    /// Read the token from the first line of standard input, and end when that does
    #[arg(
        long,
        hide = true,
        requires = "controller",
        conflicts_with = "token_file"
    )]
    attached: bool,
}

#[derive(clap::Args)]
pub(crate) struct ClusterArguments {
    /// How many workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    workers: u32,
    /// Threads of each, 1 to 1024
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    threads: u32,
    /// Where the controller listens; port 0 is any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7077")]
    bind: String,
    /// Where workers spill pieces that find no room in memory, such as /var/tmp:100GB for all of them; otherwise as the setting `spill` says
    #[arg(long, value_name = "DIR[:SIZE]")]
    spill: Option<String>,
    #[command(flatten)]
    jobs: Jobs,
    #[command(flatten)]
    metrics: MetricsAt,
    #[command(flatten)]
    tls: TlsFolder,
}

/// Prints what went wrong; the exit code.
pub(crate) fn fail(streams: &mut Streams<'_>, error: &dyn std::error::Error) -> u8 {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    streams.err(format!("error: {text}"));
    FAILED
}

/// Whether the process was asked to end, by Ctrl-C or SIGTERM.
pub(crate) struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    pub(crate) fn watch() -> Result<StopRequest, ClusterError> {
        let asked = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTERM, asked.clone())
            .map_err(|source| ClusterError::System { source })?;
        Ok(StopRequest(asked))
    }

    /// The same, for a process whose host is not asked whether Ctrl-C was pressed.
    fn watch_with_interrupts() -> Result<StopRequest, ClusterError> {
        let asked = StopRequest::watch()?;
        signal_hook::flag::register(SIGINT, asked.0.clone())
            .map_err(|source| ClusterError::System { source })?;
        Ok(asked)
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn to_end(&self, host: &mut dyn Host) -> bool {
        self.is_set() || host.interrupted()
    }
}

/// Takes the token out of the environment, where kernels, whoever they start, and others who look at the process would find it. Done before
/// there are threads.
pub(crate) fn forget_token(host: &mut dyn Host) {
    forget_variable(TOKEN_VARIABLE);
    host.forget_variable(TOKEN_VARIABLE);
}

/// A controller that others of the account find. Dropping it takes it away.
struct Running {
    file: Published,
    metrics: Option<MetricsEndpoint>,
    controller: ControllerProcess,
    at: Rendezvous,
}

impl Running {
    fn start(
        bind: &str,
        jobs: &Jobs,
        metrics: &MetricsAt,
        token_file: Option<&Path>,
        TlsFolder { tls }: &TlsFolder,
        host: &mut dyn Host,
    ) -> Result<Running, Error> {
        let bind: SocketAddr = bind.parse().map_err(|_| ClusterError::Address {
            text: bind.to_owned(),
            source: None,
        })?;
        let token = match Rendezvous::given_token(token_file)? {
            Some(token) => token,
            None => match jobs.state() {
                Some(state) => token_of(&state, Rendezvous::new_token)?,
                None => Rendezvous::new_token()?,
            },
        };
        forget_token(host);
        let tls = Certificates::given(tls.as_deref())?;
        let options = ControllerOptions {
            bind,
            token: token.clone(),
            tls: tls.clone(),
            balance_each: jobs.balance_each(),
            jobs_at_once: jobs.jobs_at_once,
            snapshots: jobs.snapshots()?,
            silence: Settings::default().resolve()?.silence,
            state: jobs.state(),
        };
        let listener = metrics.bind()?;
        let controller = ControllerProcess::start(options)?;
        let serve = |listener| controller.serve_metrics(listener);
        let metrics = listener.map(serve).transpose()?;
        let address = controller.address();
        let at = Rendezvous {
            address,
            token,
            tls,
        };
        let file = at.publish()?;
        Ok(Running {
            file,
            metrics,
            controller,
            at,
        })
    }

    /// Tells its news; the exit code of one that another has deposed.
    fn looked_after(&self, jobs: &Jobs, streams: &mut Streams<'_>) -> Option<u8> {
        for line in self.controller.news() {
            streams.err(line);
        }
        let state = jobs.state().filter(|_| self.controller.is_deposed())?;
        Some(fail(streams, &ClusterError::Deposed { state }))
    }

    /// What whoever started it should know of who can listen.
    fn warn(&self, streams: &mut Streams<'_>) {
        let at = self.at.address;
        if self.at.tls.is_none() && !at.ip().is_loopback() {
            streams.err(format!(
                "warning: {at} can be reached from other machines, and this cluster does not use TLS: others on the way can read and change \
                 what is sent; make certificates with `brambling certs --dir certs`, and give them as --tls certs"
            ));
        }
    }
}

pub(crate) fn controller(
    arguments: &ControllerArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let token_file = arguments.token.token_file.as_deref();
    let ControllerArguments {
        bind,
        jobs,
        metrics,
        tls,
        standby: is_standby,
        ..
    } = arguments;
    let standby = *is_standby;
    let asked = match StopRequest::watch() {
        Ok(asked) => asked,
        Err(error) => return fail(streams, &error),
    };
    if let (true, Some(state)) = (standby, jobs.state()) {
        streams.out(format!("standing by for the controller of {state}\n"));
        match stand_by(&state, || !asked.to_end(host)) {
            Ok(true) => {}
            Ok(false) => return OK,
            Err(error) => return fail(streams, &error),
        }
    }
    let running = match Running::start(bind, jobs, metrics, token_file, tls, host) {
        Ok(running) => running,
        Err(error) => return fail(streams, &error),
    };
    running.warn(streams);
    streams.out(format!(
        "controller at {}; its token is in {}\nstart workers with: brambling worker --controller {}\n{}",
        running.at.address,
        running.file.path().display(),
        running.at.address,
        metrics::told(running.metrics.as_ref())
    ));
    while !asked.to_end(host) {
        std::thread::sleep(LOOKS);
        if let Some(code) = running.looked_after(jobs, streams) {
            return code;
        }
    }
    OK
}

/// What the host builds, and the benches' programs.
struct WithBenches(Box<dyn Source>);

impl Source for WithBenches {
    fn program(&self, bytes: &[u8], prints: &Prints) -> Result<Program, String> {
        brambling_bench::program(bytes).unwrap_or_else(|| self.0.program(bytes, prints))
    }
    fn caller(&self) -> Box<dyn Caller> {
        self.0.caller()
    }
    fn ended(&self, prints: &Prints) {
        self.0.ended(prints);
    }
    fn kernel(&self, prints: &Prints) -> Option<String> {
        self.0.kernel(prints)
    }
    fn interrupt(&self, prints: &Prints) {
        self.0.interrupt(prints);
    }
    fn explain(&self, failure: &Failure) -> String {
        self.0.explain(failure)
    }
    fn cause(&self, failure: &Failure) -> Vec<u8> {
        self.0.cause(failure)
    }
}

pub(crate) fn worker(
    arguments: WorkerArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    match run_worker(arguments, host, streams) {
        Ok(code) => code,
        Err(error) => fail(streams, &error),
    }
}

fn run_worker(
    arguments: WorkerArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> Result<u8, Error> {
    // Of Ctrl-C the host need not be asked, which it cannot be while a kernel keeps its interpreter.
    let asked = StopRequest::watch_with_interrupts()?;
    let cluster = match (&arguments.at.controller, arguments.attached) {
        (Some(address), true) => Rendezvous::handed_over(address, &mut std::io::stdin().lock())?,
        _ => arguments.at.find()?,
    };
    forget_token(host);
    let Some(source) = host.source() else {
        let why = "this command knows no programs that clients could send".into();
        return Err(ClusterError::Refused { why }.into());
    };
    let mut settings = Settings::default();
    (settings.threads, settings.memory) = (arguments.threads, arguments.memory);
    settings.spill = arguments.spill;
    let threads = settings.resolve()?.threads;
    let options = WorkerOptions {
        cluster,
        settings,
        bind: None,
    };
    let listener = arguments.metrics.bind()?;
    let worker = WorkerProcess::start(options, Box::new(WithBenches(source)))?;
    let serve = |listener| worker.serve_metrics(listener);
    let endpoint = listener.map(serve).transpose()?;
    if arguments.attached {
        // Whoever started it holds the other end: it ends with them, also when they are killed.
        brambling::cluster::set_when_input_ends(asked.0.clone())?;
    }
    let mut is_told = false;
    let name = || worker.name().map_or_else(String::new, |it| it.to_string());
    while !asked.is_set() {
        if let Some(text) = worker.spill_news() {
            streams.err(format!("worker {} has {text}", name()));
        }
        for text in worker.stuck_news() {
            streams.err(format!("worker {}: {text}", name()));
        }
        match worker.wait(LOOKS) {
            Some(WorkerEnd::Failed(error)) => return Err(error.into()),
            Some(WorkerEnd::Drained) => {
                streams.out(format!(
                    "worker {} was drained: it holds nothing, and ends\n",
                    name()
                ));
                return Ok(OK);
            }
            Some(end @ WorkerEnd::Stuck { .. }) => {
                streams.err(format!("worker {} ends: {end}", name()));
                return Ok(STUCK);
            }
            Some(end @ WorkerEnd::Fenced { .. }) => {
                streams.err(format!("worker {} ends: {end}", name()));
                return Ok(FENCED);
            }
            Some(WorkerEnd::Asked) | None => {}
        }
        if let (false, Some(name)) = (is_told || arguments.attached, worker.name()) {
            let at = worker.listens_at();
            let metrics = metrics::told(endpoint.as_ref());
            streams.out(format!(
                "worker {name} at {at}: {threads} threads\n{metrics}"
            ));
            is_told = true;
        }
    }
    Ok(OK)
}

pub(crate) fn cluster(
    arguments: &ClusterArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    match run_cluster(arguments, host, streams) {
        Ok(()) => OK,
        Err(error) => fail(streams, &error),
    }
}

fn run_cluster(
    arguments: &ClusterArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> Result<(), Error> {
    let asked = StopRequest::watch()?;
    let ClusterArguments {
        bind,
        jobs,
        metrics,
        tls,
        ..
    } = arguments;
    let running = Running::start(bind, jobs, metrics, None, tls, host)?;
    running.warn(streams);
    let mut settings = Settings::default();
    settings.spill = arguments.spill.clone();
    let settings = settings.resolve()?;
    let share = Share {
        threads: arguments.threads,
        memory_bytes: settings.memory_bytes / u64::from(arguments.workers),
        spill: settings.spill.map(|to| to.share(arguments.workers)),
    };
    // What workers print is seen, and is no answer of this command's.
    let prints = || std::io::stderr().into();
    let command = host.command();
    let mut workers = Children::start(&command, &running.at, arguments.workers, &share, prints)?;
    let count = arguments.workers as usize;
    let deadline = Instant::now() + STARTING;
    let mut is_told = false;
    while !asked.to_end(host) {
        for ended in workers.ended() {
            running.controller.process_ended(ended.end());
            streams.err(ended.to_string());
            // They say themselves that another one is to take their place.
            if matches!(ended.status.code(), Some(code) if [FENCED, STUCK].map(i32::from).contains(&code))
            {
                workers.start_again(ended.place)?;
            }
        }
        if workers.running() == 0 {
            let why = "all workers have ended; what they said stands above".into();
            return Err(ClusterError::Refused { why }.into());
        }
        let registered = running.controller.workers();
        if !is_told && (registered == count || Instant::now() > deadline) {
            is_told = true;
            streams.out(format!(
                "a cluster of {registered} workers with {} threads each at {}; end it with Ctrl-C\n{}",
                arguments.threads,
                running.at.address,
                metrics::told(running.metrics.as_ref())
            ));
        }
        std::thread::sleep(LOOKS);
    }
    Ok(())
}

/// How a cluster fares. The keys are stable.
#[derive(Serialize)]
struct Report {
    /// Whose term it is; 0: the cluster does not outlive its controller.
    term: u32,
    workers: Vec<WorkerLine>,
    jobs: Vec<JobLine>,
    /// Workers that were lost, the newest last.
    deaths: Vec<DeathLine>,
}

#[derive(Serialize)]
struct WorkerLine {
    id: String,
    pid: u32,
    host: String,
    threads: u32,
    shards: u32,
    memory_bytes: u64,
    idle_share: f64,
    /// Kernels that it cannot end though their jobs are over.
    stuck: Vec<StuckLine>,
    /// How long it has told nothing.
    silent_s: f64,
}

#[derive(Serialize)]
struct StuckLine {
    job: String,
    /// Empty where it is not known.
    stage: String,
    seconds: u64,
}

#[derive(Serialize)]
pub(crate) struct JobLine {
    id: String,
    name: String,
    /// queued, running, succeeded or failed.
    state: &'static str,
    generation: u64,
    /// Tasks that have run.
    position: u64,
    failure: Option<String>,
    /// What it waits for, if it has not begun.
    waits: Option<String>,
    /// The cut of its last snapshot.
    cut: Option<u64>,
    /// How long ago that was taken, as far as this controller knows.
    last_snapshot_age_s: Option<f64>,
}

impl From<JobStatus> for JobLine {
    fn from(status: JobStatus) -> JobLine {
        JobLine {
            id: status.id.to_string(),
            name: status.name,
            state: crate::jobs::state(status.state),
            generation: status.generation.0,
            position: status.position,
            failure: status.failure,
            waits: status.waits,
            cut: status.cut,
            last_snapshot_age_s: status.snapshot_age_ms.map(|ms| (ms / 100) as f64 / 10.0),
        }
    }
}

impl From<Status> for Report {
    fn from(status: Status) -> Report {
        let workers = status.workers.into_iter().map(|it| WorkerLine {
            id: it.id.to_string(),
            pid: it.pid,
            host: it.host,
            threads: it.threads,
            shards: it.shards,
            memory_bytes: it.memory_bytes,
            idle_share: f64::from(it.idle_permille) / 1_000.0,
            stuck: (it.stuck.into_iter())
                .map(|it| StuckLine {
                    job: it.key.job.to_string(),
                    stage: it.stage,
                    seconds: it.seconds,
                })
                .collect(),
            silent_s: (it.silent_ms / 100) as f64 / 10.0,
        });
        let jobs = status.jobs.into_iter().map(JobLine::from);
        let deaths = status.deaths.into_iter().map(DeathLine::from);
        Report {
            term: status.term,
            workers: workers.collect(),
            jobs: jobs.collect(),
            deaths: deaths.collect(),
        }
    }
}

/// A cluster's state as JSON text. For other languages' packages as well.
pub fn status_json(status: Status) -> String {
    serde_json::to_string(&Report::from(status)).expect("texts and numbers")
}

pub(crate) fn status(at: &Where, streams: &mut Streams<'_>) -> u8 {
    let status = at.find().and_then(|at| Cluster::connect(&at)?.status());
    match status {
        Ok(status) => {
            streams.out(status_json(status) + "\n");
            OK
        }
        Err(error) => fail(streams, &error),
    }
}
