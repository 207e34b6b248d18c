//! Settings: arguments, then environment, then `brambling.toml`, then defaults.

mod in_use;
mod spill;
mod table;

pub use in_use::{InUse, SettingSource};
pub use spill::SpillTo;
pub use table::{ENVIRONMENT, SETTINGS, Setting};

use crate::store::{self, EVERY_GIVE};
use brambling_controller::snapshots::SnapshotEvery;
use brambling_machine::cpu::Processor;
use brambling_operators::simd::{self, Isa};
use brambling_protocol::patience::SILENCE;
use brambling_storage::StoreLocation;
use brambling_worker::executor::{STALL, WEIGHT_MAX};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The settings file, looked for in the working directory.
pub const FILE_NAME: &str = "brambling.toml";

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value of the wrong form or out of range.
    #[error("{source_name}: {name} = {value:?} is not usable: {problem}")]
    Value {
        /// Where it was given.
        source_name: String,
        /// Which setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What it should be.
        problem: String,
    },
    /// The settings file cannot be read.
    #[error("{} cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The settings file is malformed, or has a setting that does not exist.
    #[error("{} is not a settings file: {source}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// What the machine has cannot be found out.
    #[error("the CPUs of this process cannot be read")]
    Machine(#[source] std::io::Error),
}

/// What may be set. Unset ones fall through to the next source.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// Threads of the process's pool, 1 to 1,024.
    pub threads: Option<u32>,
    /// Partitions of blocked datasets whose count nobody gives, 1 to 16,777,216.
    pub partitions: Option<u32>,
    /// Instruction set of the kernels: v2, v3 or v4.
    pub isa: Option<String>,
    /// The memory budget: bytes, or a number with KB, MB, GB or TB.
    #[serde(default, deserialize_with = "size")]
    pub memory: Option<String>,
    /// Where a worker of a cluster spills pieces that find no room in memory: a directory, or a directory and its limit.
    pub spill: Option<String>,
    /// Seconds without progress after which a job that waits for completions is ended.
    pub stall_seconds: Option<f64>,
    /// Seconds that a kernel may run on after its job is over before it ends its worker of a cluster.
    pub stuck_kernel_s: Option<f64>,
    /// Whether long work shows how far it is, where somebody looks. For other languages' packages.
    pub progress: Option<bool>,
    /// What is logged: off, error, warning, info or debug. For other languages' packages.
    pub log: Option<String>,
    /// A job's share of the threads beside other jobs, 1 to 1,000.
    pub weight: Option<u32>,
    /// Where snapshots and results of jobs of this process are kept: a directory, or `s3://BUCKET/PREFIX`.
    pub store: Option<String>,
    /// How often a job with a store is saved: a time, a number of turns, or off.
    #[serde(default, deserialize_with = "size")]
    pub snapshot_every: Option<String>,
    /// How long a worker may tell its controller nothing before that gives it up: a time of at least a second.
    #[serde(default, deserialize_with = "size")]
    pub silence: Option<String>,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// What may be wrong.
    Warning,
    /// What began and what ended.
    Info,
    /// Whatever helps to find a mistake.
    Debug,
}

impl Log {
    /// All, quietest first.
    pub const ALL: [Log; 5] = [Log::Off, Log::Error, Log::Warning, Log::Info, Log::Debug];

    /// As settings and other languages call it.
    pub fn name(self) -> &'static str {
        match self {
            Log::Off => "off",
            Log::Error => "error",
            Log::Warning => "warning",
            Log::Info => "info",
            Log::Debug => "debug",
        }
    }

    fn named(name: &str) -> Option<Log> {
        Log::ALL.into_iter().find(|log| log.name() == name)
    }
}

