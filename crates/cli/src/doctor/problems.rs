//! What can be wrong with a machine or its settings, each with its fix.

use super::Problem;
use crate::nearest::nearest;
use brambling::cluster::{
    CONTROLLER_VARIABLE, SUBMISSION_VARIABLE, TLS_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE,
};
use brambling::{ENVIRONMENT, FILE_NAME, Resolved, SETTINGS, SettingsError, SpillTo};
use brambling_machine::cpu::Processor;

const PREFIX: &str = "BRAMBLING_";

/// Variables that say where a cluster is and what its processes know and have.
const OF_CLUSTERS: [&str; 5] = [
    CONTROLLER_VARIABLE,
    TOKEN_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TLS_VARIABLE,
    SUBMISSION_VARIABLE,
];
/// Variables of this repository's own tools.
const OF_OUR_TOOLS: [&str; 2] = ["BRAMBLING_COMMAND", "BRAMBLING_SEEDS"];

/// Less than this is not enough for data worth running in parallel.
const MEMORY_BYTES_LEAST: u64 = 256 << 20;

/// Everything wrong with the processor as this process sees it, and with the settings.
pub(super) fn find(
    processor: Result<&Processor, &std::io::Error>,
    settings: Result<&Resolved, &SettingsError>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    match processor {
        Err(error) => problems.push(Problem {
            problem: format!("the CPUs of this process cannot be read: {error}"),
            fix: "let the process call sched_getaffinity (a seccomp filter may forbid it)".into(),
        }),
        Ok(processor) => of_the_processor(processor, &mut problems),
    }
    match settings {
        // Already said.
        Err(SettingsError::Machine(_)) => {}
        Err(error) => problems.push(Problem {
            problem: causes(error),
            fix: fix_of(error),
        }),
        Ok(settings) => of_the_settings(settings, &mut problems),
    }
    problems
}

fn of_the_processor(processor: &Processor, problems: &mut Vec<Problem>) {
    if let Some(quota) = processor.limits.cpu_quota
        && quota.quota_us < quota.period_us
    {
        problems.push(Problem {
            problem: format!(
                "the control group allows {} ms of CPU time in {} ms: less than one CPU, so every job is \
                 stopped again and again",
                quota.quota_us / 1_000,
                quota.period_us / 1_000
            ),
            fix: "raise the quota to a whole CPU (cpu.max, docker --cpus, or the pod's CPU limit)"
                .into(),
        });
    }
    if let Some(bytes) = processor.usable_memory_bytes()
        && bytes < MEMORY_BYTES_LEAST
    {
        problems.push(Problem {
            problem: format!("only {} MB of memory may be used", bytes >> 20),
            fix: "raise the control group's limit (memory.max, docker --memory) to 256 MB or more"
                .into(),
        });
    }
}

fn of_the_settings(settings: &Resolved, problems: &mut Vec<Problem>) {
    if let Some(Err(error)) = settings.spill.as_ref().map(SpillTo::open) {
        problems.push(Problem {
            problem: error.to_string(),
            fix: format!(
                "make the directory, let this account write there, or name another one with BRAMBLING_SPILL or spill in {FILE_NAME}"
            ),
        });
    }
    if settings.oversubscribed {
        problems.push(Problem {
            problem: format!(
                "{} threads are set, but there are fewer CPUs: they will take turns",
                settings.threads
            ),
            fix: format!(
                "remove threads from BRAMBLING_THREADS or {FILE_NAME}: the default fits this machine"
            ),
        });
    }
}

/// Variables that look like settings, but that nobody reads.
pub(super) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<Problem> {
    let mut unknown: Vec<String> = names
        .filter(|name| name.starts_with(PREFIX))
        .filter(|name| !ENVIRONMENT.contains(&&name[..]) && !OF_OUR_TOOLS.contains(&&name[..]))
        .filter(|name| !OF_CLUSTERS.contains(&&name[..]))
        .collect();
    let settings = ENVIRONMENT.map(without_prefix);
    unknown.sort();
    unknown
        .into_iter()
        .map(|name| Problem {
            fix: match nearest(without_prefix(&name), settings) {
                Some(meant) => format!("did you mean {PREFIX}{meant}? Otherwise unset {name}"),
                None => format!("unset {name}; the settings are {}", ENVIRONMENT.join(", ")),
            },
            problem: format!("{name} is set, but there is no such setting: it has no effect"),
        })
        .collect()
}

fn without_prefix(variable: &str) -> &str {
    variable.strip_prefix(PREFIX).unwrap_or(variable)
}

pub(crate) fn causes(error: &SettingsError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}

