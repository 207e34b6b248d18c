//! The report as a page: one file that fetches nothing, or a piece of one for a notebook. The template escapes every
//! name; the timeline's data are JSON in which no tag can begin or end.

use std::hash::{DefaultHasher, Hash, Hasher};

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::ideal::{Resource, ResourceUse, share};
use super::threads::{self, WorkerReport};
use super::timeline::Timeline;
use super::units::{bytes, count, memory, percent, rate, scaled, seconds};
use super::{PhaseReport, Report, StageReport};
use crate::ledger::TimeParts;

/// Jobs on one page.
const JOBS: usize = 12;
/// Rows of a table before the rest is left to the JSON.
const ROWS: usize = 100;

impl Report {
    /// A page that stands alone: one file without links to elsewhere.
    pub fn to_html(&self) -> String {
        let fragment = self.to_html_fragment();
        let page = Document {
            program: &self.program,
            headline: self.headline(),
            fragment,
        };
        rendered("document.html", include_str!("page/document.html"), &page)
    }

    /// A page of several jobs, the longest first: no more than twelve, since nobody looks at more.
    pub fn html_of(reports: &[Report]) -> String {
        let mut longest: Vec<&Report> = reports.iter().collect();
        longest.sort_by(|one, other| other.actual_seconds.total_cmp(&one.actual_seconds));
        let Some(first) = longest.first() else {
            return String::new();
        };
        let shown = longest.iter().take(JOBS);
        let page = Document {
            program: &first.program,
            headline: first.headline(),
            fragment: shown.map(|report| report.to_html_fragment()).collect(),
        };
        rendered("document.html", include_str!("page/document.html"), &page)
    }

    /// The same as an element that can stand on another page, such as a notebook's, as often as one likes.
    pub fn to_html_fragment(&self) -> String {
        rendered(
            "report.html",
            include_str!("page/report.html"),
            &Page::of(self),
        )
    }
}

fn rendered(name: &'static str, template: &'static str, values: &impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment
        .add_template(name, template)
        .expect("the template is ours");
    let template = environment.get_template(name).expect("it was just added");
    template
        .render(Serde(values))
        .expect("the page's values are those of the template")
}

#[derive(Serialize)]
struct Document<'a> {
    program: &'a str,
    headline: String,
    fragment: String,
}

/// What the template shows, as people read it.
#[derive(Serialize)]
struct Page<'a> {
    id: String,
    css: &'static str,
    js: &'static str,
    program: &'a str,
    what_ran: String,
    succeeded: bool,
    share: String,
    at_most: bool,
    machines: String,
    actual: String,
    ideal: String,
    bound_by: &'static str,
    advice: Vec<String>,
    went: Vec<PartRow>,
    spoken: String,
    mark: Option<String>,
    mark_right: bool,
    balance: String,
    resources: Vec<ResourceRow>,
    phases: Vec<PhaseRow<'a>>,
    more_stages: Option<String>,
    workers: Vec<WorkerRow<'a>>,
    more_workers: Option<String>,
    bounded: bool,
    notes: Vec<String>,
    data: String,
}

#[derive(Serialize)]
struct PartRow {
    class: String,
    name: String,
    width: String,
    percent: String,
    seconds: String,
}

#[derive(Serialize)]
struct ResourceRow {
    name: &'static str,
    bounds: bool,
    width: Option<String>,
    amount: String,
}

#[derive(Serialize)]
struct PhaseRow<'a> {
    name: &'static str,
    actual: String,
    ideal: String,
    share: String,
    bound_by: &'static str,
    parts: Vec<PartRow>,
    stages: Vec<StageRow<'a>>,
}

#[derive(Serialize)]
struct StageRow<'a> {
    name: &'a str,
    kind: &'a str,
    python: bool,
    actual: String,
    ideal: String,
    share: String,
    parts: Vec<PartRow>,
    bound_by: &'static str,
}

#[derive(Serialize)]
struct WorkerRow<'a> {
    name: &'a str,
    parts: Vec<PartRow>,
    speed: String,
    tasks: String,
    shards: u32,
    sent: String,
    received: String,
    memory: String,
    last_task: String,
}

