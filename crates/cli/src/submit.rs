//! `brambling submit`: a script that runs detached from the terminal, and whose programs run on the cluster.

use crate::cluster::{Where, fail};
use crate::logs::{self, NewLog};
use crate::reports::Wanted;
use crate::{FAILED, Host, INTERRUPTED, OK, Streams, USAGE, run};
use brambling::cluster::{
    CONTROLLER_VARIABLE, Cluster, ClusterError, JobId, Rendezvous, SUBMISSION_VARIABLE,
    TLS_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE,
};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The setting in the script's environment.
const WEIGHT_VARIABLE: &str = "BRAMBLING_WEIGHT";
/// How often it is looked whether the script has a job.
const LOOKS: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(crate) struct SubmitArguments {
    #[command(flatten)]
    at: Where,
    /// Its jobs' share of the threads beside other jobs, 1 to 1000; otherwise as for any program
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    weight: Option<u32>,
    /// A Python file, or the name of an example; and what is passed on to it
    #[arg(
        value_name = "FILE.py|EXAMPLE",
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    script: Vec<String>,
}

/// A script that has no job yet. Dropping it ends it.
struct Script(Option<Child>);

impl Script {
    /// Starts it, with its output in the log. It becomes a session of its own.
    fn start(command: Command, log: &NewLog) -> Result<Script, ClusterError> {
        let mut command = command;
        let failed = |source| ClusterError::System { source };
        // The lock is held for as long as anybody has these open.
        let output = || log.file.try_clone().map(Stdio::from).map_err(failed);
        command
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(output()?);
        Ok(Script(Some(command.spawn().map_err(failed)?)))
    }

    /// How it has ended, if it has.
    fn end(&mut self) -> Option<ExitStatus> {
        self.0.as_mut().and_then(|child| child.try_wait().ok()?)
    }

    /// It goes on by itself.
    fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What became of a script.
enum Came {
    ToAJob(JobId),
    ToItsEnd(ExitStatus),
    /// The user does not wait for it any more.
    Interrupted,
}

pub(crate) fn submit(
    arguments: &SubmitArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let (script, args) = arguments.script.split_first().expect("at least one");
    if let Err(why) = run::find("submit", script, host) {
        streams.err(why);
        return USAGE;
    }
    let submitted = start(script, args, arguments, host);
    let came = submitted.and_then(|(cluster, log, script)| {
        let came = wait(&cluster, &log, script, host)?;
        Ok((came, log))
    });
    match came {
        Ok((Came::ToAJob(job), _)) => {
            streams.out(format!("{job}\n"));
            OK
        }
        Ok((Came::Interrupted, _)) => INTERRUPTED,
        Ok((Came::ToItsEnd(status), log)) => ended(script, status, &log, streams),
        Err(error) => fail(streams, &error),
    }
}

fn start(
    script: &str,
    args: &[String],
    SubmitArguments { at, weight, .. }: &SubmitArguments,
    host: &dyn Host,
) -> Result<(Cluster, NewLog, Script), ClusterError> {
    let found = at.find()?;
    let cluster = Cluster::connect(&found)?;
    let log = NewLog::create(Path::new(script))?;
    let words = host.command();
    let (program, first) = words.split_first().expect("a command has a program");
    let mut command = Command::new(program);
    command
        .args(first)
        .args(["run-detached", script])
        .args(args);
    connects(&mut command, at, &found);
    command.env(SUBMISSION_VARIABLE, &log.name);
    if let Some(weight) = weight {
        command.env(WEIGHT_VARIABLE, weight.to_string());
    }
    // What it says is in its log when it says it.
    command.env("PYTHONUNBUFFERED", "1");
    let script = Script::start(command, &log)?;
    Ok((cluster, log, script))
}

/// Programs of the process run on the cluster.
fn connects(command: &mut Command, at: &Where, found: &Rendezvous) {
    command.env(CONTROLLER_VARIABLE, found.address.to_string());
    if let Some(file) = at.token_file() {
        // The file and not what is in it, which all would see who look at the script. It may change its directory.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        command.env(TOKEN_FILE_VARIABLE, file);
        command.env_remove(TOKEN_VARIABLE);
    }
    if let Some(tls) = &found.tls {
        command.env(TLS_VARIABLE, tls.folder());
    }
}

/// Waits until the script has a job, or ends without one.
fn wait(
    cluster: &Cluster,
    log: &NewLog,
    mut script: Script,
    host: &mut dyn Host,
) -> Result<Came, ClusterError> {
    loop {
        // Looked at first: a script that has ended gets no job after that.
        let end = script.end();
        let jobs = cluster.jobs()?.into_iter();
        let is_its = |log_name: Option<String>| log_name.as_ref() == Some(&log.name);
        let mut its = jobs.filter(|job| is_its(job.client.as_ref().and_then(|it| it.log.clone())));
        if let Some(job) = its.next() {
            script.let_go();
            return Ok(Came::ToAJob(job.status.id));
        }
        if let Some(status) = end {
            return Ok(Came::ToItsEnd(status));
        }
        if host.interrupted() {
            return Ok(Came::Interrupted);
        }
        std::thread::sleep(LOOKS);
    }
}

/// Says how a script has ended that had no job; the exit code.
fn ended(script: &str, status: ExitStatus, log: &NewLog, streams: &mut Streams<'_>) -> u8 {
    logs::print_to_errors(log, streams);
    let path = log.path.display();
    if status.success() {
        streams.err(format!(
            "error: {script} has ended without a job on the cluster; what it said is in {path}"
        ));
        return FAILED;
    }
    streams.err(format!(
        "error: {script} has ended before it had a job ({status}); what it said stands above, and in {path}"
    ));
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(FAILED)
}

/// The process of a script that was submitted: no terminal ends it.
pub(crate) fn run_detached(
    script: &str,
    args: &[String],
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    if let Err(error) = rustix::process::setsid() {
        streams.err(format!("error: no session of its own: {error}"));
        return FAILED;
    }
    let kept = run::KeptIn {
        store: None,
        fresh: false,
    };
    run::run((script, args), &kept, &Wanted::default(), host, streams)
}
