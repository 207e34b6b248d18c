//! A pair of fences of unequal cost: free for whoever passes often, dear for whoever passes seldom.
//!
//! Two threads each write one word and then read the other's. If one of them passes [`light`] and the other
//! [`heavy`] in between, at least one sees the other's write. `heavy` asks the kernel to make every running
//! thread of the process pass a full barrier (membarrier(2)); without that system call both are full fences.

#[cfg(not(brambling_loom))]
pub use real::{heavy, light, prepare};

/// Under loom both are full fences: what it enumerates is the protocol above them.
#[cfg(brambling_loom)]
pub fn light() {
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// As [`light`].
#[cfg(brambling_loom)]
pub fn heavy() {
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

#[cfg(not(brambling_loom))]
mod real {
    #![allow(unsafe_code)] // One system call without pointers.

    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    /// Set once the process is registered. Until then `light` is a full fence.
    static EXPEDITED: AtomicBool = AtomicBool::new(false);

    #[cfg(target_os = "linux")]
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: takes three numbers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    #[cfg(target_os = "linux")]
    fn register() -> bool {
        // Registered and tried: if the barrier does not work, both sides have to be full fences.
        let registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        EXPEDITED.store(registered, Ordering::SeqCst);
        registered
    }

    #[cfg(not(target_os = "linux"))]
    fn register() -> bool {
        false
    }

    fn is_expedited() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(register)
    }

    /// Registers the process, so that the cheap side is cheap from the first pass on.
    pub fn prepare() {
        is_expedited();
    }

    /// The cheap side: an order for the compiler, once the dear side can do the rest.
    #[inline(always)]
    pub fn light() {
        // Relaxed: the flag is set once, and a thread that does not see it yet passes the full
        // fence, which is never wrong.
        if EXPEDITED.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The dear side: about a microsecond.
    pub fn heavy() {
        fence(Ordering::SeqCst);
        // Where the system has no such call this fence alone has to do, and `light` is a full one.
        if is_expedited() {
            #[cfg(target_os = "linux")]
            membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        }
        fence(Ordering::SeqCst);
    }
}