impl<'a> Page<'a> {
    fn of(report: &'a Report) -> Page<'a> {
        let data = script_safe(
            &serde_json::to_string(&Timeline::of(report.ledger())).expect("numbers and strings"),
        );
        let mut hasher = DefaultHasher::new();
        (&report.program, &data, report.actual_seconds.to_bits()).hash(&mut hasher);
        let went = went(report);
        let spoken = went
            .iter()
            .map(|part| format!("{} {}", part.name, part.percent))
            .collect::<Vec<_>>()
            .join(", ");
        let shown = |stage: &&StageReport| stage.actual_seconds > 0.0;
        let mark = report.share_of_ideal.filter(|share| *share > 0.0);
        Page {
            id: format!("{:016x}", hasher.finish()),
            css: include_str!("page/report.css"),
            js: include_str!("page/report.js"),
            program: &report.program,
            what_ran: report
                .what_ran()
                .split_off(super::text::plain(&report.program).len() + 2),
            succeeded: report.succeeded,
            share: report.share_of_ideal.map_or("?".into(), percent),
            at_most: report.at_most,
            machines: if report.hosts > 1 {
                format!("these {} machines", report.hosts)
            } else {
                "this machine".into()
            },
            actual: seconds(report.actual_seconds),
            ideal: report.ideal_seconds.map_or("not known".into(), seconds),
            bound_by: report.bound_by.map_or("not known", Resource::name),
            advice: report
                .advice
                .iter()
                .map(|advice| capital(&advice.text) + ".")
                .collect(),
            went,
            spoken,
            mark: mark.map(width),
            mark_right: mark.is_some_and(|share| share > 0.6),
            balance: report.balance_sentence(),
            resources: sorted(&report.resources)
                .into_iter()
                .map(|used| resource_row(report, used))
                .collect(),
            phases: report
                .phases
                .iter()
                .map(|phase| phase_row(report, phase))
                .collect(),
            more_stages: more(report.stages.iter().filter(shown).count(), "stage"),
            workers: if report.workers.len() > 1 {
                report.workers.iter().take(ROWS).map(worker_row).collect()
            } else {
                Vec::new()
            },
            more_workers: more(report.workers.len(), "worker"),
            bounded: report.bound_by.is_some(),
            notes: report.notes.iter().map(|note| capital(note)).collect(),
            data,
        }
    }
}

/// The bar that sums to all of the time: ideal kernels, what they took beyond, then the rest as the report has it.
fn went(report: &Report) -> Vec<PartRow> {
    let part = |class: &str, name: &str, share: f64| PartRow {
        seconds: seconds(share * report.actual_seconds),
        ..segment(class, name, share)
    };
    let beyond = report
        .rest
        .iter()
        .find(|rest| rest.what == "kernels beyond ideal")
        .map_or(0.0, |rest| rest.share);
    let ideal = (report.shares.kernels - beyond).max(0.0);
    let first = (ideal > 0.0).then(|| part("kernels", "kernels, ideal", ideal));
    let second = (beyond > 0.0).then(|| part("beyond", "kernels beyond ideal", beyond));
    let rest = report
        .rest
        .iter()
        .filter(|rest| rest.what != "kernels beyond ideal");
    first
        .into_iter()
        .chain(second)
        .chain(rest.map(|rest| part(rest.what, rest.what, rest.share)))
        .collect()
}

fn parts(shares: &TimeParts) -> Vec<PartRow> {
    let all = shares.named().into_iter().filter(|(_, share)| *share > 0.0);
    all.map(|(name, share)| segment(name, name, share))
        .collect()
}

/// What a stage's kernels took of all time, and what was waited for in its moments.
fn of_stage(report: &Report, stage: &StageReport) -> Vec<PartRow> {
    let ideal = stage.share_of_time * stage.share_of_ideal.unwrap_or(0.0);
    let kernels = [
        segment("kernels", "kernels, ideal", ideal),
        segment(
            "beyond",
            "kernels beyond ideal",
            stage.share_of_time - ideal,
        ),
    ];
    let waits = TimeParts {
        kernels: 0.0,
        ..stage.parts
    };
    let waits = threads::each(waits, |seconds| share(seconds, report.actual_seconds));
    kernels.into_iter().chain(parts(&waits)).collect()
}

fn segment(class: &str, name: &str, share: f64) -> PartRow {
    PartRow {
        class: format!("p-{class}"),
        name: name.replace('_', " "),
        width: width(share),
        percent: percent(share.max(0.0)),
        seconds: String::new(),
    }
}

/// The longest first; those that nobody probed last.
fn sorted(uses: &[ResourceUse]) -> Vec<&ResourceUse> {
    let mut sorted: Vec<_> = uses.iter().collect();
    let least = |used: &ResourceUse| used.ideal_seconds.unwrap_or(-1.0);
    sorted.sort_by(|one, other| least(other).total_cmp(&least(one)));
    sorted
}

fn resource_row(report: &Report, used: &ResourceUse) -> ResourceRow {
    let amount = match used.resource {
        Resource::MemoryBandwidth | Resource::Disk | Resource::Network => bytes(used.amount),
        Resource::RandomAccess => format!("{} places", scaled(used.amount, "")),
        Resource::Arithmetic => format!("{} operations", scaled(used.amount, "")),
        Resource::Kernels | Resource::PythonKernels => "their own time".into(),
    };
    let unit = match used.resource {
        Resource::MemoryBandwidth | Resource::Disk | Resource::Network => "B",
        _ => "",
    };
    let least =
        used.ideal_seconds
            .map_or("not probed".into(), |least| match used.roof_per_second {
                Some(roof) if report.hosts > 1 => {
                    format!("{} at {} a machine", seconds(least), rate(roof, unit))
                }
                Some(roof) => format!("{} at {}", seconds(least), rate(roof, unit)),
                None => seconds(least),
            });
    ResourceRow {
        name: used.resource.name(),
        bounds: report.bound_by == Some(used.resource),
        width: used
            .ideal_seconds
            .map(|least| width(share(least, report.actual_seconds))),
        amount: format!("{amount}: {least}"),
    }
}

fn phase_row<'a>(report: &'a Report, phase: &PhaseReport) -> PhaseRow<'a> {
    let mut stages: Vec<_> = report
        .stages
        .iter()
        .filter(|stage| stage.phase == phase.name && stage.actual_seconds > 0.0)
        .collect();
    if stages.len() > ROWS {
        stages.sort_by(|one, other| other.actual_seconds.total_cmp(&one.actual_seconds));
        stages.truncate(ROWS);
    }
    PhaseRow {
        name: phase.name.name(),
        actual: seconds(phase.actual_seconds),
        ideal: seconds(phase.ideal_seconds),
        share: phase.share_of_ideal.map_or(String::new(), percent),
        bound_by: phase.bound_by.map_or("", Resource::name),
        parts: parts(&threads::each(phase.parts, |seconds| {
            share(seconds, phase.actual_seconds)
        })),
        stages: stages
            .into_iter()
            .map(|stage| stage_row(report, stage))
            .collect(),
    }
}

