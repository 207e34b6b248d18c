//! The end of a process some of whose threads cannot be ended.
#![allow(unsafe_code)] // A call of libc.

/// Ends the process as it is: other threads stop wherever they are, and nothing that was registered for a process's end runs, which would run beside
/// them.
pub fn at_once(code: u8) -> ! {
    // SAFETY: it takes a number, and does not return.
    unsafe { libc::_exit(code.into()) }
}
