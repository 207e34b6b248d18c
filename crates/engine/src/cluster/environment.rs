//! Takes secrets out of a process's environment: whoever runs in it, is started by it, or may look at it would find them there.
#![allow(unsafe_code)] // The environment is one for all threads, and the system shows where it began.

use std::ffi::CString;

/// Removes a variable from the environment, and overwrites what it held: the system shows to others of the account (`/proc/PID/environ`)
/// where the environment lay when the process began, whatever was removed since.
///
/// For commands, at their beginning: no other thread may read or change the environment meanwhile. An interpreter keeps copies of its own.
pub fn forget_variable(variable: &str) {
    let Ok(name) = CString::new(variable) else {
        return;
    };
    // SAFETY: commands call this before they start a thread, and what an interpreter has started by then reads no variable, so that
    // nobody else reads or changes the environment. What `getenv` gives is a string within it, whose bytes are this process's to write.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if !value.is_null() {
            value.write_bytes(0, libc::strlen(value));
        }
        std::env::remove_var(variable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SECRET: &str = "BRAMBLING_TEST_SECRET";
    const HELD: &str = "what nobody is to find";

    /// In a process of its own, since others look at this one's environment.
    #[test]
    fn a_variable_that_is_forgotten_is_found_nowhere() {
        if std::env::var_os(SECRET).is_none() {
            let tests = std::env::current_exe().unwrap();
            let name = "cluster::environment::tests::a_variable_that_is_forgotten_is_found_nowhere";
            let mut again = Command::new(tests);
            again.args(["--exact", name, "--test-threads", "1"]);
            let told = again.env(SECRET, HELD).output().unwrap();
            assert!(told.status.success(), "{told:?}");
            return;
        }
        let shown = || std::fs::read("/proc/self/environ").unwrap();
        let holds = |bytes: &[u8]| bytes.windows(HELD.len()).any(|it| it == HELD.as_bytes());
        assert!(holds(&shown()));
        forget_variable(SECRET);
        assert_eq!(std::env::var_os(SECRET), None);
        assert!(!holds(&shown()));
        let child = Command::new("cat").arg("/proc/self/environ").output();
        assert!(!holds(&child.unwrap().stdout));
        // Once more, and of what never was.
        forget_variable(SECRET);
        forget_variable("BRAMBLING_TEST_NOTHING");
    }
}
