//! How long each call of a kernel takes, for jobs that want to know. Such a job's kernels are wrapped when it is
//! made, so that other jobs pay nothing; each thread notes its own calls, in a buffer of a fixed size.
#![allow(unsafe_code)] // Passes a kernel's arguments on.

use brambling_memory::held;
use brambling_program::{Context, Kernel, Linked, Plan, Progress, StageId};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Instant;

thread_local! {
    /// Of the job that the thread works for, when that is a timed one.
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// What one thread noted.
struct Notes {
    calls: Vec<(StageId, u64)>,
    room: usize,
    left_out: u64,
}

impl Notes {
    /// With room for so many calls; more are only counted.
    fn new(room: usize) -> Notes {
        Notes {
            // More room than this is made when it is needed: `room` may mean "without end".
            calls: Vec::with_capacity(room.min(1 << 20)),
            room,
            left_out: 0,
        }
    }

    fn add(&mut self, stage: StageId, ns: u64) {
        if self.calls.len() < self.room {
            self.calls.push((stage, ns));
        } else {
            self.left_out += 1;
        }
    }
}

/// A thread's notes while it does not work.
pub(super) struct Notebook(Mutex<Option<Notes>>);

impl Notebook {
    /// With room for so many calls.
    pub(super) fn new(room: usize) -> Notebook {
        Notebook(Mutex::new(Some(Notes::new(room))))
    }

    /// The calling thread begins to work, or ends: what it notes from now on comes from here, or goes there.
    pub(super) fn exchange(&self) {
        let mut here = held::lock(&self.0);
        NOTES.with_borrow_mut(|notes| std::mem::swap(notes, &mut *here));
    }
}

/// A kernel whose calls are timed.
struct Timed {
    kernel: Arc<dyn Kernel>,
    stage: StageId,
}

impl Kernel for Timed {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        let begun = Instant::now();
        // SAFETY: the caller's promise.
        let progress = unsafe { self.kernel.call(context, args) };
        let ns = begun.elapsed().as_nanos() as u64;
        NOTES.with_borrow_mut(|notes| {
            let notes = notes.as_mut().expect("a thread of a timed job");
            notes.add(self.stage, ns);
        });
        progress
    }
}

/// Has every kernel of a plan timed.
pub(super) fn time_kernels(plan: &mut Plan) {
    for task in plan.codes.iter_mut().flat_map(|code| &mut code.tasks) {
        let stage = task.stage;
        task.kernel = task
            .kernel
            .take()
            .map(|Linked(kernel)| Linked(Arc::new(Timed { kernel, stage })));
    }
}

/// How long kernels ran, as far as there was room to note it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTimes {
    /// By stage: nanoseconds from each call to its return, ascending.
    pub ns: Vec<Vec<u64>>,
    /// Calls for which there was no room.
    pub left_out: u64,
}

impl KernelTimes {
    /// What is in the notebooks of threads that do not work any more.
    pub(super) fn of(stages: usize, notebooks: &[Notebook]) -> KernelTimes {
        let mut times = KernelTimes {
            ns: vec![Vec::new(); stages],
            left_out: 0,
        };
        for notebook in notebooks {
            let notes = held::lock(&notebook.0);
            if let Some(notes) = &*notes {
                times.left_out += notes.left_out;
                for (stage, ns) in &notes.calls {
                    times.ns[stage.index()].push(*ns);
                }
            }
        }
        times.ns.iter_mut().for_each(|ns| ns.sort_unstable());
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_beyond_the_room_are_counted() {
        let notebooks = [3, 0].map(Notebook::new);
        for notebook in &notebooks {
            notebook.exchange();
            for ns in [7, 5, 6, 1] {
                NOTES.with_borrow_mut(|notes| notes.as_mut().unwrap().add(StageId(1), ns));
            }
            notebook.exchange();
        }
        let times = KernelTimes::of(2, &notebooks);
        assert_eq!(times.ns, [vec![], vec![5, 6, 7]]);
        assert_eq!(times.left_out, 1 + 4);
    }
}
