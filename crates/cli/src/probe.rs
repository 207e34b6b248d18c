//! `brambling probe`: measures what this machine can do, and the network between hosts, and keeps it.

mod view;

use crate::args::named;
use crate::cluster::{StopRequest, TokenFile, fail, forget_token};
use crate::{FAILED, Host, INTERRUPTED, OK, Streams};
use brambling::Settings;
use brambling::cluster::{
    ClusterError, PROBE_PORT, ProbeError, ProbeListener, Rendezvous, Token, probe_hosts,
};
use brambling_machine::Profile;
use brambling_machine::probes::DiskFiles;
use brambling_machine::profile::{MeasureError, Measuring, ProbePart, ProfileError};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use view::age;

/// How often a listener looks whether it has to end.
const LOOKS: Duration = Duration::from_millis(50);
/// Parts of the progress bar.
const WHOLE: u64 = 1_000;
const NO_TOKEN: &str = "no token: a listener and whoever gives it orders know the same one; give a file with --token-file or in BRAMBLING_TOKEN_FILE, \
     or the token in BRAMBLING_TOKEN; `openssl rand -hex 32 > token` makes a new one";

#[derive(clap::Args)]
pub(crate) struct ProbeArguments {
    /// A directory whose disk is measured; several: once for each. Otherwise that of the setting `spill`, or the working directory
    #[arg(long = "dir", value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Measure this alone, and keep what was measured before of the rest
    #[arg(long, value_name = "PART[,PART]...", value_delimiter = ',', value_parser = named(ProbePart::ALL, ProbePart::name), conflicts_with_all = ["listen", "hosts"])]
    only: Vec<ProbePart>,
    /// Take orders from who probes several hosts; without an address from this machine alone
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["hosts", "json", "show"])]
    listen: Option<String>,
    /// Measure the network between these hosts, each with `brambling probe --listen`
    #[arg(long, value_name = "HOST:PORT,HOST:PORT...", value_delimiter = ',', conflicts_with_all = ["dirs", "show"])]
    hosts: Vec<String>,
    #[command(flatten)]
    token: TokenFile,
    /// Print what was measured last, and measure nothing
    #[arg(long, conflicts_with_all = ["dirs", "only"])]
    show: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why nothing was measured.
enum Failure {
    Interrupted,
    Failed(Box<dyn std::error::Error>),
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Failed(Box::new(error))
    }
}

pub(crate) fn probe(
    arguments: &ProbeArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let done = match arguments {
        ProbeArguments { show: true, .. } => show(arguments.json, streams),
        ProbeArguments {
            listen: Some(at), ..
        } => listen(at, arguments, host, streams),
        _ => measure(arguments, host, streams),
    };
    match done {
        Ok(code) => code,
        Err(Failure::Interrupted) => {
            streams.err("interrupted: nothing was kept");
            INTERRUPTED
        }
        Err(Failure::Failed(error)) => fail(streams, &*error),
    }
}

fn show(json: bool, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    match Profile::cached()? {
        Some(profile) => {
            streams.out(view::text(&profile, json));
            Ok(OK)
        }
        None => {
            streams.err("not probed: `brambling probe` (2 min)");
            Ok(FAILED)
        }
    }
}

fn measure(
    arguments: &ProbeArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let asked = StopRequest::watch()?;
    let token = match arguments.hosts.is_empty() {
        true => None,
        false => Some(token(arguments, host)?),
    };
    let what = measuring(arguments);
    let bar = bar();
    let mut watch = |doing: &str, done: f64| {
        bar.set_message(doing.to_owned());
        bar.set_position((done * WHOLE as f64) as u64);
        !asked.to_end(host)
    };
    let measured = match token {
        Some(token) => of_hosts(&arguments.hosts, &token, &mut watch),
        None => Profile::measure(&what, &mut watch).map_err(|error| match error {
            MeasureError::Interrupted => Failure::Interrupted,
            error => error.into(),
        }),
    };
    bar.finish_and_clear();
    let measured = measured?;
    streams.out(view::text(&measured, arguments.json));
    if let Some(text) = view::noise(&measured) {
        streams.err(text);
    }
    // Told after the figures, which are not lost when they cannot be kept.
    keep(measured, arguments.json, streams)?;
    Ok(OK)
}

fn of_hosts(
    hosts: &[String],
    token: &Token,
    watch: &mut dyn FnMut(&str, f64) -> bool,
) -> Result<Profile, Failure> {
    let mut profile = Profile::empty()?;
    let found = probe_hosts(hosts, token, watch).map_err(|error| match error {
        ProbeError::Interrupted => Failure::Interrupted,
        error => error.into(),
    });
    profile.network = Some(found?);
    Ok(profile)
}

/// What was measured takes the place of the same in the file; a file that cannot be used is replaced, aloud.
fn keep(measured: Profile, json: bool, streams: &mut Streams<'_>) -> Result<(), ProfileError> {
    let profile = match Profile::cached() {
        Ok(Some(mut old)) => {
            old.merge(measured);
            old
        }
        Ok(None) => measured,
        Err(
            error @ (ProfileError::Damaged { .. }
            | ProfileError::Newer { .. }
            | ProfileError::OtherMachine { .. }),
        ) => {
            streams.err(format!("replaced: {error}"));
            measured
        }
        Err(error) => return Err(error),
    };
    let path = profile.save()?;
    if !json {
        streams.out(format!("kept in {}\n", path.display()));
    }
    Ok(())
}

fn measuring(arguments: &ProbeArguments) -> Measuring {
    let parts = match arguments.only.is_empty() {
        true => ProbePart::ALL.to_vec(),
        false => arguments.only.clone(),
    };
    let dirs = match arguments.dirs.is_empty() {
        true => vec![spill().unwrap_or_else(|| ".".into())],
        false => arguments.dirs.clone(),
    };
    Measuring { parts, dirs }
}

/// Where jobs spill to, if they are to. What is wrong with settings, doctor tells.
fn spill() -> Option<PathBuf> {
    let spill = Settings::default().resolve().ok()?.spill?;
    Some(spill.directory)
}

fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}").expect("a template");
    ProgressBar::new(WHOLE).with_style(style)
}

/// The token that the user names, or that of the one cluster of this account.
fn token(arguments: &ProbeArguments, host: &mut dyn Host) -> Result<Token, ClusterError> {
    let given = Rendezvous::given_token(arguments.token.path())?;
    forget_token(host);
    let known = || Rendezvous::find(None, None, None).ok().map(|it| it.token);
    given.or_else(known).ok_or_else(|| ClusterError::Refused {
        why: NO_TOKEN.into(),
    })
}

fn listen(
    at: &str,
    arguments: &ProbeArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let asked = StopRequest::watch()?;
    let at = match at {
        "" => SocketAddr::from(([127, 0, 0, 1], PROBE_PORT)),
        at => at.parse().map_err(|_| ClusterError::Refused {
            why: format!("`{at}` is no address to listen at; give ADDR:PORT of this host, such as 10.0.0.7:{PROBE_PORT}"),
        })?,
    };
    let token = token(arguments, host)?;
    for dir in &arguments.dirs {
        // A directory that cannot be used is told now, not when somebody asks for it.
        DiskFiles::create(dir, 1, 1 << 20)?;
    }
    let listener = ProbeListener::start(at, token, arguments.dirs.clone())?;
    let at = listener.address();
    streams.out(format!(
        "probe at {at}; when all hosts listen, on one of them: brambling probe --hosts {at},OTHER:{PROBE_PORT}\n"
    ));
    while !asked.to_end(host) {
        std::thread::sleep(LOOKS);
    }
    Ok(OK)
}