fn fix_of(error: &SettingsError) -> String {
    match error {
        SettingsError::Value {
            source_name,
            name,
            problem,
            ..
        } => match ENVIRONMENT
            .into_iter()
            .find(|variable| without_prefix(variable) == name.to_uppercase())
        {
            Some(variable) if source_name == "environment" => {
                format!("{problem}, or unset {variable}")
            }
            Some(_) => format!("{problem}, or remove {name} from {source_name}"),
            None => format!("{problem}, or unset {name}"),
        },
        SettingsError::Unreadable { path, .. } => {
            format!("let this user read {}, or remove it", path.display())
        }
        SettingsError::Malformed { path, .. } => format!(
            "correct {}; its settings are {}",
            path.display(),
            SETTINGS.map(|setting| setting.key).join(", ")
        ),
        _ => "correct the setting, or remove it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling::Settings;
    use brambling_machine::cgroup::CpuQuota;

    #[test]
    fn every_problem_has_its_fix() {
        let mut processor = Processor::read().unwrap();
        processor.limits.cpu_quota = Some(CpuQuota {
            quota_us: 50_000,
            period_us: 100_000,
        });
        processor.limits.memory_bytes = Some(64 << 20);
        let error = SettingsError::Value {
            source_name: "environment".into(),
            name: "BRAMBLING_THREADS",
            value: "0".into(),
            problem: "give a number from 1 to 1024".into(),
        };
        let problems = find(Ok(&processor), Err(&error));
        let texts: Vec<_> = problems.iter().map(|found| &found.problem[..]).collect();
        assert_eq!(problems.len(), 3, "{texts:?}");
        assert!(texts[0].contains("50 ms of CPU time in 100 ms"));
        assert!(texts[1].contains("only 64 MB"));
        assert!(texts[2].contains("BRAMBLING_THREADS"));
        assert!(problems.iter().all(|found| !found.fix.is_empty()));
        assert!(problems[2].fix.contains("1 to 1024"));
    }

    #[test]
    fn what_is_to_be_removed_has_its_own_name() {
        let fix = |source_name: &str, name| {
            fix_of(&SettingsError::Value {
                source_name: source_name.into(),
                name,
                value: "v9".into(),
                problem: "give v2, v3 or v4".into(),
            })
        };
        assert_eq!(
            fix("environment", "isa"),
            "give v2, v3 or v4, or unset BRAMBLING_ISA"
        );
        assert_eq!(
            fix(FILE_NAME, "isa"),
            "give v2, v3 or v4, or remove isa from brambling.toml"
        );
        assert!(fix("environment", "BRAMBLING_ISA").ends_with("or unset BRAMBLING_ISA"));
    }

    #[test]
    fn variables_that_nobody_reads() {
        let names = [
            "PATH",
            "BRAMBLING_THREAD",
            "BRAMBLING_MEMORY",
            "BRAMBLING_TLS",
            "BRAMBLING_COMMAND",
            "BRAMBLING_COLOUR",
        ];
        let problems = unknown_variables(names.iter().map(|name| (*name).to_owned()));
        let texts: Vec<_> = problems.iter().map(|found| &found.problem[..]).collect();
        assert_eq!(problems.len(), 2, "{texts:?}");
        assert!(texts[0].contains("BRAMBLING_COLOUR"));
        assert!(problems[0].fix.contains("BRAMBLING_STALL_SECONDS"));
        assert!(problems[1].fix.contains("did you mean BRAMBLING_THREADS?"));
    }

    #[test]
    fn a_directory_that_cannot_be_spilled_to_is_a_problem() {
        let found = |directory: &std::path::Path| {
            let mut settings = Settings::default();
            settings.threads = Some(1);
            settings.spill = Some(directory.display().to_string());
            let resolved = settings.resolve().unwrap();
            find(Ok(&Processor::read().unwrap()), Ok(&resolved))
        };
        let here = std::env::temp_dir();
        let is_of_spills = |it: &&Problem| it.problem.contains("cannot be spilled to");
        assert_eq!(found(&here).iter().filter(is_of_spills).count(), 0);
        let missing = found(&here.join("no/such/directory"));
        let problem = missing.iter().find(is_of_spills).expect("it is missing");
        assert!(problem.fix.contains("BRAMBLING_SPILL"));
    }

    #[test]
    fn more_threads_than_cpus_are_a_problem() {
        let mut settings = Settings::default();
        settings.threads = Some(1_024);
        let resolved = settings.resolve().unwrap();
        let problems = find(Ok(&Processor::read().unwrap()), Ok(&resolved));
        assert!(problems.iter().any(|found| found.problem.contains("1024")));
    }

    #[test]
    fn an_unreadable_mask_is_said_once() {
        let denied = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let settings = SettingsError::Machine(denied());
        assert_eq!(find(Err(&denied()), Err(&settings)).len(), 1);
    }
}
