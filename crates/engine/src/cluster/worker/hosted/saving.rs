//! Saves what a job's shards here give at cuts, on a thread of its own, and tells the controller what lies in the store.
//!
//! # Rules
//! * What shards give is written at once; an object is ended, and told of, when nothing more has come for [`TICK`]. So a cut makes one object on a worker whose
//!   shards come to it together.
//! * What cannot be written makes the cut void, and ends nothing.
//! * A job may be over, and what it has in the store taken away, while something is written here. Whoever ends with something that no snapshot names
//!   looks whether the job's place still stands, and takes away what came late.

use crate::cluster::snapshots::JobPlace;
use crate::cluster::worker::local_parts::{LocalParts, SavedHere};
use crate::store::{CutMailbox, Said, SnapshotWriter, WrittenParts, root_outcomes};
use brambling_program::{CutAnswer, DatasetId, GroupId, GroupState, LoopId, Plan, ShardId, Turn};
use brambling_protocol::Generation;
use brambling_protocol::frame::{CutWord, SavedParts, SavedShards};
use brambling_protocol::kept::{KeptProgram, StoredPart};
use brambling_storage::{StoreError, StoreTrouble};
use brambling_worker::executor::{Capture, CapturedValue, CutKeeper, Job};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Who has told nothing for so long is not waited for.
const TICK: Duration = Duration::from_millis(10);
/// So many shards are told of at once.
const TOLD_AT_ONCE: usize = 1 << 12;

/// What saves a job that is about to begin.
pub(super) struct JobSaver {
    keeper: Arc<CutMailbox>,
    said: Receiver<Said>,
    place: Result<JobPlace, StoreError>,
    /// Tells this worker's objects from those of others, and of other generations.
    by: String,
    /// What is kept beside the job's snapshots, if this worker is to do so.
    program: Option<KeptProgram>,
    /// Has copies of what was saved.
    near: (Generation, Arc<LocalParts>),
}

impl JobSaver {
    pub(super) fn new(
        place: Result<JobPlace, StoreError>,
        by: String,
        near: (Generation, Arc<LocalParts>),
    ) -> JobSaver {
        let (keeper, said) = CutMailbox::new();
        JobSaver {
            keeper: Arc::new(keeper),
            said,
            place,
            by,
            program: None,
            near,
        }
    }

    /// Has the program kept as well, before the first snapshot exists: a job can go on where nobody has its script.
    pub(super) fn with_program(mut self, program: KeptProgram) -> JobSaver {
        self.program = Some(program);
        self
    }

    /// Who is to hear what the job's shards say.
    pub(super) fn keeper(&self) -> Arc<dyn CutKeeper> {
        self.keeper.clone()
    }

    /// Begins to save. It ends soon after the job, or when it is told so.
    pub(super) fn begin(self, job: &Arc<Job>) -> std::io::Result<Arc<AtomicBool>> {
        let is_over = Arc::<AtomicBool>::default();
        let mut works = Works {
            plan: job.plan().clone(),
            job: Arc::downgrade(job),
            place: self.place,
            by: self.by,
            program: self.program,
            near: self.near,
            is_over: is_over.clone(),
            told: Told::default(),
            open: None,
            unnamed: None,
            has_stood: false,
            ended: Vec::new(),
        };
        std::thread::Builder::new()
            .name("brambling-store".into())
            .spawn(move || {
                works.work(&self.said);
                works.leave();
            })?;
        Ok(is_over)
    }
}

struct Works {
    plan: Plan,
    job: Weak<Job>,
    place: Result<JobPlace, StoreError>,
    by: String,
    /// Until it was kept.
    program: Option<KeptProgram>,
    near: (Generation, Arc<LocalParts>),
    is_over: Arc<AtomicBool>,
    told: Told,
    /// The cut that is being saved.
    open: Option<OpenParts>,
    /// The last cut for which something was written, until there is a snapshot of it.
    unnamed: Option<u64>,
    /// Whether the job's place was seen to stand: before, that it does not says nothing.
    has_stood: bool,
    /// Loops of whose end the controller was told.
    ended: Vec<LoopId>,
}

/// What was not told yet.
#[derive(Default)]
struct Told {
    stand: BTreeMap<GroupId, Option<(LoopId, Turn)>>,
    will: Option<(u64, Vec<ShardId>)>,
    past: Option<u64>,
}

struct OpenParts {
    cut: u64,
    /// None: something could not be written, and that was told.
    writer: Option<SnapshotWriter>,
    shards: Vec<(GroupState, GroupId, Vec<ShardId>)>,
    count: usize,
    objects: u32,
    spent: Duration,
}

