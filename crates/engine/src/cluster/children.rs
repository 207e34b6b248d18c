//! Workers as children of a process: they end with it.

use super::{ClusterError, Rendezvous, TLS_VARIABLE, TOKEN_VARIABLE};
use crate::SpillTo;
use brambling_machine::pin;
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long children may take to end by themselves.
const ENDING: Duration = Duration::from_secs(5);

/// What each worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Threads.
    pub threads: u32,
    /// Its memory budget.
    pub memory_bytes: u64,
    /// Where it spills; none: as its own settings say.
    pub spill: Option<SpillTo>,
}

/// Worker processes on this machine. Dropping it ends them: each sees that its standard input ends, which it also does when this
/// process is killed.
pub struct Children(Vec<Child>);

impl Children {
    /// Starts workers, each on CPUs of its own if their threads are as many as the CPUs that this process may use: then none waits for
    /// a CPU on which another polls. `command` begins a `brambling` command: what it is followed by is said here. What they print
    /// goes where `prints` says.
    ///
    /// # Errors
    /// When the system starts no process; those that were started end again.
    pub fn start(
        command: &[OsString],
        at: &Rendezvous,
        workers: u32,
        share: &Share,
        prints: impl Fn() -> Stdio,
    ) -> Result<Children, ClusterError> {
        let (program, first) = command.split_first().expect("a command has a program");
        let mut children = Children(Vec::new());
        // Where masks cannot be read or set, the system places threads as it likes.
        let allowed = pin::allowed_cpus().unwrap_or_default();
        let places = places(&allowed, workers, share.threads);
        for worker in 0..workers as usize {
            let mut command = Command::new(program);
            command.args(first).arg("worker").arg("--attached");
            command.args(["--controller", &at.address.to_string()]);
            command.args(["--threads", &share.threads.to_string()]);
            command.args(["--memory", &share.memory_bytes.to_string()]);
            if let Some(to) = &share.spill {
                command.args(["--spill", &to.to_string()]);
            }
            command.env(TOKEN_VARIABLE, at.token.to_hex());
            match &at.tls {
                Some(tls) => command.env(TLS_VARIABLE, tls.folder()),
                None => command.env_remove(TLS_VARIABLE),
            };
            command.stdin(Stdio::piped()).stdout(prints());
            let child = on(places.get(worker), &allowed, || command.spawn());
            let child = child.map_err(|source| ClusterError::System { source })?;
            children.0.push(child);
        }
        Ok(children)
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.0.len()
    }

    /// Their processes.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(Child::id)
    }

    /// Those that have ended since the last call, in words.
    pub fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        self.0.retain_mut(|child| match child.try_wait() {
            Ok(Some(status)) => {
                ended.push(format!(
                    "the worker of process {} has ended: {status}",
                    child.id()
                ));
                false
            }
            _ => true,
        });
        ended
    }
}

/// The CPUs of each worker; none where they do not come out even.
fn places(allowed: &[usize], workers: u32, threads: u32) -> Vec<&[usize]> {
    match u64::from(workers) * u64::from(threads) == allowed.len() as u64 {
        true => allowed.chunks(threads.max(1) as usize).collect(),
        false => Vec::new(),
    }
}

/// Does something that inherits where this thread may run.
fn on<R>(place: Option<&&[usize]>, allowed: &[usize], act: impl FnOnce() -> R) -> R {
    let is_set = place.is_some_and(|place| pin::set_allowed_cpus(place).is_ok());
    let done = act();
    if is_set {
        // They were allowed a moment ago.
        let _ = pin::set_allowed_cpus(allowed);
    }
    done
}

impl Drop for Children {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.stdin.take()));
        let deadline = Instant::now() + ENDING;
        while !self.0.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            let _ = self.ended();
        }
        for child in &mut self.0 {
            // It does not end by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_fill_the_machine_have_cpus_of_their_own() {
        assert_eq!(places(&[0, 1, 4, 5], 2, 2), [&[0, 1][..], &[4, 5]]);
        assert_eq!(places(&[0, 1], 2, 1), [&[0][..], &[1]]);
        assert!(places(&[0, 1], 4, 1).is_empty(), "more threads than CPUs");
        assert!(
            places(&[0, 1, 2], 2, 1).is_empty(),
            "others may want the rest"
        );
        assert!(places(&[], 2, 1).is_empty());
    }

    #[test]
    fn a_place_is_left_again() {
        let allowed = pin::allowed_cpus().unwrap();
        let place = &allowed[..1];
        let seen = on(Some(&place), &allowed, || pin::allowed_cpus().unwrap());
        assert_eq!(seen, place);
        assert_eq!(pin::allowed_cpus().unwrap(), allowed);
    }
}
