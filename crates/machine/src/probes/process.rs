//! What other processes have used.
#![allow(unsafe_code)] // The system's clocks of processes.

use std::io;
use std::time::Duration;

/// The CPU time that a process of this machine has used since it began, over all its threads, those that ended included.
///
/// # Errors
/// When there is no such process.
pub fn process_cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut clock = 0;
    // SAFETY: writes a clock's number into a variable of ours.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes a time into a variable of ours.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn work_takes_time() {
        let before = process_cpu_time(std::process::id()).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(process_cpu_time(std::process::id()).unwrap() > before);
        assert!(process_cpu_time(u32::MAX).is_err());
    }
}