/// Settings with every source consulted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resolved {
    /// Threads of the pool.
    pub threads: u32,
    /// Whether there are fewer CPUs than threads.
    pub oversubscribed: bool,
    /// Partitions of blocked datasets whose count nobody gives; none: they follow the data.
    pub partitions: Option<u32>,
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// The memory budget.
    pub memory_bytes: u64,
    /// Where a worker of a cluster spills pieces that find no room in memory.
    pub spill: Option<SpillTo>,
    /// How long a job may wait for completions.
    pub stall: Duration,
    /// How long a kernel may run on after its job is over before it ends its worker.
    pub stuck_kernel: Duration,
    /// Whether long work shows how far it is, where somebody looks.
    pub progress: bool,
    /// How much is logged.
    pub log: Log,
    /// A job's share of the threads beside other jobs.
    pub weight: u32,
    /// Where snapshots and results of jobs of this process are kept.
    pub store: Option<StoreLocation>,
    /// How often a job with a store is saved.
    pub snapshot_every: SnapshotEvery,
    /// How long a worker may tell its controller nothing before that gives it up.
    pub silence: Duration,
}

impl Resolved {
    /// A setting's value, as people read it.
    fn shown(&self, key: &str) -> String {
        match key {
            "threads" => self.threads.to_string(),
            "partitions" => self
                .partitions
                .map_or_else(|| "follow the data".to_owned(), |count| count.to_string()),
            "isa" => self.isa.to_string(),
            "memory" if self.memory_bytes >= UNLIMITED => "unlimited".to_owned(),
            "memory" => format!("{} bytes", self.memory_bytes),
            "spill" => {
                (self.spill.as_ref()).map_or_else(|| "nowhere".to_owned(), ToString::to_string)
            }
            "stall_seconds" => self.stall.as_secs_f64().to_string(),
            "stuck_kernel_s" => self.stuck_kernel.as_secs_f64().to_string(),
            "progress" => self.progress.to_string(),
            "log" => self.log.name().to_owned(),
            "weight" => self.weight.to_string(),
            "store" => (self.store.as_ref()).map_or_else(|| "none".to_owned(), ToString::to_string),
            "snapshot_every" => match self.snapshot_every {
                SnapshotEvery::Off => "off".to_owned(),
                SnapshotEvery::Time(every) => format!("{} s", every.as_secs_f64()),
                SnapshotEvery::Turns(turns) => format!("{turns} turns"),
            },
            "silence" => format!("{} s", self.silence.as_secs_f64()),
            _ => unreachable!("a setting's key"),
        }
    }
}

/// How long a kernel may run on after its job's end before its worker ends, unless a setting says
/// otherwise.
const STUCK_KERNEL: Duration = Duration::from_secs(60);

/// A setting's seconds, of which a clock cannot add any number: thirty years at most.
fn seconds(of: f64) -> Duration {
    Duration::from_secs_f64(of.min(1e9))
}

/// The budget where nothing limits it.
const UNLIMITED: u64 = u64::MAX / 2;

/// The kinds of places where settings are given.
#[derive(Clone, Copy)]
enum Place {
    Argument,
    Environment,
    File,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Argument => "argument",
            Place::Environment => "environment",
            Place::File => FILE_NAME,
        }
    }

    /// What a setting is called there.
    fn name_of(self, key: &'static str) -> &'static str {
        match self {
            Place::Argument | Place::File => key,
            Place::Environment => table::of(key).variable,
        }
    }
}

impl Settings {
    /// Consults environment, `brambling.toml` in the working directory, and defaults for what is unset here.
    ///
    /// # Errors
    /// Names the source, the setting and the fix of the first value that cannot be used.
    pub fn resolve(&self) -> Result<Resolved, SettingsError> {
        let environment = Settings::from_environment(|name| std::env::var(name).ok())?;
        let file = Settings::from_file(Path::new(FILE_NAME))?;
        let process = Settings {
            store: store::of_process(),
            ..Settings::default()
        };
        let given = self.clone().or(process);
        given.check(Place::Argument)?;
        given.or(environment).or(file).with_defaults()
    }

    fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        let [
            threads,
            partitions,
            isa,
            memory,
            spill,
            stall,
            stuck,
            progress,
            log,
            weight,
            store,
            snapshot_every,
            silence,
        ] = ENVIRONMENT;
        let settings = Settings {
            threads: parsed(&get, threads, "give a number")?,
            partitions: parsed(&get, partitions, "give a number")?,
            isa: get(isa),
            memory: get(memory),
            spill: get(spill),
            stall_seconds: parsed(&get, stall, "give a number")?,
            stuck_kernel_s: parsed(&get, stuck, "give a number")?,
            progress: parsed(&get, progress, "give true or false")?,
            log: get(log),
            weight: parsed(&get, weight, "give a number")?,
            store: get(store),
            snapshot_every: get(snapshot_every),
            silence: get(silence),
        };
        settings.check(Place::Environment)?;
        Ok(settings)
    }

    fn from_file(path: &Path) -> Result<Settings, SettingsError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Settings::default());
            }
            Err(source) => {
                return Err(SettingsError::Unreadable {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let settings: Settings =
            toml::from_str(&text).map_err(|source| SettingsError::Malformed {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        settings.check(Place::File)?;
        Ok(settings)
    }

    fn or(self, other: Settings) -> Settings {
        Settings {
            threads: self.threads.or(other.threads),
            partitions: self.partitions.or(other.partitions),
            isa: self.isa.or(other.isa),
            memory: self.memory.or(other.memory),
            spill: self.spill.or(other.spill),
            stall_seconds: self.stall_seconds.or(other.stall_seconds),
            stuck_kernel_s: self.stuck_kernel_s.or(other.stuck_kernel_s),
            progress: self.progress.or(other.progress),
            log: self.log.or(other.log),
            weight: self.weight.or(other.weight),
            store: self.store.or(other.store),
            snapshot_every: self.snapshot_every.or(other.snapshot_every),
            silence: self.silence.or(other.silence),
        }
    }

    /// Whether a setting is given here.
    fn has(&self, key: &str) -> bool {
        match key {
            "threads" => self.threads.is_some(),
            "partitions" => self.partitions.is_some(),
            "isa" => self.isa.is_some(),
            "memory" => self.memory.is_some(),
            "spill" => self.spill.is_some(),
            "stall_seconds" => self.stall_seconds.is_some(),
            "stuck_kernel_s" => self.stuck_kernel_s.is_some(),
            "progress" => self.progress.is_some(),
            "log" => self.log.is_some(),
            "weight" => self.weight.is_some(),
            "store" => self.store.is_some(),
            "snapshot_every" => self.snapshot_every.is_some(),
            "silence" => self.silence.is_some(),
            _ => unreachable!("a setting's key"),
        }
    }

    fn check(&self, place: Place) -> Result<(), SettingsError> {
        let refuse = |key, value: String, problem: &str| {
            Err(SettingsError::Value {
                source_name: place.name().into(),
                name: place.name_of(key),
                value,
                problem: problem.into(),
            })
        };
        match self {
            Settings {
                threads: Some(threads),
                ..
            } if !(1..=1_024).contains(threads) => refuse(
                "threads",
                threads.to_string(),
                "give a number from 1 to 1024",
            ),
            Settings {
                partitions: Some(count),
                ..
            } if !(1..=1 << 24).contains(count) => refuse(
                "partitions",
                count.to_string(),
                "give a number from 1 to 16777216",
            ),
            Settings {
                stall_seconds: Some(seconds),
                ..
            } if !(seconds.is_finite() && *seconds > 0.0) => refuse(
                "stall_seconds",
                seconds.to_string(),
                "give a positive number of seconds",
            ),
            Settings {
                stuck_kernel_s: Some(seconds),
                ..
            } if !(seconds.is_finite() && *seconds > 0.0) => refuse(
                "stuck_kernel_s",
                seconds.to_string(),
                "give a positive number of seconds",
            ),
            Settings {
                weight: Some(weight),
                ..
            } if !(1..=WEIGHT_MAX).contains(weight) => refuse(
                "weight",
                weight.to_string(),
                "give a number from 1 to 1000; a job of weight 2 gets twice the time of one of weight 1",
            ),
            Settings { isa: Some(isa), .. } if check_isa(isa).is_err() => {
                refuse("isa", isa.clone(), &check_isa(isa).expect_err("just seen"))
            }
            Settings {
                memory: Some(memory),
                ..
            } if parse_bytes(memory).is_none() => refuse(
                "memory",
                memory.clone(),
                "give bytes, or a number with KB, MB, GB or TB, such as 8GB",
            ),
            Settings {
                spill: Some(spill), ..
            } if SpillTo::parse(spill).is_err() => refuse(
                "spill",
                spill.clone(),
                SpillTo::parse(spill).expect_err("just seen"),
            ),
            Settings {
                store: Some(store), ..
            } if StoreLocation::parse(store).is_err() => refuse(
                "store",
                StoreLocation::without_user(store),
                &StoreLocation::parse(store).expect_err("just seen"),
            ),
            Settings {
                snapshot_every: Some(every),
                ..
            } if store::parse_every(every).is_none() => {
                refuse("snapshot_every", every.clone(), EVERY_GIVE)
            }
            Settings {
                silence: Some(silence),
                ..
            } if parse_silence(silence).is_none() => refuse(
                "silence",
                silence.clone(),
                "give a time of at least a second, such as 30s or 2min",
            ),
            Settings { log: Some(log), .. } if Log::named(log).is_none() => refuse(
                "log",
                log.clone(),
                "give off, error, warning, info or debug",
            ),
            _ => Ok(()),
        }
    }

    fn with_defaults(self) -> Result<Resolved, SettingsError> {
        let processor = Processor::read().map_err(SettingsError::Machine)?;
        let cpus = processor.default_threads() as u32;
        let threads = self.threads.unwrap_or(cpus);
        let isa = self
            .isa
            .as_deref()
            .map(check_isa)
            .and_then(Result::ok)
            .unwrap_or_else(simd::detect);
        let limits = brambling_memory::cgroup::MemoryLimits::of_this_process();
        let memory = self.memory.as_deref().and_then(parse_bytes);
        Ok(Resolved {
            threads,
            oversubscribed: threads > cpus,
            partitions: self.partitions,
            isa,
            memory_bytes: memory
                .or(limits.default_budget_bytes())
                .unwrap_or(UNLIMITED),
            spill: (self.spill.as_deref()).and_then(|text| SpillTo::parse(text).ok()),
            stall: self.stall_seconds.map_or(STALL, seconds),
            stuck_kernel: self.stuck_kernel_s.map_or(STUCK_KERNEL, seconds),
            progress: self.progress.unwrap_or(true),
            log: self.log.as_deref().and_then(Log::named).unwrap_or(Log::Off),
            weight: self.weight.unwrap_or(1),
            store: (self.store.as_deref()).and_then(|it| StoreLocation::parse(it).ok()),
            snapshot_every: (self.snapshot_every.as_deref())
                .and_then(store::parse_every)
                .unwrap_or(SnapshotEvery::DEFAULT),
            silence: (self.silence.as_deref())
                .and_then(parse_silence)
                .unwrap_or(SILENCE),
        })
    }
}

/// The shortest silence after which a worker may be given up: it tells four times a second that it is there.
const SILENCE_MIN: Duration = Duration::from_secs(1);

fn parse_silence(text: &str) -> Option<Duration> {
    match store::parse_every(text)? {
        SnapshotEvery::Time(silence) => Some(silence).filter(|it| *it >= SILENCE_MIN),
        SnapshotEvery::Off | SnapshotEvery::Turns(_) => None,
    }
}

fn check_isa(text: &str) -> Result<Isa, String> {
    let isa: Isa = text.parse().map_err(|_| "give v2, v3 or v4".to_owned())?;
    if isa > simd::detect() {
        return Err(format!(
            "this CPU has only {}; give that, or leave the setting out",
            simd::detect()
        ));
    }
    Ok(isa)
}

fn parsed<T: std::str::FromStr>(
    get: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    problem: &str,
) -> Result<Option<T>, SettingsError> {
    let Some(text) = get(name) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(SettingsError::Value {
            source_name: Place::Environment.name().into(),
            name,
            value: text,
            problem: problem.into(),
        }),
    }
}

/// A size in the file: bytes as a number, or text.
fn size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "give bytes, or a number with KB, MB, GB or TB, such as \"8GB\""
    )]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    Ok(Some(match Size::deserialize(from)? {
        Size::Bytes(bytes) => bytes.to_string(),
        Size::Text(text) => text,
    }))
}

