//! What processes, and threads of this one, have used.
#![allow(unsafe_code)] // The system's clocks of processes and threads.

use std::collections::BTreeSet;
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
    read(clock)
}

/// The threads of this process, as the system names them.
///
/// # Errors
/// When the system does not tell.
pub fn threads() -> io::Result<BTreeSet<u32>> {
    let number = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        number.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    };
    std::fs::read_dir("/proc/self/task")?.map(number).collect()
}

/// How many file descriptors this process has open.
///
/// # Errors
/// When the system does not tell.
pub fn open_descriptors() -> io::Result<usize> {
    let all = std::fs::read_dir("/proc/self/fd")?.count();
    // One is the folder, which is open while it is read.
    Ok(all.saturating_sub(1))
}

/// The CPU time that a thread of this process has used since it began.
///
/// # Errors
/// When there is no such thread.
pub fn thread_cpu_time(thread: u32) -> io::Result<Duration> {
    let thread = libc::clockid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The system's own encoding of a thread's scheduler clock: as `pthread_getcpuclockid` has it.
    const OF_A_THREAD: libc::clockid_t = 0b110;
    read((!thread << 3) | OF_A_THREAD)
}

fn read(clock: libc::clockid_t) -> io::Result<Duration> {
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

    #[test]
    fn what_is_open_counts() {
        let before = open_descriptors().unwrap();
        let held: Vec<_> = (0..100)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        let now = open_descriptors().unwrap();
        // Other tests of this binary open files as well, and close them.
        assert!(now.abs_diff(before + held.len()) < 50, "{before} {now}");
    }

    #[test]
    fn a_thread_is_told_from_the_others() {
        let before = threads().unwrap();
        let (ready, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(20) {
                    std::hint::spin_loop();
                }
                ready.wait();
                go_on.wait();
            });
            ready.wait();
            let busy = threads().unwrap().difference(&before).any(|&thread| {
                // Others of this test binary may have come, and gone.
                thread_cpu_time(thread).is_ok_and(|time| time >= Duration::from_millis(1))
            });
            go_on.wait();
            assert!(busy);
        });
        assert!(thread_cpu_time(u32::MAX >> 4).is_err());
    }
}
