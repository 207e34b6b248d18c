//! Drives a job's snapshots: hands what shards say to [`Snapshots`], and does what that asks for. On a thread of its own: it waits for a disk.

use super::mailbox::{CutMailbox, Said};
use super::parts::{SnapshotWriter, WrittenParts};
use super::root_outcomes;
use super::stored::Kept;
use super::{JobStore, marks};
use brambling_controller::snapshots::{SnapshotEffect, SnapshotEvery, Snapshots, place};
use brambling_memory::held;
use brambling_program::{Cut, CutStates, LoopId, Plan, Turn};
use brambling_protocol::kept::{CutManifest, SourceMark};
use brambling_storage::{StoreError, StoreTrouble};
use brambling_worker::executor::{Capture, CapturedValue, CutKeeper, CutQuestion, CutRequest, Job};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks at the time.
const TICK: Duration = Duration::from_millis(10);

/// What is told of a cut at which shards stood at different turns.
const DEFECT: &str = "a snapshot was not taken: shards stood at different turns of one cut; this is a defect, please report it";

/// A snapshot that exists.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) manifest: CutManifest,
}

/// The coordinator of a job that is about to begin.
pub(crate) struct Coordinator {
    keeper: Arc<CutMailbox>,
    said: Receiver<Said>,
    works: Works,
}

/// One that works.
pub(crate) struct Coordinating {
    is_over: Arc<AtomicBool>,
    lines: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<(JobStore, Option<Vec<SourceMark>>)>,
}

struct Works {
    store: JobStore,
    plan: Plan,
    machine: Snapshots,
    base: Option<Base>,
    sources: Option<Vec<SourceMark>>,
    /// The loop of the open cut.
    outermost: LoopId,
    /// Of the open cut.
    writer: Option<SnapshotWriter>,
    spent: Duration,
    begun: Instant,
    is_over: Arc<AtomicBool>,
    lines: Arc<Mutex<Vec<String>>>,
    /// The last trouble of the store that was told.
    trouble: Option<StoreTrouble>,
}

impl Coordinator {
    /// For a job of this plan, which begins at its base.
    pub(crate) fn new(
        store: JobStore,
        every: SnapshotEvery,
        plan: &Plan,
        base: Option<(Base, (LoopId, Turn))>,
    ) -> Coordinator {
        let (keeper, said) = CutMailbox::new();
        let from = base
            .as_ref()
            .map(|(base, (outermost, turns))| (base.manifest.cut, *outermost, *turns));
        let from = from.or_else(|| match store.last_cut() {
            0 => None,
            // What is there is not used, and its numbers neither.
            cut => Some((cut, 0, 0)),
        });
        let sources = base.as_ref().map(|(base, _)| base.manifest.sources.clone());
        let works = Works {
            machine: Snapshots::new(plan.cut_plan(), every, from),
            store,
            plan: plan.clone(),
            base: base.map(|(base, _)| base),
            sources,
            outermost: 0,
            writer: None,
            spent: Duration::ZERO,
            begun: Instant::now(),
            is_over: Arc::default(),
            lines: Arc::default(),
            trouble: None,
        };
        Coordinator {
            keeper: Arc::new(keeper),
            said,
            works,
        }
    }

    /// Who is to hear what the job's shards say.
    pub(crate) fn keeper(&self) -> Arc<dyn CutKeeper> {
        self.keeper.clone()
    }

    /// Begins to order snapshots of the job.
    pub(crate) fn begin(self, job: &Arc<Job>) -> std::io::Result<Coordinating> {
        let Coordinator {
            said, mut works, ..
        } = self;
        let (is_over, lines) = (works.is_over.clone(), works.lines.clone());
        let job = Arc::downgrade(job);
        let thread = std::thread::Builder::new()
            .name("brambling-store".into())
            .spawn(move || {
                works.work(&said, &job);
                (works.store, works.sources)
            })?;
        Ok(Coordinating {
            is_over,
            lines,
            thread,
        })
    }
}

impl Coordinating {
    /// What people are to be told since the last call.
    pub(crate) fn told(&self) -> Vec<String> {
        std::mem::take(&mut *held::lock(&self.lines))
    }

    /// The job is over.
    pub(crate) fn end(self) -> Kept {
        self.is_over.store(true, Ordering::Release);
        let joined = self.thread.join();
        let (store, sources) = joined.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        let told = std::mem::take(&mut *held::lock(&self.lines));
        Kept {
            store,
            sources,
            told,
        }
    }
}