fn stage_row<'a>(report: &Report, stage: &'a StageReport) -> StageRow<'a> {
    StageRow {
        name: &stage.name,
        kind: &stage.kind,
        python: stage.python,
        actual: seconds(stage.actual_seconds),
        ideal: seconds(stage.ideal_seconds),
        share: stage.share_of_ideal.map_or(String::new(), percent),
        parts: of_stage(report, stage),
        bound_by: if stage.above_roof {
            "caches"
        } else {
            stage.bound_by.map_or("", Resource::name)
        },
    }
}

fn worker_row(worker: &WorkerReport) -> WorkerRow<'_> {
    let held = if worker.budget_bytes > 0 {
        format!(
            "{} of {}",
            memory(worker.peak_bytes),
            memory(worker.budget_bytes)
        )
    } else {
        String::new()
    };
    WorkerRow {
        name: &worker.name,
        parts: parts(&worker.shares),
        speed: worker.speed.map_or(String::new(), percent),
        tasks: count(worker.tasks),
        shards: worker.shards,
        sent: bytes(worker.sent_bytes as f64),
        received: bytes(worker.received_bytes as f64),
        memory: held,
        last_task: seconds(worker.last_task_seconds),
    }
}

fn more(number: usize, thing: &str) -> Option<String> {
    (number > ROWS)
        .then(|| format!("{number} {thing}s are too many for a page: the JSON has all of them."))
}

/// A share as CSS takes it, in percent.
fn width(share: f64) -> String {
    format!("{:.3}", share.clamp(0.0, 1.0) * 100.0)
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// JSON in which a browser finds no tag, no comment and no line's end of its own.
fn script_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                safe.push_str(&format!("\\u{:04x}", letter as u32))
            }
            _ => safe.push(letter),
        }
    }
    safe
}
