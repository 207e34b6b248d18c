//! Owns how near a search came to what the disk reads: what `--json` ends with, and what `--stats` tells. It measures nothing.

use crate::steps;
use brambling::grep::{Grep, GrepSummary};
use brambling::machine::ledger::Ledger;
use brambling::machine::profile::Profile;
use brambling::machine::report::{Pipeline, PipelineStep, Report, Resource, StageReport};
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// What a search took beside what it could. Its JSON has these fields as keys.
#[derive(Serialize)]
pub(super) struct GrepReport {
    pub(super) seconds: f64,
    /// At the probed speed of the disk of the first path; null where no probe has measured it.
    pub(super) ideal_seconds: Option<f64>,
    pub(super) share_of_ideal: Option<f64>,
    pub(super) bound_by: Option<&'static str>,
    phases: Vec<PipelineStep>,
    stragglers_seconds: f64,
    stages: Vec<StageReport>,
    #[serde(skip)]
    disk_bytes_per_s: Option<f64>,
    #[serde(skip)]
    read_bytes: u64,
}

impl GrepReport {
    /// A search that was ended early leaves no ledger.
    pub(super) fn of(
        what: &Grep,
        summary: &GrepSummary,
        ledger: Option<Ledger>,
        took: Duration,
    ) -> GrepReport {
        let seconds = took.as_secs_f64();
        let report = ledger.map(Report::of);
        let phases = report.as_ref().map(|it| it.pipeline(Pipeline::Search, 0.0));
        let phases = phases.unwrap_or_default();
        // Compressed files are read in less bytes than are searched.
        let read = phases.iter().find(|step| step.name == "read");
        let read_bytes = read.map_or(summary.searched_bytes, |step| step.bytes);
        let profile = Profile::cached().ok().flatten();
        let speed = profile.and_then(|it| it.disk_read_bytes_per_s(&directory(what)?));
        let ideal = speed.map(|speed| read_bytes as f64 / speed);
        let bound_by = match ideal {
            Some(_) => Some(Resource::Disk),
            None => report.as_ref().and_then(|it| it.bound_by),
        };
        GrepReport {
            seconds,
            ideal_seconds: ideal,
            share_of_ideal: ideal.map(|it| (it / seconds.max(1e-9)).min(1.0)),
            bound_by: bound_by.map(Resource::name),
            phases,
            stragglers_seconds: report
                .as_ref()
                .map_or(0.0, |it| it.balance.stragglers_seconds),
            stages: report.map(|it| it.stages).unwrap_or_default(),
            disk_bytes_per_s: speed,
            read_bytes,
        }
    }

    /// How fast it was, beside what the disk reads at most.
    pub(super) fn stats(&self, summary: &GrepSummary) -> String {
        let seconds = self.seconds;
        let bytes = summary.searched_bytes as f64;
        let mut text = format!(
            "{} files, {} of them with matches; {} lines selected\n{:.3} GB in {seconds:.3} s: {:.2} GB/s\n",
            summary.files,
            summary.matched_files,
            summary.selected,
            bytes / 1e9,
            bytes / 1e9 / seconds.max(1e-9),
        );
        text.push_str(&steps::table(&self.phases, self.stragglers_seconds));
        text.push_str(&match self.disk_bytes_per_s {
            Some(read) => {
                let ideal = self.read_bytes as f64 / read;
                let share = ideal / seconds.max(1e-9) * 100.0;
                let note = match share > 100.0 {
                    true => " (files that are in memory are read faster than the disk reads)",
                    false => "",
                };
                format!(
                    "ideal: {ideal:.3} s, at the {:.2} GB/s of the disk; share of the ideal: {share:.0} %{note}",
                    read / 1e9,
                )
            }
            None => "how fast the disk is was not measured: brambling probe --dir DIR, then the share of the ideal is told here".to_owned(),
        });
        text
    }
}

/// Where the first path is.
fn directory(what: &Grep) -> Option<std::path::PathBuf> {
    let path = Path::new(OsStr::from_bytes(what.paths.paths.first()?));
    Some(match path.is_dir() {
        true => path.to_owned(),
        false => match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => ".".into(),
        },
    })
}
