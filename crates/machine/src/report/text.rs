//! The report for a terminal: at most 100 columns, and no colours.

use std::fmt::Write as _;

use super::ideal::{Phase, share};
use super::threads::WorkerReport;
use super::units::{bytes, count, percent, seconds, things};
use super::{PhaseReport, Report, StageReport};

/// No line is wider.
const WIDTH: usize = 100;
/// A bar that stands for all of the time.
const BAR: usize = 40;
/// What is no further from even than this counts as even.
const EVEN: f64 = 0.05;
/// Rows of a table before the rest is summed up.
const ROWS: usize = 24;

impl Report {
    /// The report for a terminal: the first line is the answer, tables follow, then advice and notes.
    pub fn to_text(&self) -> String {
        let mut text = self.headline();
        text.push('\n');
        line(&mut text, &self.what_ran());
        self.table_of_stages(&mut text);
        self.where_it_went(&mut text);
        self.table_of_workers(&mut text);
        sentences(
            &mut text,
            "what would help",
            self.advice.iter().map(|advice| advice.text.as_str()),
        );
        sentences(&mut text, "notes", self.notes.iter().map(String::as_str));
        text
    }

    /// The answer in a line: "2.1 s, 83 % of ideal, bound by memory bandwidth".
    pub fn headline(&self) -> String {
        let mut line = if self.succeeded {
            String::new()
        } else {
            "failed after ".to_string()
        };
        line += &seconds(self.actual_seconds);
        match self.share_of_ideal {
            Some(share) => {
                let most = if self.at_most { "at most " } else { "" };
                let _ = write!(line, ", {most}{} of ideal", percent(share));
            }
            None => line += ", ideal not known",
        }
        if let Some(resource) = self.bound_by {
            let _ = write!(line, ", bound by {}", resource.name());
        }
        if !self.probed {
            line += " (not probed)";
        }
        line
    }

    pub(super) fn what_ran(&self) -> String {
        let workers = if self.worker_count > 1 {
            format!("{}, ", things(self.worker_count as u64, "worker"))
        } else {
            String::new()
        };
        format!(
            "{}: {workers}{}, {}, {}",
            plain(&self.program),
            things(self.threads as u64, "thread"),
            things(self.shards, "shard"),
            things(self.tasks, "task")
        )
    }

    fn table_of_stages(&self, text: &mut String) {
        if self.phases.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\n{:<30} {:<8} {:>10} {:>10} {:>9} {:>8}  bound by",
            "phase, stage", "kind", "actual", "ideal", "of ideal", "of time"
        );
        for phase in &self.phases {
            line(text, &row_of_phase(phase, self.actual_seconds));
            wrapped(text, "  ", &went_into(phase));
            let mut stages: Vec<_> = self
                .stages
                .iter()
                .filter(|stage| stage.phase == phase.name && stage.actual_seconds > 0.0)
                .collect();
            let more = stages.len().saturating_sub(ROWS);
            if more > 0 {
                stages.sort_by(|one, other| other.actual_seconds.total_cmp(&one.actual_seconds));
                stages.truncate(ROWS);
            }
            for stage in stages {
                line(text, &row_of_stage(stage));
            }
            if more > 0 {
                line(text, &format!("  and {more} more, which took less"));
            }
        }
    }

    fn where_it_went(&self, text: &mut String) {
        let _ = writeln!(text, "\nwhere the time of the threads went");
        let beyond = self
            .rest
            .iter()
            .find(|rest| rest.what == "kernels beyond ideal")
            .map_or(0.0, |rest| rest.share);
        let ideal = [("kernels, ideal", (self.shares.kernels - beyond).max(0.0))];
        let rest = self.rest.iter().map(|rest| (rest.what, rest.share));
        for (what, share) in ideal.into_iter().chain(rest) {
            line(
                text,
                &format!(
                    "  {:<24} {:>8} {:>10}  {}",
                    what.replace('_', " "),
                    percent(share),
                    seconds(share * self.actual_seconds),
                    bar(share)
                ),
            );
        }
        let balance = self.balance_sentence();
        if !balance.is_empty() {
            wrapped(text, "  ", &format!("balance: {balance}"));
        }
    }

    /// How unevenly the work lay, in a sentence; empty where it lay evenly.
    pub(super) fn balance_sentence(&self) -> String {
        let balance = &self.balance;
        let mut uneven = Vec::new();
        let times = |times: Option<f64>| times.filter(|times| *times >= 1.0 + EVEN);
        uneven.extend(
            times(balance.slowest_worker)
                .map(|times| format!("the busiest worker's kernels took {times:.1} × the mean")),
        );
        uneven.extend(
            times(balance.slowest_shard)
                .map(|times| format!("the longest shard took {times:.1} × the mean")),
        );
        let split = balance.split_imbalance.filter(|share| *share >= EVEN);
        uneven.extend(
            split.map(|share| format!("one worker received {} more than the mean", percent(share))),
        );
        if balance.stragglers_seconds >= EVEN * self.actual_seconds
            && balance.stragglers_seconds > 0.0
        {
            uneven.push(format!(
                "the last one was waited for {}",
                seconds(balance.stragglers_seconds)
            ));
        }
        uneven.join(", ")
    }

    fn table_of_workers(&self, text: &mut String) {
        if self.workers.len() < 2 {
            return;
        }
        let _ = writeln!(
            text,
            "\n{:<16} {:>7} {:>11} {:>8} {:>8} {:>6} {:>9} {:>9} {:>11}",
            "worker",
            "threads",
            "tasks",
            "kernels",
            "waiting",
            "speed",
            "sent",
            "received",
            "last task"
        );
        for worker in self.workers.iter().take(ROWS) {
            line(text, &row_of_worker(worker));
        }
        if self.workers.len() > ROWS {
            line(text, &format!("and {} more", self.workers.len() - ROWS));
        }
    }
}

