//! The file that keeps a host's profile: `brambling/machine.json` in the user's folder for caches.
//!
//! A file of another machine, of a newer version, or that holds something else is refused with a word on what to do: figures of another
//! machine are worse than none. It is replaced as a whole or not at all.

use super::{MachineName, Profile, VERSION};
use serde::Deserialize;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

const MEASURE: &str = "`brambling probe` measures this machine again, and replaces it";

/// Why there is no profile to be had, or it cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// There is no folder for caches.
    #[error(
        "there is no folder for the probe's file: neither XDG_CACHE_HOME nor HOME names one; set one of them"
    )]
    NoFolder,
    /// The file cannot be read.
    #[error(
        "the probe's file {path} cannot be read: {source}; change its rights, or name another folder in XDG_CACHE_HOME"
    )]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It holds something else.
    #[error("the probe's file {path} is damaged: {why}; {MEASURE}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It is of a newer version.
    #[error(
        "the probe's file {path} is of version {version}, and this brambling reads version {VERSION}: a newer one has written it; use that, or {MEASURE}"
    )]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its version.
        version: u64,
    },
    /// It is of another machine.
    #[error(
        "the probe's file {path} is of another machine: {} there, {} here; {MEASURE}",
        told(theirs),
        told(ours)
    )]
    OtherMachine {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        theirs: Box<MachineName>,
        /// Where this process runs.
        ours: Box<MachineName>,
    },
    /// It cannot be written.
    #[error(
        "what was measured cannot be kept in {path}: {source}; change the folder's rights, or name another one in XDG_CACHE_HOME"
    )]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system does not tell what this machine is.
    #[error(
        "the CPUs of this process cannot be read: {0}; let it call sched_getaffinity (a seccomp filter may forbid it)"
    )]
    Machine(io::Error),
}

fn told(machine: &MachineName) -> String {
    let MachineName { host, cpu, cpus } = machine;
    format!("{host} with {cpus} CPUs ({cpu})")
}

/// Where the profile of this host is kept: in $XDG_CACHE_HOME, or ~/.cache.
///
/// # Errors
/// When neither variable names a folder.
pub fn cache_path() -> Result<PathBuf, ProfileError> {
    // Both are ignored where they are relative, as the XDG specification wants.
    let named = |variable: &str| {
        let folder = PathBuf::from(std::env::var_os(variable)?);
        folder.is_absolute().then_some(folder)
    };
    let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    let folder = caches.ok_or(ProfileError::NoFolder)?;
    Ok(folder.join("brambling").join("machine.json"))
}

impl Profile {
    /// What was last measured on this host; none where nothing was.
    ///
    /// # Errors
    /// When the file is another machine's, of a newer version, damaged or not to be read. Each says what to do.
    pub fn cached() -> Result<Option<Profile>, ProfileError> {
        Profile::read(&cache_path()?)
    }

    /// As [`Profile::cached`], of a file of any name.
    ///
    /// # Errors
    /// As of [`Profile::cached`].
    pub fn read(path: &Path) -> Result<Option<Profile>, ProfileError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                let path = path.to_owned();
                return Err(ProfileError::Read { path, source });
            }
        };
        let ours = MachineName::of_this_host().map_err(ProfileError::Machine)?;
        parsed(path, &text, ours).map(Some)
    }

    /// Keeps the profile where [`Profile::cached`] finds it; the file's name.
    ///
    /// # Errors
    /// When it cannot be written. What was there before stays.
    pub fn save(&self) -> Result<PathBuf, ProfileError> {
        let path = cache_path()?;
        self.write(&path)?;
        Ok(path)
    }

    /// As [`Profile::save`], to a file of any name.
    ///
    /// # Errors
    /// As of [`Profile::save`].
    pub fn write(&self, path: &Path) -> Result<(), ProfileError> {
        let write = || {
            let folder = path.parent().ok_or(ErrorKind::InvalidInput)?;
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|source| ProfileError::Write {
            path: path.to_owned(),
            source,
        })
    }
}

/// What every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

