//! Keeps the pool's threads on different CPUs without pinning them.
//!
//! A kernel likes to wake a thread where its waker runs. Two threads that wait for each other then share a CPU,
//! each polling while the other cannot run, although a CPU next to them is idle. A thread that finds itself so
//! moves away once; where it runs later is the kernel's business again.
#![allow(unsafe_code)] // Three calls of libc about CPUs.

#[cfg(target_os = "linux")]
pub(super) use linux::{here, move_away};

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::{size_of, zeroed};

    /// The CPU that this thread runs on.
    #[inline]
    pub(in super::super) fn here() -> u32 {
        // SAFETY: takes and touches nothing.
        unsafe { libc::sched_getcpu() as u32 }
    }

    /// Moves this thread off the CPUs that `taken` names, if its mask has any other, and restores the mask.
    pub(in super::super) fn move_away(taken: impl Iterator<Item = u32>) {
        // SAFETY: the masks are plain bits, initialised by zeroes and by the kernel; sizes are their own.
        unsafe {
            let mut mask: libc::cpu_set_t = zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut mask) != 0 {
                return;
            }
            let mut free = mask;
            for cpu in taken.filter(|cpu| (*cpu as usize) < libc::CPU_SETSIZE as usize) {
                libc::CPU_CLR(cpu as usize, &mut free);
            }
            if libc::CPU_COUNT(&free) > 0 {
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const free);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn here() -> u32 {
    0
}

#[cfg(not(target_os = "linux"))]
pub(super) fn move_away(_: impl Iterator<Item = u32>) {}
