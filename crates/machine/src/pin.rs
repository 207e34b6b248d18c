//! Which CPUs the current thread may run on.
#![allow(unsafe_code)] // The affinity calls of libc.

use std::io;

/// The CPUs in the current thread's affinity mask, ascending.
#[cfg(target_os = "linux")]
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // The kernel refuses a buffer smaller than its own mask, whose size it does not tell.
    let mut words = vec![0u64; 16];
    loop {
        let bytes = size_of_val(words.as_slice());
        // SAFETY: `words` is writable for `bytes` bytes, aligned for the mask's unsigned longs, and
        // 0 names the calling thread.
        let rc = unsafe { libc::sched_getaffinity(0, bytes, words.as_mut_ptr().cast()) };
        if rc == 0 {
            return Ok(cpus_of_mask(&words));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() >= 1 << 14 {
            return Err(error);
        }
        words.resize(words.len() * 2, 0);
    }
}

/// The CPUs in the current thread's affinity mask, ascending.
#[cfg(not(target_os = "linux"))]
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    Ok((0..std::thread::available_parallelism()?.get()).collect())
}

/// Lets the current thread run on `cpus` only.
#[cfg(target_os = "linux")]
pub fn set_allowed_cpus(cpus: &[usize]) -> io::Result<()> {
    let words = mask_of_cpus(cpus);
    // SAFETY: `words` is readable for the size given, aligned for the mask's unsigned longs, and 0
    // names the calling thread.
    let rc =
        unsafe { libc::sched_setaffinity(0, size_of_val(words.as_slice()), words.as_ptr().cast()) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets the current thread run on `cpus` only; not supported on this system.
#[cfg(not(target_os = "linux"))]
pub fn set_allowed_cpus(_cpus: &[usize]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Pins the current thread to one CPU until dropped, which restores the mask it had.
///
/// Must be dropped on the thread that made it, so it cannot be sent.
#[derive(Debug)]
pub struct Pinned {
    before: Vec<usize>,
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Pins the current thread to `cpu`, which must be in its mask.
pub fn pin_current_thread(cpu: usize) -> io::Result<Pinned> {
    let before = allowed_cpus()?;
    if !before.contains(&cpu) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("CPU {cpu} is not in this thread's affinity mask {before:?}"),
        ));
    }
    set_allowed_cpus(&[cpu])?;
    Ok(Pinned {
        before,
        _not_send: std::marker::PhantomData,
    })
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The mask was ours a moment ago; if it has been narrowed from outside since, the thread
        // stays where it is.
        let _ = set_allowed_cpus(&self.before);
    }
}

fn cpus_of_mask(words: &[u64]) -> Vec<usize> {
    let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
    words
        .iter()
        .enumerate()
        .flat_map(|(at, &word)| bits(word).map(move |b| at * 64 + b))
        .collect()
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn mask_of_cpus(cpus: &[usize]) -> Vec<u64> {
    let last = cpus.iter().copied().max().unwrap_or(0);
    let mut words = vec![0u64; last / 64 + 1];
    for &cpu in cpus {
        words[cpu / 64] |= 1 << (cpu % 64);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_round_trip_across_words() {
        let cpus = vec![0, 3, 63, 64, 130];
        assert_eq!(mask_of_cpus(&cpus), [0x8000_0000_0000_0009, 1, 4]);
        assert_eq!(cpus_of_mask(&mask_of_cpus(&cpus)), cpus);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pinning_is_undone_on_drop() {
        let before = allowed_cpus().unwrap();
        let last = *before.last().unwrap();
        let pinned = pin_current_thread(last).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [last]);
        drop(pinned);
        assert_eq!(allowed_cpus().unwrap(), before);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_cpu_outside_the_mask_is_refused() {
        let error = pin_current_thread(100_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