impl Works {
    fn work(&mut self, said: &Receiver<Said>, job: &Weak<Job>) {
        while !self.is_over.load(Ordering::Acquire) {
            match said.recv_timeout(TICK) {
                Ok(said) => self.hear(said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.see_ends(said, job);
            self.machine.on_tick(self.begun.elapsed());
            for effect in self.machine.take_effects() {
                self.perform(effect, job);
            }
        }
    }

    /// A loop whose end was announced had its cut before, if it had one: what was said of that is heard first.
    fn see_ends(&mut self, said: &Receiver<Said>, job: &Weak<Job>) {
        let Some(job) = job.upgrade() else { return };
        let ended: Vec<LoopId> = (0..self.plan.loops)
            .filter(|it| job.has_ended(*it))
            .collect();
        drop(job);
        while let Ok(said) = said.try_recv() {
            self.hear(said);
        }
        for outermost in ended {
            self.machine.on_loop_ended(self.begun.elapsed(), outermost);
        }
    }

    fn hear(&mut self, said: Said) {
        let now = self.begun.elapsed();
        match said {
            Said::Stands(shard, at) => {
                let at = self.plan.turn_of(shard.group, &at);
                self.machine.on_stands(shard, at);
            }
            Said::Answered(cut, _, answer) => self.machine.on_answer(now, cut, answer),
            Said::Captured(cut, capture) => self.save(cut, capture),
            // It makes the manifests itself.
            Said::Committed(_) => {}
        }
    }

    fn save(&mut self, cut: u64, capture: Capture) {
        // When the job is over, nobody waits for a snapshot of it.
        if self.machine.open() != Some(cut) || self.is_over.load(Ordering::Acquire) {
            return;
        }
        let begun = Instant::now();
        let written = self.write(cut, &capture);
        self.spent += begun.elapsed();
        let (shard, state) = (capture.shard, capture.state.clone());
        // Whoever waits for it goes on.
        drop(capture);
        let now = self.begun.elapsed();
        match written {
            Ok(()) => {
                let is_one_place = self.machine.on_saved(now, cut, shard, state);
                if !is_one_place {
                    self.tell(DEFECT.into());
                }
            }
            Err(error) => self.failed(cut, &error),
        }
    }

    fn write(&mut self, cut: u64, capture: &Capture) -> Result<(), StoreError> {
        let writer = self.writer.get_or_insert_with(|| self.store.parts(cut));
        for (dataset, value) in &capture.values {
            let index = capture.shard.index;
            match value {
                CapturedValue::Shared(value) => writer.value(*dataset, index, value)?,
                CapturedValue::Encoded(Ok(bytes)) => writer.encoded(*dataset, index, bytes)?,
                CapturedValue::Encoded(Err(why)) => {
                    return Err(self.store.unkept(&self.plan, (*dataset, index), why));
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, cut: u64, error: &StoreError) {
        // The same trouble is told once, with whatever object it began.
        if self.trouble.as_ref() != Some(&error.trouble) {
            self.tell(format!(
                "no snapshot was taken, and the job goes on: {error}"
            ));
            self.trouble = Some(error.trouble.clone());
        }
        self.machine.on_failed(self.begun.elapsed(), cut);
    }

    fn perform(&mut self, effect: SnapshotEffect, job: &Weak<Job>) {
        let Some(job) = job.upgrade() else { return };
        match effect {
            SnapshotEffect::Look => job.ask(CutQuestion::Where),
            SnapshotEffect::Forget => job.ask(CutQuestion::Forget),
            SnapshotEffect::Order {
                cut,
                outermost,
                turn,
                free,
            } => {
                (self.spent, self.outermost) = (Duration::ZERO, outermost);
                job.ask(CutQuestion::Save(CutRequest {
                    id: cut,
                    outermost,
                    turn,
                    free,
                    base: (self.base.as_ref()).map(|base| Arc::new(base.manifest.states.clone())),
                }));
            }
            SnapshotEffect::Commit { cut, states } => self.commit(cut, states, &job),
            // The job does that itself: all its shards hear what it is asked.
            SnapshotEffect::Name(_) => {}
            SnapshotEffect::Discard(_) => {
                self.writer = None;
                // What is left lies there until the next sweep.
                let _ = self.store.sweep();
            }
            SnapshotEffect::Tell(notice) => {
                self.tell(notice.words(&self.store.name));
            }
        }
    }

    fn commit(&mut self, cut: u64, states: CutStates, job: &Job) {
        // Fingerprints are needed before the first snapshot exists.
        if self.sources.is_none() {
            let is_over = self.is_over.clone();
            let goes_on = move || !is_over.load(Ordering::Relaxed);
            self.sources = marks::sources(&self.plan, goes_on);
        }
        let Some(sources) = self.sources.clone() else {
            // The job is over, or a source failed when it was read once more.
            return self.machine.on_failed(self.begun.elapsed(), cut);
        };
        let Some((at, turns)) = self.place(&states) else {
            self.tell(DEFECT.into());
            return self.machine.on_failed(self.begun.elapsed(), cut);
        };
        let writer = self.writer.take();
        let written = writer.map_or(Ok(WrittenParts::default()), SnapshotWriter::finish);
        let committed = written.and_then(|WrittenParts { objects, parts, .. }| {
            let mut manifest = CutManifest {
                program: self.store.program,
                name: self.store.name.clone(),
                cut,
                at: Cut::LoopTop(at),
                turns,
                states,
                outcomes: root_outcomes(&self.plan, job),
                sources,
                objects,
                parts,
                results: None,
            };
            if let Some(base) = &self.base {
                manifest.fill_from(&base.manifest);
            }
            self.store.commit(&manifest)?;
            self.base = Some(Base { manifest });
            Ok((at, turns))
        });
        match committed {
            Ok(at) => {
                self.trouble = None;
                let now = self.begun.elapsed();
                self.machine.on_committed(now, at, self.spent);
            }
            Err(error) => self.failed(cut, &error),
        }
    }

    /// The loop of the cut, and the turns done of it.
    fn place(&self, states: &CutStates) -> Option<(LoopId, Turn)> {
        let turn_of = |group, state: &_| self.plan.turn_of(group, state);
        place(&self.plan.cut_plan(), self.outermost, states, turn_of)
    }

    fn tell(&self, line: String) {
        held::lock(&self.lines).push(line);
    }
}