/// Bytes from a number with an optional unit; units are powers of 1,024.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    (1.0..9e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_sources_win() {
        let argument = Settings {
            threads: Some(3),
            ..Settings::default()
        };
        let environment = Settings::from_environment(|name| {
            (name == "BRAMBLING_THREADS").then(|| "5".to_owned())
        })
        .unwrap();
        let file = Settings {
            threads: Some(7),
            partitions: Some(9),
            ..Settings::default()
        };
        assert_eq!(
            argument
                .clone()
                .or(environment.clone())
                .or(file.clone())
                .threads,
            Some(3)
        );
        assert_eq!(environment.clone().or(file.clone()).threads, Some(5));
        assert_eq!(environment.or(file).partitions, Some(9));
    }

    #[test]
    fn a_silence_is_a_time_or_seconds() {
        for (text, seconds) in [("30s", 30), ("2min", 120), ("5", 5), ("1s", 1)] {
            let expected = Duration::from_secs(seconds);
            assert_eq!(parse_silence(text), Some(expected), "{text}");
        }
        let file: Settings = toml::from_str("silence = 5").unwrap();
        assert_eq!(file.silence.as_deref(), Some("5"));
        let resolved = Settings::default().with_defaults().unwrap();
        assert_eq!(resolved.silence, SILENCE);
    }

    #[test]
    fn bad_values_name_source_setting_and_fix() {
        let get = |wanted: &'static str, value: &'static str| {
            Settings::from_environment(move |name| (name == wanted).then(|| value.to_owned()))
                .unwrap_err()
                .to_string()
        };
        assert!(get("BRAMBLING_THREADS", "0").contains("1 to 1024"));
        assert!(get("BRAMBLING_THREADS", "two").contains("BRAMBLING_THREADS"));
        assert!(get("BRAMBLING_ISA", "v9").contains("v2, v3 or v4"));
        assert!(get("BRAMBLING_MEMORY", "lots").contains("8GB"));
        assert!(get("BRAMBLING_SPILL", "/a,/b").contains("give one directory"));
        assert!(get("BRAMBLING_STALL_SECONDS", "-1").contains("positive"));
        for silence in ["0.5s", "off", "20 turns", "long"] {
            assert!(get("BRAMBLING_SILENCE", silence).contains("at least a second"));
        }
        assert!(get("BRAMBLING_PROGRESS", "maybe").contains("true or false"));
        assert!(get("BRAMBLING_LOG", "loud").contains("warning, info or debug"));
        let wrong = ["0", "0", "v9", "lots", "/a,/b", "-1", "maybe", "loud"];
        for (name, value) in ENVIRONMENT.iter().zip(wrong) {
            let told = format!("environment: {name} = {value:?} is not usable: ");
            assert!(get(name, value).starts_with(&told), "{}", get(name, value));
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_bytes("8GB"), Some(8 << 30));
        assert_eq!(parse_bytes("1.5 mb"), Some(3 << 19));
        assert_eq!(parse_bytes("4096"), Some(4_096));
        assert_eq!(parse_bytes("GB"), None);
        assert_eq!(parse_bytes("-1"), None);
        assert_eq!(parse_bytes("0"), None);
    }

    fn from_text(name: &str, text: &str) -> Result<Settings, String> {
        let file = format!("brambling-settings-{name}-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, text).unwrap();
        let read = Settings::from_file(&path);
        std::fs::remove_file(&path).unwrap();
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_with_an_unknown_setting_is_refused() {
        let error = from_text("unknown", "threads = 2\nthread = 3\n").unwrap_err();
        assert!(error.contains("thread"), "{error}");
    }

    #[test]
    fn memory_in_a_file_is_text_or_bytes() {
        let memory = |value| {
            from_text("memory", &format!("memory = {value}\n")).map(|settings| settings.memory)
        };
        assert_eq!(memory("8000000000"), Ok(Some("8000000000".into())));
        assert_eq!(memory("\"8GB\""), Ok(Some("8GB".into())));
        for wrong in ["-1", "[8]", "0", "\"plenty\""] {
            let error = memory(wrong).unwrap_err();
            assert!(error.contains("KB, MB, GB or TB"), "{wrong}: {error}");
        }
    }
}
