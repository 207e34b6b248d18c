//! `brambling doctor`: what this machine offers, and what is wrong with it.

mod problems;

pub(crate) use problems::causes;

use crate::probe::age;
use crate::table::two_columns;
use crate::{FAILED, Host, OK, Streams};
use brambling::{ENVIRONMENT, FILE_NAME, Settings};
use brambling_machine::cpu::Processor;
use brambling_machine::{IsaLevel, Profile};
use serde::Serialize;
use std::path::Path;

/// What was found. Its keys are stable.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    versions: Vec<Named>,
    cpu: Option<String>,
    /// CPUs that this process may run on.
    cpus_allowed: Vec<usize>,
    /// CPUs' worth of time that the control group allows.
    cpu_quota: Option<f64>,
    /// What the CPU has.
    isa: &'static str,
    /// Whether a fused multiply-add is one instruction; otherwise it is computed in software.
    has_fma: bool,
    memory_bytes: Option<u64>,
    /// The control group's limit.
    memory_limit_bytes: Option<u64>,
    /// What jobs will use.
    settings: Option<Used>,
    /// Settings in the environment.
    environment: Vec<Named>,
    /// Whether there is a settings file in the working directory.
    has_settings_file: bool,
    /// When `brambling probe` measured this machine, in seconds since 1970.
    probed_at: Option<u64>,
    /// Why what it kept cannot be used.
    probe_error: Option<String>,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Named {
    name: String,
    value: String,
}

/// Settings with every source consulted.
#[derive(Debug, Serialize)]
struct Used {
    threads: u32,
    partitions: Option<u32>,
    isa: String,
    memory_budget_bytes: u64,
    stall_seconds: f64,
}

/// Something wrong, and what to do about it.
#[derive(Debug, PartialEq, Serialize)]
struct Problem {
    problem: String,
    fix: String,
}

pub(crate) fn run(json: bool, host: &mut dyn Host, streams: &mut Streams<'_>) -> u8 {
    let findings = look(host);
    if json {
        let text = serde_json::to_string(&findings).expect("findings are text and numbers");
        streams.out(text + "\n");
    } else {
        streams.out(render(&findings));
    }
    if findings.problems.is_empty() {
        OK
    } else {
        FAILED
    }
}

fn look(host: &dyn Host) -> Findings {
    let processor = Processor::read();
    let resolved = Settings::default().resolve();
    let mut problems = problems::find(processor.as_ref(), resolved.as_ref());
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    problems.extend(problems::unknown_variables(names));
    let named = |(name, value)| Named { name, value };
    let environment = ENVIRONMENT
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .map(named)
        .collect();
    let settings = resolved.ok().map(|settings| Used {
        threads: settings.threads,
        partitions: settings.partitions,
        isa: settings.isa.to_string(),
        memory_budget_bytes: settings.memory_bytes,
        stall_seconds: settings.stall.as_secs_f64(),
    });
    let probed = Profile::cached();
    let isa = IsaLevel::detect();
    let processor = processor.ok();
    let limits = processor.as_ref().map(|processor| processor.limits);
    let quota = limits.and_then(|limits| limits.cpu_quota);
    Findings {
        version: env!("CARGO_PKG_VERSION"),
        versions: host.versions().into_iter().map(named).collect(),
        cpu: processor
            .as_ref()
            .and_then(|processor| processor.model.clone()),
        cpu_quota: quota.map(|quota| quota.quota_us as f64 / quota.period_us as f64),
        isa: isa.name(),
        has_fma: isa >= IsaLevel::V3,
        memory_bytes: processor
            .as_ref()
            .and_then(|processor| processor.memory_bytes),
        memory_limit_bytes: limits.and_then(|limits| limits.memory_bytes),
        cpus_allowed: processor.map_or_else(Vec::new, |processor| processor.allowed),
        settings,
        environment,
        has_settings_file: Path::new(FILE_NAME).exists(),
        probe_error: probed.as_ref().err().map(ToString::to_string),
        probed_at: probed.ok().flatten().map(|it| it.measured_at),
        problems,
    }
}

fn render(findings: &Findings) -> String {
    let mut rows = vec![("brambling".to_owned(), findings.version.to_owned())];
    for Named { name, value } in &findings.versions {
        rows.push((name.clone(), value.clone()));
    }
    let unknown = || "unknown".to_owned();
    rows.push((
        "processor".into(),
        findings.cpu.clone().unwrap_or_else(unknown),
    ));
    rows.push(("instruction sets".into(), instruction_sets(findings)));
    rows.push(("CPUs".into(), cpus(findings)));
    rows.push(("memory".into(), memory(findings)));
    if let Some(used) = &findings.settings {
        rows.push(("threads of a job".into(), used.threads.to_string()));
        rows.push(("kernels for".into(), used.isa.clone()));
        rows.push(("memory of a job".into(), bytes(used.memory_budget_bytes)));
    }
    for Named { name, value } in &findings.environment {
        rows.push((name.clone(), value.clone()));
    }
    let file = if findings.has_settings_file {
        "in this directory"
    } else {
        "none in this directory"
    };
    rows.push((FILE_NAME.into(), file.into()));
    rows.push(("probe".into(), probe(findings)));
    let mut text = two_columns(
        rows.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    if findings.problems.is_empty() {
        return text + "\nno problems found\n";
    }
    for Problem { problem, fix } in &findings.problems {
        text.push_str(&format!("\nproblem: {problem}\n    fix: {fix}\n"));
    }
    text
}

fn probe(findings: &Findings) -> String {
    match (&findings.probe_error, findings.probed_at) {
        (Some(error), _) => error.clone(),
        (None, Some(at)) => format!("measured {}; `brambling probe --show` prints it", age(at)),
        (None, None) => "not probed: `brambling probe` (2 min)".to_owned(),
    }
}

fn instruction_sets(findings: &Findings) -> String {
    let has: Vec<&str> = IsaLevel::ALL
        .into_iter()
        .filter(|isa| isa.is_available())
        .map(IsaLevel::name)
        .collect();
    if findings.has_fma {
        has.join(", ")
    } else {
        format!(
            "{}; no fused multiply-add: results are the same, speed is not promised",
            has.join(", ")
        )
    }
}

fn cpus(findings: &Findings) -> String {
    let allowed = &findings.cpus_allowed;
    let list: Vec<String> = allowed.iter().map(usize::to_string).collect();
    let quota = match findings.cpu_quota {
        Some(quota) => format!("; the control group allows the time of {quota}"),
        None => "; no quota".to_owned(),
    };
    format!("{} in the mask ({}){quota}", allowed.len(), list.join(", "))
}

fn memory(findings: &Findings) -> String {
    let host = findings.memory_bytes.map_or("unknown".to_owned(), bytes);
    match findings.memory_limit_bytes {
        Some(limit) => format!("{host}; the control group allows {}", bytes(limit)),
        None => format!("{host}; no limit"),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 60 => "unlimited".to_owned(),
        bytes if bytes >= 1 << 30 => format!("{:.1} GB", bytes as f64 / (1u64 << 30) as f64),
        bytes => format!("{:.1} MB", bytes as f64 / (1u64 << 20) as f64),
    }
}