fn parsed(path: &Path, text: &[u8], ours: MachineName) -> Result<Profile, ProfileError> {
    let path = || path.to_owned();
    let damaged = |why: String| ProfileError::Damaged { path: path(), why };
    let json = |error: serde_json::Error| damaged(error.to_string());
    let Versioned { version } = serde_json::from_slice(text).map_err(json)?;
    if version > u64::from(VERSION) {
        return Err(ProfileError::Newer {
            path: path(),
            version,
        });
    }
    let profile: Profile = serde_json::from_slice(text).map_err(json)?;
    if profile.version != VERSION {
        return Err(damaged(format!("there is no version {version}")));
    }
    if profile.network.as_ref().is_some_and(|it| !it.is_whole()) {
        return Err(damaged("a flow is of a host that is not listed".into()));
    }
    let is_speed = |value: f64| value.is_finite() && value > 0.0;
    if let Some((what, _)) = profile.settled().find(|(_, it)| !is_speed(it.median())) {
        return Err(damaged(format!("the figure for {what} is no speed")));
    }
    if profile.machine != ours {
        return Err(ProfileError::OtherMachine {
            path: path(),
            theirs: Box::new(profile.machine),
            ours: Box::new(ours),
        });
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::lookup::tests::{network, sample};

    fn told(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("machine.json");
        std::fs::write(&path, text).unwrap();
        let error = Profile::read(&path).unwrap_err().to_string();
        error.replace(&path.display().to_string(), "PATH")
    }

    #[test]
    fn what_is_kept_is_found_again_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("brambling").join("machine.json");
        assert_eq!(Profile::read(&path).unwrap(), None);
        let mut profile = sample();
        // Not every decimal number reads back to the bits that it was written of.
        profile.memory[0].read_bytes_per_s.figure.max = 28_514_812_665.477_806;
        profile.memory[0].read_bytes_per_s.figure.min = 1e10 / 3.0;
        profile.write(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), Some(profile.clone()));
        profile.memory.clear();
        profile.write(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), Some(profile));
        let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no file of a half-written profile stays");
    }

    #[test]
    fn the_file_has_the_keys_that_are_promised() {
        let json = serde_json::to_value(sample()).unwrap();
        for key in [
            "version",
            "host",
            "cpu",
            "cpus",
            "measured_at",
            "disks",
            "memory",
            "tables",
            "flops",
            "loopback",
            "network",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["memory"][0]["read_bytes_per_s"]["median"], 10e9);
    }

    #[test]
    fn a_newer_version_is_refused_whatever_else_it_has() {
        let answer = told(r#"{"version": 2, "speeds": []}"#);
        assert_eq!(
            answer,
            "the probe's file PATH is of version 2, and this brambling reads version 1: a newer one has written it; use that, or \
             `brambling probe` measures this machine again, and replaces it"
        );
    }

    #[test]
    fn a_damaged_file_is_refused_with_what_is_wrong() {
        for text in [
            "",
            "{",
            "[]",
            "null",
            r#"{"version": "1"}"#,
            r#"{"version": 1}"#,
            r#"{"version": 0}"#,
            "\u{0}",
        ] {
            let answer = told(text);
            assert!(
                answer.starts_with("the probe's file PATH is damaged: "),
                "{text}: {answer}"
            );
            assert!(
                answer.ends_with("`brambling probe` measures this machine again, and replaces it")
            );
        }
        let mut profile = sample();
        profile.version = 0;
        let answer = told(&serde_json::to_string(&profile).unwrap());
        assert!(answer.contains("there is no version 0"), "{answer}");
        profile.version = VERSION;
        profile.memory[0].read_bytes_per_s.figure.median = -1.0;
        let answer = told(&serde_json::to_string(&profile).unwrap());
        assert!(
            answer.contains("the figure for reading memory by 1 thread is no speed"),
            "{answer}"
        );
    }

    #[test]
    fn a_flow_of_no_host_is_damage() {
        let mut profile = sample();
        profile.network = Some(network());
        assert!(
            parsed(
                Path::new("it"),
                &serde_json::to_vec(&profile).unwrap(),
                profile.machine.clone()
            )
            .is_ok()
        );
        profile.network.as_mut().unwrap().all_to_all[0].to = 3;
        let answer = told(&serde_json::to_string(&profile).unwrap());
        assert!(
            answer.contains("a flow is of a host that is not listed"),
            "{answer}"
        );
    }

    #[test]
    fn another_machine_s_file_is_refused() {
        let changes: [fn(&mut MachineName); 3] = [
            |it| it.host = "elsewhere".into(),
            |it| it.cpu = "Other CPU".into(),
            |it| it.cpus += 1,
        ];
        for change in changes {
            let mut profile = sample();
            change(&mut profile.machine);
            let answer = told(&serde_json::to_string(&profile).unwrap());
            assert!(
                answer.starts_with("the probe's file PATH is of another machine: "),
                "{answer}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let in_the_way = dir.path().join("file");
        std::fs::write(&in_the_way, "text").unwrap();
        let answer = sample()
            .write(&in_the_way.join("machine.json"))
            .unwrap_err()
            .to_string();
        assert!(
            answer.starts_with("what was measured cannot be kept in "),
            "{answer}"
        );
        assert_eq!(std::fs::read(&in_the_way).unwrap(), b"text");
    }
}
