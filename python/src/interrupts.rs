//! Which kernels in Python run on which threads, so that those of a job that is over can be interrupted, and told of.
#![allow(unsafe_code)] // Two calls of the interpreter's that pyo3 has no safe form of.

use crate::interpreter::attach;
use crate::prints::PrintTarget;
use brambling::cluster::Prints;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a thread runs.
struct Thread {
    /// Its name in the interpreter.
    ident: std::ffi::c_ulong,
    /// The place of its kernel, which lives while the kernel runs; null: none runs. Written by the thread, a store for each kernel.
    kernel: AtomicPtr<PrintTarget>,
    /// An exception was sent to it, and may not have arrived.
    is_interrupted: AtomicBool,
}

/// All threads that run kernels, and the places of all kernels there are: what a thread runs is looked for among them.
static THREADS: Mutex<Vec<Weak<Thread>>> = Mutex::new(Vec::new());
static PLACES: Mutex<Vec<Weak<PrintTarget>>> = Mutex::new(Vec::new());

thread_local! {
    static THREAD: Arc<Thread> = {
        let thread = Arc::new(Thread {
            // SAFETY: it may be called on any thread.
            ident: unsafe { ffi::PyThread_get_thread_ident() } as std::ffi::c_ulong,
            kernel: AtomicPtr::new(ptr::null_mut()),
            is_interrupted: AtomicBool::new(false),
        });
        add(&THREADS, &thread);
        thread
    };
}

fn locked<T>(list: &Mutex<Vec<Weak<T>>>) -> MutexGuard<'_, Vec<Weak<T>>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add<T>(list: &Mutex<Vec<Weak<T>>>, one: &Arc<T>) {
    let mut list = locked(list);
    list.retain(|it| it.strong_count() > 0);
    list.push(Arc::downgrade(one));
}

/// A kernel's place is known from now on, for as long as it lives.
pub fn add_place(place: &Arc<PrintTarget>) {
    add(&PLACES, place);
}

/// This thread runs the kernel of a place, or none, from now on; what it ran before.
pub fn runs(place: *const PrintTarget) -> *const PrintTarget {
    THREAD.with(|thread| {
        // Readers look at what it points to only once they have found it among the places.
        let before = thread.kernel.swap(place.cast_mut(), Ordering::Relaxed);
        if thread.is_interrupted.swap(false, Ordering::Relaxed) {
            // What comes next on this thread is not meant.
            attach(|_| raise(thread.ident, ptr::null_mut()));
        }
        before.cast_const()
    })
}

/// The threads that run a kernel of a job, with its place.
fn threads_of(prints: &Prints) -> Vec<(Arc<Thread>, Arc<PrintTarget>)> {
    let threads: Vec<Arc<Thread>> = locked(&THREADS).iter().filter_map(Weak::upgrade).collect();
    let places = locked(&PLACES);
    let running = threads.into_iter().filter_map(|thread| {
        let kernel = thread.kernel.load(Ordering::Relaxed);
        let place = places.iter().find(|it| ptr::eq(it.as_ptr(), kernel))?;
        let place = place.upgrade().filter(|place| place.is_of(prints))?;
        Some((thread, place))
    });
    running.collect()
}

/// The stage of a job's program whose kernel runs.
pub fn kernel(prints: &Prints) -> Option<String> {
    let threads = threads_of(prints);
    threads.first().map(|(_, place)| place.stage().to_owned())
}

/// Raises KeyboardInterrupt in the kernels of a job: where Python runs next in their threads.
pub fn interrupt(prints: &Prints) {
    attach(|py| {
        // With the interpreter: a kernel that is seen now cannot have returned to it meanwhile.
        for (thread, _) in threads_of(prints) {
            thread.is_interrupted.store(true, Ordering::Relaxed);
            let class = py.get_type::<PyKeyboardInterrupt>();
            raise(thread.ident, class.as_ptr());
        }
    });
}

/// With the interpreter: null takes back what was raised and has not arrived.
fn raise(thread: std::ffi::c_ulong, class: *mut ffi::PyObject) {
    // SAFETY: the caller has the interpreter; a thread that is not there is not found.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread as _, class) };
}
