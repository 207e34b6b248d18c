//! Where a kernel's panic happened: told in the job's error instead of on the terminal.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

thread_local! {
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Puts our hook before the one in place, once: panics outside of tasks go on to that one.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IN_TASK.get() {
                LOCATION.set(Some(describe(info)));
            } else {
                before(info);
            }
        }));
    });
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let place = info
        .location()
        .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        format!("{place}\n{trace}")
    } else {
        place
    }
}

/// Runs tasks; gives what they were unwound with, for [`tell`].
pub(super) fn catch<R>(tasks: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    let outer = IN_TASK.replace(true);
    // The shard that panicked is never run again, and its job ends: nobody sees what it left half done.
    let result = panic::catch_unwind(panic::AssertUnwindSafe(tasks));
    IN_TASK.set(outer);
    result
}

/// The message of the panic that was just caught, and its place.
pub(super) fn tell(payload: &(dyn Any + Send)) -> (String, Option<String>) {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("a panic without a message").to_owned();
    (message, LOCATION.take())
}