fn row_of_phase(phase: &PhaseReport, wall_s: f64) -> String {
    let (name, of_time) = (phase.name.name(), share(phase.actual_seconds, wall_s));
    let what = if phase.name == Phase::Setup {
        "outside loops"
    } else {
        ""
    };
    row(
        &format!("{name} {what}"),
        "",
        phase.actual_seconds,
        Some(phase.ideal_seconds),
        phase.share_of_ideal,
        of_time,
        phase.bound_by.map(|by| by.name()),
    )
}

/// Where a phase's time went, what is less than a hundredth of it left out.
fn went_into(phase: &PhaseReport) -> String {
    let shares = phase
        .parts
        .named()
        .map(|(name, part)| (name, share(part, phase.actual_seconds)));
    let told = shares.iter().filter(|(_, share)| *share >= 0.01);
    let told: Vec<_> = told
        .map(|(name, share)| format!("{} {}", name.replace('_', " "), percent(*share)))
        .collect();
    told.join(", ")
}

fn row_of_stage(stage: &StageReport) -> String {
    let name = format!("  {}", plain(&stage.name));
    let by = stage.bound_by.map(|by| {
        if stage.above_roof {
            "caches"
        } else {
            by.name()
        }
    });
    row(
        &name,
        &stage.kind,
        stage.actual_seconds,
        Some(stage.ideal_seconds),
        stage.share_of_ideal,
        stage.share_of_time,
        by,
    )
}

fn row(
    name: &str,
    kind: &str,
    actual: f64,
    ideal: Option<f64>,
    of_ideal: Option<f64>,
    of_time: f64,
    by: Option<&str>,
) -> String {
    format!(
        "{:<30} {:<8} {:>10} {:>10} {:>9} {:>8}  {}",
        cut(name.trim_end(), 30),
        cut(kind, 8),
        seconds(actual),
        ideal.map_or(String::new(), seconds),
        of_ideal.map_or(String::new(), percent),
        percent(of_time),
        by.unwrap_or("")
    )
}

fn row_of_worker(worker: &WorkerReport) -> String {
    let kernels = worker.shares.kernels;
    format!(
        "{:<16} {:>7} {:>11} {:>8} {:>8} {:>6} {:>9} {:>9} {:>11}",
        cut(&plain(&worker.name), 16),
        worker.threads.len(),
        count(worker.tasks),
        percent(kernels),
        percent((worker.shares.total() - kernels - worker.shares.scheduling).max(0.0)),
        worker.speed.map_or("".into(), percent),
        bytes(worker.sent_bytes as f64),
        bytes(worker.received_bytes as f64),
        seconds(worker.last_task_seconds)
    )
}

/// A bar of eighths of a column.
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8]);
    bar
}

fn sentences<'a>(text: &mut String, title: &str, sentences: impl Iterator<Item = &'a str>) {
    for (index, sentence) in sentences.enumerate() {
        if index == 0 {
            let _ = writeln!(text, "\n{title}");
        }
        wrapped(text, "  * ", sentence);
    }
}

/// Breaks a sentence between words; what follows the first line is indented like it.
fn wrapped(text: &mut String, first: &str, sentence: &str) {
    let mut row = first.to_string();
    let indent = " ".repeat(first.chars().count());
    let mut empty = true;
    for word in plain(sentence).split_whitespace() {
        if !empty && row.chars().count() + 1 + word.chars().count() > WIDTH {
            line(text, &row);
            row.clone_from(&indent);
            empty = true;
        }
        if !empty {
            row.push(' ');
        }
        row.push_str(word);
        empty = false;
    }
    line(text, &row);
}

fn line(text: &mut String, row: &str) {
    let _ = writeln!(text, "{}", cut(row.trim_end(), WIDTH));
}

/// At most so many characters, the last of which says that there were more.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

/// A name cannot move the cursor or begin a line of its own.
pub(super) fn plain(name: &str) -> String {
    name.chars()
        .map(|letter| {
            if letter.is_control() {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}
