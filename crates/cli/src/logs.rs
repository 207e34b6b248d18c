//! `brambling logs`: what a script that `brambling submit` has started has said. Its log is a file of the account that started it; who holds it
//! open to write holds a lock on it, so that others see when nothing more comes.

use crate::cluster::{Where, fail};
use crate::shards::{connect, job};
use crate::{Host, INTERRUPTED, OK, Streams, jobs};
use brambling::Error;
use brambling::cluster::{Client, ClusterError, JobId, Rendezvous, ourselves};
use std::fs::{DirEntry, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Where logs are, among what commands leave.
const FOLDER: &str = "logs";
/// Nobody else reads them.
const MODE: u32 = 0o600;
/// How often a log that is followed is looked at.
const LOOKS: Duration = Duration::from_millis(100);
/// How many logs are kept when another one is made, beside those that are still written: of as many jobs as the controller lists.
const KEPT: usize = 100;
/// Digits that tell logs of the same script apart, on all machines.
const DIGITS: usize = 12;

#[derive(clap::Args)]
pub(crate) struct LogsArguments {
    /// A job, as `brambling jobs` names it
    #[arg(value_name = "JOB", value_parser = job)]
    job: JobId,
    /// Print what comes as well, until the script has ended
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    at: Where,
}

/// A new log.
pub(crate) struct NewLog {
    /// What the cluster knows it by.
    pub name: String,
    pub path: PathBuf,
    /// Locked.
    pub file: File,
}

fn folder() -> Result<PathBuf, ClusterError> {
    Ok(Rendezvous::state_folder()?.join(FOLDER))
}

fn at_path(path: &Path) -> impl Fn(std::io::Error) -> ClusterError {
    let path = path.to_owned();
    move |source| ClusterError::File {
        path: path.clone(),
        source,
    }
}

impl NewLog {
    /// Makes the log of a script, which nobody else can read.
    pub(crate) fn create(script: &Path) -> Result<NewLog, ClusterError> {
        let folder = Rendezvous::private_folder(FOLDER)?;
        clear_away(&folder, KEPT);
        let stem = script.file_stem().unwrap_or_default().to_string_lossy();
        let random = Rendezvous::new_token()?.to_hex();
        let name = format!("{stem}-{}.log", &random[..DIGITS]);
        let path = folder.join(&name);
        let mut options = OpenOptions::new();
        let options = options.append(true).create_new(true).mode(MODE);
        let file = options.open(&path).map_err(at_path(&path))?;
        // Whatever the account's umask says.
        let permitted = file.set_permissions(Permissions::from_mode(MODE));
        permitted.map_err(at_path(&path))?;
        file.lock().map_err(at_path(&path))?;
        Ok(NewLog { name, path, file })
    }
}

/// Deletes the logs that nobody writes any more, but for so many of the newest. What cannot be read or deleted stays.
fn clear_away(folder: &Path, kept: usize) {
    let Ok(entries) = folder.read_dir() else {
        return;
    };
    let written = |entry: DirEntry| {
        // Of a link this is the link itself.
        let metadata = entry.metadata().ok().filter(Metadata::is_file)?;
        let path = entry.path();
        let is_log = path.extension().is_some_and(|it| it == "log");
        is_log.then_some((metadata.modified().ok()?, path))
    };
    let mut logs: Vec<(SystemTime, PathBuf)> = entries.flatten().filter_map(written).collect();
    logs.sort_unstable_by(|one, other| other.cmp(one));
    for (_, path) in logs.iter().skip(kept) {
        let is_over = File::open(path).is_ok_and(|file| file.try_lock().is_ok());
        if is_over {
            let _ = std::fs::remove_file(path);
        }
    }
}

pub(crate) fn logs(
    arguments: &LogsArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let LogsArguments { job, follow, at } = arguments;
    let opened = open(*job, at);
    let printed = opened
        .and_then(|(file, path)| Ok(print(file, *follow, host, streams).map_err(at_path(&path))?));
    match printed {
        Ok(code) => code,
        Err(error) => fail(streams, &error),
    }
}

/// The log of a job's script, if it is here.
fn open(job: JobId, at: &Where) -> Result<(File, PathBuf), Error> {
    let client = jobs::details(&connect(at)?, job)?.client;
    let (client, name) = match client {
        Some(Client {
            log: Some(ref name),
            ..
        }) => (client.clone().expect("just seen"), name.clone()),
        _ => return Err(refused(no_log(job, client.as_ref())).into()),
    };
    let folder = folder()?;
    let path = folder.join(&name);
    // Names come from whoever knows the token: none leads out of the folder.
    let is_name = Path::new(&name)
        .file_name()
        .is_some_and(|it| it == name.as_str());
    let opened = match is_name {
        true => File::open(&path),
        false => Err(ErrorKind::NotFound.into()),
    };
    match opened {
        Ok(file) => Ok((file, path)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(refused(elsewhere(job, &client, &folder)).into())
        }
        Err(error) => Err(at_path(&path)(error).into()),
    }
}

fn refused(why: String) -> ClusterError {
    ClusterError::Refused { why }
}

fn no_log(job: JobId, client: Option<&Client>) -> String {
    let of = client.map_or_else(String::new, |it| {
        format!(": process {} of {} on {}", it.pid, it.user, it.host)
    });
    format!(
        "job {job} has no log; it was not started by `brambling submit`, and its output is where its client was started{of}"
    )
}

fn elsewhere(job: JobId, client: &Client, folder: &Path) -> String {
    let Client { user, host, .. } = client;
    let here = ourselves();
    if *host != here.host {
        return format!(
            "the log of job {job} is not on {}: it was submitted on {host} by {user}; run `brambling logs {job}` there",
            here.host
        );
    }
    format!(
        "the log of job {job} is not in {}: it was submitted by {user}, and logs are read by the account that has submitted them; or it was deleted, as all are but the newest {KEPT}",
        folder.display()
    )
}

/// Prints what is there; when followed, also what comes until nobody writes any more.
fn print(
    mut file: File,
    follow: bool,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> std::io::Result<u8> {
    loop {
        // Asked before the rest is read, so that nothing comes after it.
        let has_ended = !follow || !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        if !copy(&mut file, streams)? || has_ended {
            return Ok(OK);
        }
        if host.interrupted() {
            return Ok(INTERRUPTED);
        }
        std::thread::sleep(LOOKS);
    }
}

/// Copies up to the file's end. False: nobody reads any more.
fn copy(file: &mut File, streams: &mut Streams<'_>) -> std::io::Result<bool> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut bytes)?;
        if read == 0 {
            return Ok(streams.out.flush().is_ok());
        }
        if streams.out.write_all(&bytes[..read]).is_err() {
            return Ok(false);
        }
    }
}

/// All that a log says, where it went wrong.
pub(crate) fn print_to_errors(log: &NewLog, streams: &mut Streams<'_>) {
    if let Ok(mut file) = File::open(&log.path) {
        let _ = std::io::copy(&mut file, &mut streams.err);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of logs that nobody writes the newest stay; one that is still written stays however old it is, and so does what is no log.
    #[test]
    fn old_logs_are_deleted() {
        let folder = format!("brambling-logs-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir(&folder).unwrap();
        let now = SystemTime::now();
        let make = |name: &str, seconds_ago| {
            let file = File::create(folder.join(name)).unwrap();
            let at = now - Duration::from_secs(seconds_ago);
            file.set_modified(at).unwrap();
            file
        };
        for (name, seconds_ago) in [
            ("new.log", 1),
            ("newer.log", 0),
            ("old.log", 9),
            ("notes.txt", 10),
        ] {
            drop(make(name, seconds_ago));
        }
        let written = make("running.log", 8);
        written.lock().unwrap();
        clear_away(&folder, 2);
        let left = || {
            let names = folder.read_dir().unwrap();
            let mut names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(left(), ["new.log", "newer.log", "notes.txt", "running.log"]);
        drop(written);
        clear_away(&folder, 2);
        assert_eq!(left(), ["new.log", "newer.log", "notes.txt"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
