//! Owns what `brambling sort` says: text for people, JSON for other programs. It measures nothing.

use crate::steps;
use brambling::machine::ideal::Setup;
use brambling::machine::ledger::Ledger;
use brambling::machine::profile::Profile;
use brambling::machine::report::{Pipeline, PipelineStep, Report, StageReport};
use brambling::machine::units;
use brambling::sort::{Checked, MadeFile, Sorted};
use serde::Serialize;
use std::path::Path;

/// What a sort did, and how near it came to what the disk can do. Its JSON has these fields as keys.
#[derive(Serialize)]
pub(crate) struct SortReport {
    seconds: f64,
    ideal_seconds: Option<f64>,
    share_of_ideal: Option<f64>,
    bound_by: Option<&'static str>,
    phases: Vec<PipelineStep>,
    stragglers_seconds: f64,
    stages: Vec<StageReport>,
    peak_rss_bytes: u64,
    records: u64,
    bytes: u64,
    run_bytes: u64,
    extent_overhead: f64,
    splits: u32,
    parts: u32,
}

impl SortReport {
    /// The ideal is Table 3's of Krevat et al. for the disk of the output, as the last probe found it.
    pub(crate) fn of(
        sorted: &Sorted,
        ledger: Option<Ledger>,
        output: &Path,
        backup: bool,
    ) -> SortReport {
        let ideal = ideal(sorted, output, backup);
        let report = ledger.map(Report::of);
        let steps = |it: &Report| it.pipeline(Pipeline::Sort, sorted.output_seconds);
        SortReport {
            seconds: sorted.seconds,
            ideal_seconds: ideal.map(|it| it.0),
            share_of_ideal: ideal.map(|it| (it.0 / sorted.seconds).min(1.0)),
            bound_by: ideal.and_then(|it| it.1),
            phases: report.as_ref().map(steps).unwrap_or_default(),
            stragglers_seconds: report
                .as_ref()
                .map_or(0.0, |it| it.balance.stragglers_seconds),
            stages: report.map(|it| it.stages).unwrap_or_default(),
            peak_rss_bytes: sorted.peak_rss_bytes,
            records: sorted.records,
            bytes: sorted.bytes,
            run_bytes: sorted.run_bytes,
            extent_overhead: sorted.extent_overhead,
            splits: sorted.splits,
            parts: sorted.parts,
        }
    }

    pub(crate) fn json(&self) -> String {
        json(self)
    }

    pub(crate) fn text(&self, output: &Path) -> String {
        let rate = units::rate(self.bytes as f64 / self.seconds.max(1e-9));
        let mut text = format!(
            "{}: {} records, {} in {} ({rate})",
            output.display(),
            self.records,
            units::bytes(self.bytes as f64),
            units::seconds(self.seconds),
        );
        if self.run_bytes > 0 {
            let runs = units::bytes(self.run_bytes as f64);
            text.push_str(&format!(", {runs} by way of the disk"));
        }
        text.push('\n');
        text.push_str(&steps::table(&self.phases, self.stragglers_seconds));
        match self.share_of_ideal {
            Some(share) => text.push_str(&format!(
                "{:.0} % of ideal, bound by {}\n",
                100.0 * share,
                self.bound_by.unwrap_or("nothing")
            )),
            None => {
                text.push_str("not probed: `brambling probe` (2 min) tells the share of ideal\n")
            }
        }
        text
    }
}

/// How fast the disk of an output is, as the last probe found it.
#[derive(Clone, Copy)]
pub(crate) struct DiskSpeeds {
    pub(crate) read_bytes_per_s: f64,
    pub(crate) write_bytes_per_s: f64,
}

impl DiskSpeeds {
    pub(crate) fn of(profile: &Profile, output: &Path) -> Option<DiskSpeeds> {
        let beside = output.parent().filter(|it| !it.as_os_str().is_empty());
        let beside = beside.unwrap_or(Path::new("."));
        Some(DiskSpeeds {
            read_bytes_per_s: profile.disk_read_bytes_per_s(beside)?,
            write_bytes_per_s: profile.disk_write_bytes_per_s(beside)?,
        })
    }
}

fn ideal(sorted: &Sorted, output: &Path, backup: bool) -> Option<(f64, Option<&'static str>)> {
    let profile = Profile::cached().ok().flatten()?;
    let disk = DiskSpeeds::of(&profile, output)?;
    // One node sends nothing: any speed will do.
    let network = match sorted.workers {
        0 | 1 => f64::MAX,
        _ => profile
            .network_bytes_per_s()
            .or_else(|| profile.loopback_bytes_per_s(1))?,
    };
    let setup = Setup {
        backup,
        external: sorted.run_bytes > 0,
        disk_write_bytes_per_s: disk.write_bytes_per_s,
        nodes: sorted.workers.into(),
        replication: sorted.replication.into(),
        ..Setup::sort(sorted.input_bytes as f64, disk.read_bytes_per_s, network)
    };
    let ideal = setup.ideal_time(None).ok()?;
    Some((ideal.ideal_seconds, ideal.bound_by.map(|it| it.name())))
}

#[derive(Serialize)]
struct MadeLine {
    records: u64,
    bytes: u64,
    seconds: f64,
}

pub(crate) fn made(made: &MadeFile, path: &Path, as_json: bool) -> String {
    if as_json {
        return json(&MadeLine {
            records: made.records,
            bytes: made.bytes,
            seconds: made.seconds,
        });
    }
    format!(
        "{}: {} records, {} in {}\n",
        path.display(),
        made.records,
        units::bytes(made.bytes as f64),
        units::seconds(made.seconds)
    )
}

#[derive(Serialize)]
struct CheckLine {
    sorted: bool,
    records: u64,
    bytes: u64,
    duplicates: u64,
    /// Hexadecimal, of 128 bits.
    checksum: String,
    fault: Option<FaultLine>,
    seconds: f64,
}

#[derive(Serialize)]
struct FaultLine {
    record: u64,
    before: String,
    key: String,
}

pub(crate) fn checked(checked: &Checked, as_json: bool) -> String {
    let summary = &checked.summary;
    let fault = summary.fault.as_ref().map(|fault| FaultLine {
        record: fault.record,
        before: fault.before.escape_ascii().to_string(),
        key: fault.key.escape_ascii().to_string(),
    });
    let line = CheckLine {
        sorted: fault.is_none(),
        records: summary.records,
        bytes: summary.bytes,
        duplicates: summary.duplicates,
        checksum: format!("{:032x}", summary.checksum),
        fault,
        seconds: checked.seconds,
    };
    if as_json {
        return json(&line);
    }
    let said = match &line.fault {
        None => "sorted".to_owned(),
        Some(fault) => format!(
            "not sorted: record {} has the key {}, after {}",
            fault.record, fault.key, fault.before
        ),
    };
    format!(
        "{said}\n{} records, {} bytes, {} keys like the one before, checksum {}\n",
        line.records, line.bytes, line.duplicates, line.checksum
    )
}

fn json(line: &impl Serialize) -> String {
    let text = serde_json::to_string(line).expect("plain fields have JSON");
    format!("{text}\n")
}