impl Works {
    fn work(&mut self, said: &Receiver<Said>) {
        while !self.is_over.load(Ordering::Acquire) && self.job.strong_count() > 0 {
            match said.recv_timeout(TICK) {
                Ok(first) => {
                    self.hear(first);
                    let more = said.try_iter().take(TOLD_AT_ONCE).collect::<Vec<_>>();
                    more.into_iter().for_each(|said| self.hear(said));
                    self.tell();
                    if self
                        .open
                        .as_ref()
                        .is_some_and(|it| it.count >= TOLD_AT_ONCE)
                    {
                        self.end_object();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.end_object();
                    self.tell_ends();
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn say(&self, what: CutWord) {
        if let Some(job) = self.job.upgrade() {
            job.tell_cut(what);
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Stands(shard, at) => {
                let at = self.plan.turn_of(shard.group, &at);
                let furthest = self.told.stand.entry(shard.group).or_default();
                *furthest = (*furthest).max(at);
            }
            Said::Answered(cut, _, CutAnswer::Past) => self.told.past = Some(cut),
            Said::Answered(cut, shard, CutAnswer::Will) => match &mut self.told.will {
                Some((of, shards)) if *of == cut => shards.push(shard),
                other => *other = Some((cut, vec![shard])),
            },
            Said::Captured(cut, capture) => self.save(cut, capture),
            Said::Committed(cut) => {
                self.unnamed = self.unnamed.filter(|it| *it != cut);
                self.near.1.commit(self.near.0, cut);
            }
        }
    }

    /// Tells what shards have answered.
    fn tell(&mut self) {
        let Told { stand, will, past } = std::mem::take(&mut self.told);
        if !stand.is_empty() {
            self.say(CutWord::Stand(stand.into_iter().collect()));
        }
        let told = |cut, answer, shards| CutWord::Told {
            cut,
            answer,
            shards,
        };
        if let Some(cut) = past {
            self.say(told(cut, CutAnswer::Past, Vec::new()));
        }
        if let Some((cut, shards)) = will {
            self.say(told(cut, CutAnswer::Will, shards));
        }
    }

    fn save(&mut self, cut: u64, capture: Capture) {
        let begun = Instant::now();
        if self.open.as_ref().is_none_or(|it| it.cut != cut) {
            self.open = Some(OpenParts {
                cut,
                writer: None,
                shards: Vec::new(),
                count: 0,
                objects: 0,
                spent: Duration::ZERO,
            });
            if let Err(error) = self.begin_object() {
                return self.failed(cut, &error);
            }
        }
        let written = self.write(&capture);
        if let Err(error) = written {
            return self.failed(cut, &error);
        }
        let open = self.open.as_mut().expect("just made");
        open.spent += begun.elapsed();
        if open.writer.is_none() {
            return;
        }
        open.count += 1;
        let (shard, state) = (capture.shard, capture.state.clone());
        // Whoever waits for it goes on.
        drop(capture);
        let is_it =
            |it: &&mut (GroupState, GroupId, Vec<ShardId>)| it.1 == shard.group && it.0 == state;
        match open.shards.iter_mut().find(is_it) {
            Some((_, _, shards)) => shards.push(shard),
            None => open.shards.push((state, shard.group, vec![shard])),
        }
    }

    fn begin_object(&mut self) -> Result<(), StoreError> {
        let place = self.place.as_ref().map_err(Clone::clone)?;
        self.has_stood = self.has_stood || place.stands().unwrap_or(false);
        let open = self.open.as_mut().expect("the caller has it");
        let by = format!("{}-{}", self.by, open.objects);
        open.objects += 1;
        let prefix = place.parts_of(open.cut, &by);
        let writer = SnapshotWriter::new(place.store.clone(), prefix);
        open.writer = Some(writer.keeping(self.near.1.memory().clone()));
        Ok(())
    }

    fn write(&mut self, capture: &Capture) -> Result<(), StoreError> {
        let Some(writer) = self.open.as_mut().and_then(|it| it.writer.as_mut()) else {
            return Ok(());
        };
        let index = capture.shard.index;
        for (dataset, value) in &capture.values {
            match value {
                CapturedValue::Shared(value) => writer.value(*dataset, index, value)?,
                CapturedValue::Encoded(Ok(bytes)) => writer.encoded(*dataset, index, bytes)?,
                CapturedValue::Encoded(Err(why)) => return Err(self.unkept(*dataset, index, why)),
            }
        }
        Ok(())
    }

    fn unkept(&self, dataset: DatasetId, index: u32, why: &str) -> StoreError {
        let name = &self.plan.program.spec().datasets[dataset.index()].name;
        StoreError {
            store: (self.place.as_ref())
                .map_or_else(|_| String::new(), |it| it.store.name().to_owned()),
            doing: format!("saving partition {index} of `{name}`"),
            trouble: StoreTrouble::Other(why.to_owned()),
        }
    }

    /// The cut is void; what else comes for it is not written.
    fn failed(&mut self, cut: u64, error: &StoreError) {
        let why = error.to_string();
        if let Some(open) = &mut self.open {
            open.writer = None;
            open.shards.clear();
        }
        self.say(CutWord::Unsaved { cut, why });
    }

    /// Lets what was written exist, and tells of it.
    fn end_object(&mut self) {
        let begun = Instant::now();
        let Some(open) = self.open.as_mut().filter(|it| it.count > 0) else {
            return;
        };
        let cut = open.cut;
        let Some(writer) = open.writer.take() else {
            return;
        };
        self.unnamed = Some(cut);
        self.keep_program();
        let finished = writer.finish();
        let written = match finished {
            Ok(made) => made,
            Err(error) => return self.failed(cut, &error),
        };
        let open = self.open.as_mut().expect("as above");
        let spent = std::mem::take(&mut open.spent) + begun.elapsed();
        open.count = 0;
        let shards = std::mem::take(&mut open.shards);
        // Before it is told: there may be a snapshot then.
        let (objects, parts) = self.keep_near(cut, &shards, written);
        let shards = shards
            .into_iter()
            .map(|(state, group, shards)| SavedShards {
                turns: self.plan.turn_of(group, &state),
                state,
                shards,
            });
        let shards = shards.collect();
        // What comes for this cut later goes to another object.
        let begun = self.begin_object();
        let outcomes = self.job.upgrade();
        let outcomes = outcomes.map(|job| root_outcomes(&self.plan, &job));
        self.say(CutWord::Saved(SavedParts {
            cut,
            shards,
            outcomes: outcomes.unwrap_or_default(),
            objects,
            parts,
            spent_ns: spent.as_nanos() as u64,
        }));
        if let Err(error) = begun {
            self.failed(cut, &error);
        }
    }

    /// What was written here after the job's place was cleared goes as well.
    fn leave(&self) {
        let Ok(place) = &self.place else { return };
        let may_be_late = self.has_stood && self.unnamed.is_some();
        if may_be_late && matches!(place.stands(), Ok(false)) {
            // What is left lies where nothing stands.
            let _ = place.clear();
        }
    }

    /// Keeps the program beside the snapshots. One that cannot be kept now is tried with the next cut: a snapshot without it is of use to whoever has the script.
    fn keep_program(&mut self) {
        let (Some(program), Ok(place)) = (&self.program, &self.place) else {
            return;
        };
        if place.keep_program(program).is_ok() {
            self.program = None;
        }
    }

    /// What was saved is kept here, too.
    fn keep_near(
        &self,
        cut: u64,
        shards: &[(GroupState, GroupId, Vec<ShardId>)],
        written: WrittenParts,
    ) -> (Vec<String>, Vec<StoredPart>) {
        let WrittenParts {
            objects,
            parts,
            copies,
        } = written;
        let shards: Vec<ShardId> = shards.iter().flat_map(|it| &it.2).copied().collect();
        let copied = parts.iter().zip(copies).map(|(part, bytes)| {
            let group = self.plan.group_of_dataset[part.dataset.index()];
            let index = part.shard;
            (ShardId { group, index }, *part, bytes)
        });
        let saved = SavedHere {
            cut,
            shards: &shards,
            objects: &objects,
            parts: copied.collect(),
        };
        self.near.1.save(self.near.0, saved);
        (objects, parts)
    }

    /// Loops that have ended have no cuts any more.
    fn tell_ends(&mut self) {
        let Some(job) = self.job.upgrade() else {
            return;
        };
        let loops = 0..self.plan.loops;
        let ended: Vec<LoopId> = loops
            .filter(|it| !self.ended.contains(it) && job.has_ended(*it))
            .collect();
        for outermost in &ended {
            job.tell_cut(CutWord::Ended(*outermost));
        }
        self.ended.extend(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_memory::Memory;
    use brambling_program::{Bindings, Partitioner, Program};
    use brambling_storage::{DirectoryStore, PlacedStore};

    const PLACE: &str = "cluster-1/1";

    /// Something is written for a cut, after `meanwhile` has happened. Gives what lies in the store when it does, and when the worker has left.
    fn left(meanwhile: impl FnOnce(&JobPlace)) -> (usize, usize) {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(DirectoryStore::open(directory.path()).unwrap());
        let place = || JobPlace::new(store.clone(), PLACE);
        place().raise().unwrap();
        let mut program = Program::new("line");
        program.load("line", 1, Partitioner::Opaque, |index, _| f64::from(index));
        let memory = Memory::new(1 << 20);
        let mut works = Works {
            plan: Plan::compile(Arc::new(program), &Bindings::default()).unwrap(),
            job: Weak::new(),
            place: Ok(place()),
            by: "g0-w1".into(),
            program: None,
            near: (Generation(0), Arc::new(LocalParts::new(memory))),
            is_over: Arc::default(),
            told: Told::default(),
            open: Some(OpenParts {
                cut: 7,
                writer: None,
                shards: Vec::new(),
                count: 1,
                objects: 0,
                spent: Duration::ZERO,
            }),
            unnamed: None,
            has_stood: false,
            ended: Vec::new(),
        };
        works.begin_object().unwrap();
        meanwhile(&place());
        let writer = works.open.as_mut().and_then(|it| it.writer.as_mut());
        writer.unwrap().encoded(DatasetId(0), 0, &[7]).unwrap();
        works.end_object();
        let count = || store.list_all().unwrap().len();
        let written = count();
        works.leave();
        (written, count())
    }

    #[test]
    fn what_comes_late_is_taken_away() {
        assert_eq!(left(|place| place.clear().unwrap()), (1, 0));
    }

    #[test]
    fn what_a_job_that_goes_on_has_stays() {
        assert_eq!(left(|_| {}), (2, 2));
    }
}
