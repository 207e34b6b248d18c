//! How long each task of a job took.

use brambling_program::StageKind;
use brambling_worker::executor::Job;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a job leaves how long each of its tasks took: given to [`RunOptions::task_times`], read when the job has
/// ended. A clone is the same place.
///
/// A task's time is that of its kernel, from the call to the return: what a scatter puts into slots and a gather
/// takes out of them included; spawning, waiting and waking not. Two readings of the clock add some 25 ns to each.
/// A kernel that answers [`Progress::More`] or [`Progress::Pending`] has a time for each call.
///
/// Each thread notes its own tasks in a buffer of 16 bytes a task, which no budget counts; without a `TaskTimes` a
/// job has none, and its tasks are not timed.
///
/// ```
/// use brambling::TaskTimes;
/// use brambling::prelude::*;
///
/// let mut p = Program::new("count");
/// let counts = p.dataset::<u64>("counts", 4);
/// p.repeat(10, |p| {
///     p.compute("bump").update(&counts).run(|count: &mut u64| *count += 1);
/// });
/// let times = TaskTimes::new();
/// RunOptions::new().task_times(&times).run(p)?;
/// let timed = times.take();
/// assert_eq!((timed.stages[0].stage.as_str(), timed.stages[0].ns.len()), ("bump", 40));
/// assert_eq!(timed.left_out, 0);
/// # Ok::<(), brambling::Error>(())
/// ```
///
/// [`RunOptions::task_times`]: crate::RunOptions::task_times
/// [`Progress::More`]: crate::program::Progress::More
/// [`Progress::Pending`]: crate::program::Progress::Pending
#[derive(Clone, Debug)]
pub struct TaskTimes {
    tasks_per_thread: usize,
    timed: Arc<Mutex<Timed>>,
}

/// How long the tasks of a job took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timed {
    /// Every stage of the program, in its order.
    pub stages: Vec<StageTimes>,
    /// Tasks that are in no stage's times, because their thread had no room left for them.
    pub left_out: u64,
}

/// How long the tasks of one stage took.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageTimes {
    /// The stage's name. A scatter and its gather may share one.
    pub stage: String,
    /// What the stage is.
    pub kind: StageKind,
    /// Whether it stands in a loop.
    pub in_loop: bool,
    /// Nanoseconds of each task, ascending.
    pub ns: Vec<u64>,
}

impl Default for TaskTimes {
    fn default() -> TaskTimes {
        TaskTimes::new()
    }
}

impl TaskTimes {
    /// With room for 2²⁰ tasks of each thread.
    pub fn new() -> TaskTimes {
        TaskTimes::with_room(1 << 20)
    }

    /// With room for so many tasks of each thread; those beyond it are counted in [`Timed::left_out`].
    pub fn with_room(tasks_per_thread: usize) -> TaskTimes {
        TaskTimes {
            tasks_per_thread,
            timed: Arc::default(),
        }
    }

    /// Takes the times of the last job that ended well. Without one since the last call there is no stage.
    pub fn take(&self) -> Timed {
        std::mem::take(&mut *self.timed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn tasks_per_thread(&self) -> usize {
        self.tasks_per_thread
    }

    /// Keeps the times of a job that has ended.
    pub(crate) fn keep(&self, job: &Job) {
        let spec = job.plan().program.spec();
        let times = job.kernel_times();
        let stages = spec.stages.iter().zip(spec.stages_in_loops());
        let stages = stages
            .zip(times.ns)
            .map(|((stage, in_loop), ns)| StageTimes {
                stage: stage.name.clone(),
                kind: stage.kind,
                in_loop,
                ns,
            });
        let timed = Timed {
            stages: stages.collect(),
            left_out: times.left_out,
        };
        *self.timed.lock().unwrap_or_else(PoisonError::into_inner) = timed;
    }
}
