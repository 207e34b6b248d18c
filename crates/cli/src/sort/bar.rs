//! Owns what a terminal shows of a sort that runs: what it does, how fast, how near that is to the disk's speed, and the time left.
//!
//! The command asks it for interruptions in the host's place. It writes to standard error, and only where that is a terminal.

use super::told::DiskSpeeds;
use crate::Host;
use brambling::machine::profile::Profile;
use brambling::machine::units;
use brambling::sort::{SortAdvance, SortProgress, SortedBytes};
use brambling::{Advance, Caller, Interrupted};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two changes of the line.
const SHOWN_EACH: Duration = Duration::from_millis(100);
/// Before that nothing says how long the rest takes.
const LEFT_FROM: Duration = Duration::from_millis(500);

/// The line of a sort.
pub(super) struct SortBar<'a> {
    host: &'a mut dyn Host,
    progress: SortProgress,
    /// None: nobody sees it.
    bar: Option<ProgressBar>,
    speeds: Option<DiskSpeeds>,
    shown: Option<Instant>,
    /// Of a cluster's job: tasks that have ended, of all.
    tasks: (u64, Option<u64>),
}

impl<'a> SortBar<'a> {
    pub(super) fn new(host: &'a mut dyn Host, output: &Path, is_wanted: bool) -> SortBar<'a> {
        let is_seen = is_wanted && std::io::stderr().is_terminal();
        let style = || {
            let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}");
            style.expect("a template")
        };
        let profile = || Profile::cached().ok().flatten();
        SortBar {
            host,
            progress: SortProgress::default(),
            bar: is_seen.then(|| ProgressBar::new(0).with_style(style())),
            speeds: is_seen
                .then(profile)
                .flatten()
                .and_then(|it| DiskSpeeds::of(&it, output)),
            shown: None,
            tasks: (0, None),
        }
    }

    /// Where the sort tells how far it is.
    pub(super) fn progress(&self) -> &SortProgress {
        &self.progress
    }

    /// The sort has ended: the line goes.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self) {
        let Some(bar) = &self.bar else {
            return;
        };
        if self.shown.is_some_and(|it| it.elapsed() < SHOWN_EACH) {
            return;
        }
        let Some(now) = self.progress.now() else {
            return;
        };
        self.shown = Some(Instant::now());
        let (done, all) = match (&now.bytes, self.tasks) {
            (Some(bytes), _) => (bytes.moved, bytes.total),
            (None, (done, all)) => (done, all.unwrap_or(0)),
        };
        bar.update(|state| {
            state.set_len(all);
            state.set_pos(done.min(all));
        });
        bar.set_message(match &now.bytes {
            Some(bytes) => of_bytes(&now, bytes, self.speeds),
            None => of_tasks(self.tasks),
        });
    }
}

/// What a process that sorts alone shows.
fn of_bytes(now: &SortAdvance, bytes: &SortedBytes, speeds: Option<DiskSpeeds>) -> String {
    let seconds = now.elapsed.as_secs_f64().max(1e-9);
    let (moved, total) = (bytes.moved as f64, bytes.total as f64);
    let mut text = format!(
        "{}  {} of {}  {}",
        if bytes.is_read { "writing" } else { "reading" },
        units::bytes(moved),
        units::bytes(total),
        units::rate(moved / seconds),
    );
    if let Some(speeds) = speeds {
        let ideal = bytes.read as f64 / speeds.read_bytes_per_s
            + bytes.written as f64 / speeds.write_bytes_per_s;
        // Files in the system's memory are read faster than the disk reads.
        let share = (ideal / seconds).min(1.0);
        text.push_str(&format!("  {:.0} % of ideal", 100.0 * share));
    }
    if now.elapsed >= LEFT_FROM && moved > 0.0 {
        let left = seconds * (total - moved).max(0.0) / moved;
        text.push_str(&format!("  {} left", units::seconds(left)));
    }
    text
}

/// What workers of a cluster tell of: how many tasks have ended.
fn of_tasks((done, all): (u64, Option<u64>)) -> String {
    match all {
        Some(all) => format!("sorting  {done} of {all} tasks"),
        None => format!("sorting  {done} tasks"),
    }
}

impl Caller for SortBar<'_> {
    fn advanced(&mut self, advance: Advance<'_>) {
        self.tasks = (advance.tasks, advance.tasks_total);
    }

    fn check(&mut self) -> Result<(), Interrupted> {
        self.show();
        match self.host.interrupted() {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }
}
