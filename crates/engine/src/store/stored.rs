//! A job of this process that has a store: how it begins, runs, and ends.

use super::JobStore;
use super::coordinator::{Base, Coordinating, Coordinator};
use super::found::FoundJob;
use crate::{Caller, Error, Failure, Interrupted, Outcome, Resolved, Tally};
use brambling_machine::Ledger;
use brambling_program::{DatasetId, Plan, Value};
use brambling_protocol::kept::{KeptResults, SourceMark};
use brambling_storage::StoreLocation;
use brambling_worker::executor::{Advance, CutKeeper, Job, Printed, Restored};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a store has made of a job that is asked for.
pub(crate) enum Stored {
    /// It has ended, in a process before this one.
    Ended(StoredResults),
    /// It begins, at its start or at a snapshot.
    Begins(Box<StoredJob>),
}

pub(crate) struct StoredResults {
    values: BTreeMap<(DatasetId, u32), Value>,
    results: KeptResults,
}

impl StoredResults {
    /// The results, and the report of the run that made them.
    pub(crate) fn into_outcome(self, plan: Plan) -> Outcome {
        let tally = tally_of(&self.results);
        let ledger = serde_json::from_str(&self.results.ledger);
        let ledger: Ledger = ledger.unwrap_or_else(|_| Ledger {
            program: plan.program.spec().name.clone(),
            wall_s: tally.wall.as_secs_f64(),
            succeeded: true,
            ..Ledger::default()
        });
        Outcome::fetched(plan, self.values, tally, ledger)
    }
}

/// What is kept of a job beside its results.
pub(super) fn results_of(outcome: &mut Outcome) -> KeptResults {
    let tally = outcome.tally();
    let counts = [
        ("tasks", tally.tasks),
        ("slices", tally.slices),
        ("stolen", tally.stolen),
        ("threads", u64::from(tally.threads)),
        ("busy_ns", tally.busy.as_nanos() as u64),
        ("wall_ns", tally.wall.as_nanos() as u64),
        ("peak_bytes", tally.peak_bytes),
    ];
    KeptResults {
        counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
        ledger: serde_json::to_string(&outcome.ledger()).expect("a ledger is numbers and names"),
    }
}

fn tally_of(results: &KeptResults) -> Tally {
    let count = |name: &str| {
        let mut counts = results.counts.iter();
        counts
            .find(|(its, _)| its == name)
            .map_or(0, |(_, count)| *count)
    };
    Tally {
        tasks: count("tasks"),
        slices: count("slices"),
        stolen: count("stolen"),
        threads: count("threads") as u32,
        busy: Duration::from_nanos(count("busy_ns")),
        wall: Duration::from_nanos(count("wall_ns")),
        peak_bytes: count("peak_bytes"),
        ..Tally::default()
    }
}

pub(crate) struct StoredJob {
    coordinator: Coordinator,
    restored: Option<Arc<Restored>>,
}

impl Stored {
    /// None where jobs are not kept.
    pub(crate) fn begin(
        settings: &Resolved,
        plan: &Plan,
        caller: &mut dyn Caller,
    ) -> Result<Option<Stored>, Error> {
        // Of what writes files, the results are not all that counts.
        let Some(location) = settings.store.as_ref().filter(|_| !plan.program.acts()) else {
            return Ok(None);
        };
        let Some(mut store) = JobStore::open(location, plan, &mut waiting(caller, location))?
        else {
            return Err(Failure::Interrupted.into());
        };
        let found = store.find(plan);
        for line in std::mem::take(&mut store.told) {
            caller.told(&line);
        }
        let (restored, base) = match found? {
            FoundJob::Results(values, results) => {
                let results = StoredResults { values, results };
                return Ok(Some(Stored::Ended(results)));
            }
            FoundJob::Nothing => (None, None),
            FoundJob::Snapshot(found) => {
                let name = &store.name;
                caller.told(&format!(
                    "`{name}` goes on from its snapshot: {} turns are done",
                    found.at.1
                ));
                let base = (
                    Base {
                        manifest: found.manifest,
                    },
                    found.at,
                );
                (Some(Arc::new(found.restored)), Some(base))
            }
        };
        Ok(Some(Stored::Begins(Box::new(StoredJob {
            coordinator: Coordinator::new(store, settings.snapshot_every, plan, base),
            restored,
        }))))
    }
}

/// What takes less is not told.
const TELLING: Duration = Duration::from_millis(400);

/// Tells why a place has to be waited for, once, and ends the wait when the caller is interrupted.
fn waiting<'c>(
    caller: &'c mut dyn Caller,
    location: &StoreLocation,
) -> impl FnMut(&str, Duration) -> bool + 'c {
    let (location, mut is_told) = (location.clone(), false);
    move |why, so_long| {
        if so_long > TELLING && !std::mem::replace(&mut is_told, true) {
            caller.told(&format!("waiting for the store {location}: {why}"));
        }
        caller.check().is_ok()
    }
}

impl StoredJob {
    /// Who hears what the job's shards say of cuts.
    pub(crate) fn keeper(&self) -> Arc<dyn CutKeeper> {
        self.coordinator.keeper()
    }

    /// What it begins with.
    pub(crate) fn restored(&mut self) -> Option<Arc<Restored>> {
        self.restored.take()
    }

    pub(crate) fn coordinate(self, job: &Arc<Job>) -> Result<Coordinating, Error> {
        let begun = self.coordinator.begin(job);
        begun.map_err(|source| Error::Threads { threads: 1, source })
    }
}

/// A job that is over, and its store.
pub(crate) struct Kept {
    pub(super) store: JobStore,
    pub(super) sources: Option<Vec<SourceMark>>,
    pub(super) told: Vec<String>,
}

impl Kept {
    /// Says what is left to say of a job that has failed. Its snapshots stay.
    pub(crate) fn tell(self, caller: &mut dyn Caller) {
        self.told.iter().for_each(|line| caller.told(line));
    }

    /// Keeps the results of a job that has ended well.
    pub(crate) fn keep(mut self, outcome: &mut Outcome, caller: &mut dyn Caller) {
        let told = std::mem::take(&mut self.told);
        told.iter().for_each(|line| caller.told(line));
        let sources = self.sources.take().unwrap_or_else(|| outcome.sources());
        if let Err(error) = self.store.keep_results(outcome, sources) {
            let name = &self.store.name;
            caller.told(&format!("the results of `{name}` are not kept: {error}"));
        }
    }
}

/// A caller that is told what the coordinator has to say.
pub(crate) struct StoreCaller<'c> {
    caller: &'c mut dyn Caller,
    coordinating: &'c Coordinating,
}

impl<'c> StoreCaller<'c> {
    pub(crate) fn of(
        caller: &'c mut dyn Caller,
        coordinating: &'c Coordinating,
    ) -> StoreCaller<'c> {
        StoreCaller {
            caller,
            coordinating,
        }
    }
}

impl Caller for StoreCaller<'_> {
    fn advanced(&mut self, advance: Advance<'_>) {
        self.caller.advanced(advance);
    }

    fn waits(&mut self, why: &str, so_long: Duration) {
        self.caller.waits(why, so_long);
    }

    fn told(&mut self, line: &str) {
        self.caller.told(line);
    }

    fn printed(&mut self, lines: &[Printed]) {
        self.caller.printed(lines);
    }

    fn check(&mut self) -> Result<(), Interrupted> {
        for line in self.coordinating.told() {
            self.caller.told(&line);
        }
        self.caller.check()
    }

    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        self.caller.run_stages(run);
    }
}
