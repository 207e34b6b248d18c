//! Mutants: a test turns one condition of production code off and shows that it notices.
//!
//! Production code asks [`is_on`] at the condition. Without the feature `mutants` the answer is a
//! constant `false` and the question costs nothing. With it, a test switches one mutant on, for its
//! own thread ([`on_this_thread`]) or for the process ([`on_every_thread`]).

/// Whether a test has switched the mutant `name` on.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use switch::{assert_caught, is_on, on_every_thread, on_this_thread};

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

    thread_local! {
        static HERE: Cell<Option<&'static str>> = const { Cell::new(None) };
    }
    static ANYWHERE: AtomicBool = AtomicBool::new(false);
    static EVERYWHERE: RwLock<Option<&'static str>> = RwLock::new(None);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Whether a test has switched the mutant `name` on.
    pub fn is_on(name: &str) -> bool {
        if HERE.get() == Some(name) {
            return true;
        }
        ANYWHERE.load(Relaxed)
            && *EVERYWHERE.read().unwrap_or_else(PoisonError::into_inner) == Some(name)
    }

    /// Switches a mutant on for this thread until the guard is dropped.
    pub fn on_this_thread(name: &'static str) -> OnThisThread {
        OnThisThread(HERE.replace(Some(name)))
    }

    /// Restores what was on before when dropped.
    #[must_use = "the mutant is on only while this lives"]
    pub struct OnThisThread(Option<&'static str>);

    impl Drop for OnThisThread {
        fn drop(&mut self) {
            HERE.set(self.0);
        }
    }

    /// Switches a mutant on for the whole process until the guard is dropped. Waits while another
    /// test holds such a guard; other tests of the process see the mutant, so they belong into
    /// another binary.
    pub fn on_every_thread(name: &'static str) -> OnEveryThread {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        *EVERYWHERE.write().unwrap_or_else(PoisonError::into_inner) = Some(name);
        ANYWHERE.store(true, Relaxed);
        OnEveryThread { _alone: alone }
    }

    /// Switches the mutant off when dropped.
    #[must_use = "the mutant is on only while this lives"]
    pub struct OnEveryThread {
        _alone: MutexGuard<'static, ()>,
    }

    impl Drop for OnEveryThread {
        fn drop(&mut self) {
            ANYWHERE.store(false, Relaxed);
            *EVERYWHERE.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Shows that `property` holds, and that it panics with the mutant `name` on in this thread.
    ///
    /// # Panics
    /// If it does not.
    pub fn assert_caught(name: &'static str, property: impl Fn()) {
        property();
        let outcome = {
            let _on = on_this_thread(name);
            catch_unwind(AssertUnwindSafe(&property))
        };
        assert!(
            outcome.is_err(),
            "the tests do not notice the mutant {name}"
        );
    }
}
