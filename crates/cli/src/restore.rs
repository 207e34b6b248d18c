//! `brambling restore`: a job goes on from one of its snapshots, here or on a cluster.

use crate::cluster::{TlsFolder, TokenFile, fail};
use crate::{FAILED, Host, HostCluster, OK, Streams, USAGE, run};
use brambling::cluster::{Cluster, Rendezvous};
use brambling::{ChosenSnapshot, Settings, SnapshotStore, set_restore};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct RestoreArguments {
    /// A snapshot, as `brambling snapshots` names it; a damaged one is named, and the one before it used
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,
    /// Run it on the cluster of this controller, whatever its workers are; otherwise in this process
    #[arg(long, value_name = "HOST:PORT")]
    on: Option<String>,
    /// Where it was saved: a directory, or s3://BUCKET/PREFIX; otherwise the setting store
    #[arg(long, value_name = "DIR")]
    store: Option<String>,
    /// Without a script: where its results go, a file for each dataset that the program keeps; otherwise restored-JOB-CUT
    #[arg(long, value_name = "DIR", conflicts_with = "script")]
    output: Option<PathBuf>,
    #[command(flatten)]
    token: TokenFile,
    #[command(flatten)]
    tls: TlsFolder,
    /// The script that made it, and its arguments: it gets the results. Needed where the program begins with data of the script
    #[arg(
        value_name = "FILE.py|EXAMPLE",
        num_args = 0..,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    script: Vec<String>,
}

/// What was typed cannot be done, and the exit code.
type Refused = (u8, String);

pub(crate) fn restore(
    arguments: &RestoreArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    match begun(arguments, host, streams) {
        Ok(code) => code,
        Err((code, why)) => {
            streams.err(why);
            code
        }
    }
}

fn begun(
    arguments: &RestoreArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> Result<u8, Refused> {
    if let Some((script, _)) = arguments.script.split_first() {
        run::find("restore", script, host).map_err(|why| (USAGE, why))?;
    }
    let store = store(arguments)?;
    let store = SnapshotStore::open(&store).map_err(|error| failed(&error))?;
    let mut told = Vec::new();
    let chosen = store.choose(&arguments.snapshot, |line| told.push(line));
    told.iter()
        .for_each(|line| streams.err(format!("warning: {line}")));
    let chosen = chosen.map_err(|error| failed(&error))?;
    reach(arguments, host)?;
    match arguments.script.split_first() {
        Some((script, args)) => Ok(with_script(chosen, (script, args), host, streams)),
        None => with_kept(chosen, arguments, host, streams),
    }
}

fn failed(error: &dyn std::error::Error) -> Refused {
    (FAILED, format!("error: {error}"))
}

/// The store that is given, or set.
fn store(arguments: &RestoreArguments) -> Result<String, Refused> {
    if let Some(store) = &arguments.store {
        return Ok(store.clone());
    }
    let settings = Settings::default().resolve();
    let settings = settings.map_err(|error| failed(&error))?;
    let store = settings.store.map(|store| store.to_string());
    store.ok_or_else(|| {
        let why = "error: no store is given; name the one in which the job was saved, as its controller has it: --store DIR, BRAMBLING_STORE, or store in brambling.toml";
        (USAGE, why.to_owned())
    })
}

/// Programs of this process run on the cluster from now on, if one is named.
fn reach(arguments: &RestoreArguments, host: &mut dyn Host) -> Result<(), Refused> {
    let Some(on) = &arguments.on else {
        return Ok(());
    };
    let (token_file, tls) = (arguments.token.path(), arguments.tls.path());
    let found = Rendezvous::find(Some(on), token_file, tls);
    // Looked at first: what is told of a controller that is not there is the same for all commands.
    found
        .and_then(|at| Cluster::connect(&at))
        .map_err(|error| failed(&error))?;
    let to = HostCluster {
        address: on,
        token_file,
        tls,
    };
    host.connect(to)
        .map_err(|why| (FAILED, format!("error: {why}")))
}

fn announce(chosen: &ChosenSnapshot, streams: &mut Streams<'_>) {
    streams.err(format!(
        "restoring `{}` from snapshot {}, {} turns of its loop done",
        chosen.program(),
        chosen.name(),
        chosen.turns()
    ));
}

/// The script runs again. Its program goes on from the snapshot, and the results are the script's.
fn with_script(
    chosen: ChosenSnapshot,
    (script, args): (&str, &[String]),
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    announce(&chosen, streams);
    set_restore(chosen);
    let code = match run::find("restore", script, host) {
        Ok(run::Is::Example) => host.run_example(script, args),
        _ => host.run_script(Path::new(script), args),
    };
    end(code, streams)
}

/// How it ends: a run that has not gone on from the snapshot is none.
fn end(code: u8, streams: &mut Streams<'_>) -> u8 {
    match brambling::end_restore() {
        // The script's own failure is what people have to read.
        Err(error) if code == OK => fail(streams, &error),
        _ => code,
    }
}

/// The program that was kept beside the snapshot runs; its results go to files.
fn with_kept(
    chosen: ChosenSnapshot,
    arguments: &RestoreArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> Result<u8, Refused> {
    let bytes = chosen.kept_program().map_err(|error| failed(&error))?;
    let default = || PathBuf::from(format!("restored-{}", chosen.file_name()));
    let folder = arguments.output.clone().unwrap_or_else(default);
    // Found out now, not when the job has ended.
    make(&folder).map_err(|why| (FAILED, why))?;
    announce(&chosen, streams);
    set_restore(chosen);
    let code = host.run_kept(&bytes, &folder);
    let code = end(code, streams);
    if code == OK {
        streams.out(format!("its results are in {}\n", folder.display()));
    } else {
        // Nothing was written: it goes if it was made for this.
        let _ = std::fs::remove_dir(&folder);
    }
    Ok(code)
}

fn make(folder: &Path) -> Result<(), String> {
    let refused = |why: &str| {
        format!(
            "error: the results cannot be written to {}: {why}; name another directory with --output",
            folder.display()
        )
    };
    std::fs::create_dir_all(folder).map_err(|error| refused(&error.to_string()))?;
    let mut there = std::fs::read_dir(folder).map_err(|error| refused(&error.to_string()))?;
    if there.next().is_some() {
        return Err(refused("there is something in it already"));
    }
    let probe = folder.join(".written");
    std::fs::write(&probe, []).map_err(|error| refused(&error.to_string()))?;
    let _ = std::fs::remove_file(probe);
    Ok(())
}
