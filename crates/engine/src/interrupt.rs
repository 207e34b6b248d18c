//! Ctrl-C while a Rust program runs a job.

use brambling_worker::executor::{Caller, Interrupted};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What the handler touches.
struct State {
    pressed: Arc<AtomicBool>,
    /// Whether the signal should do what it does by default: no job of ours runs.
    idle: Arc<AtomicBool>,
    running: AtomicUsize,
}

fn state() -> Option<&'static State> {
    static STATE: OnceLock<Option<State>> = OnceLock::new();
    STATE
        .get_or_init(|| {
            let state = State {
                pressed: Arc::new(AtomicBool::new(false)),
                idle: Arc::new(AtomicBool::new(true)),
                running: AtomicUsize::new(0),
            };
            let signal = signal_hook::consts::SIGINT;
            signal_hook::flag::register_conditional_default(signal, state.idle.clone()).ok()?;
            signal_hook::flag::register(signal, state.pressed.clone()).ok()?;
            Some(state)
        })
        .as_ref()
}

/// Ends a job on Ctrl-C. While none runs, the signal does what it did before.
pub(crate) struct CtrlC(Option<&'static State>);

impl CtrlC {
    pub(crate) fn watch() -> CtrlC {
        let state = state();
        if let Some(state) = state
            && state.running.fetch_add(1, Ordering::SeqCst) == 0
        {
            state.pressed.store(false, Ordering::SeqCst);
            state.idle.store(false, Ordering::SeqCst);
        }
        CtrlC(state)
    }
}

impl Drop for CtrlC {
    fn drop(&mut self) {
        if let Some(state) = self.0
            && state.running.fetch_sub(1, Ordering::SeqCst) == 1
        {
            state.idle.store(true, Ordering::SeqCst);
        }
    }
}

impl Caller for CtrlC {
    fn told(&mut self, line: &str) {
        tracing::warn!("{line}");
    }

    fn check(&mut self) -> Result<(), Interrupted> {
        match self.0 {
            Some(state) if state.pressed.load(Ordering::SeqCst) => Err(Interrupted),
            _ => Ok(()),
        }
    }
}
