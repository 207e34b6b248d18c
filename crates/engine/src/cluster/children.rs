//! Workers as children of a process: they end with it. Their standard input tells them the token first, and then that it is over: what stands
//! in a process's environment, or among its arguments, others can see.

use super::{ClusterError, ProcessEnd, Rendezvous, TLS_VARIABLE, TOKEN_VARIABLE};
use crate::SpillTo;
use brambling_machine::pin;
use brambling_memory::cgroup::oom_kills;
use brambling_protocol::message::DeathKind;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long children may take to end by themselves.
const ENDING: Duration = Duration::from_secs(5);
/// The signal by which the system ends processes when memory runs out.
const KILL: i32 = 9;
/// How often is looked meanwhile whether they have.
const LOOKS: Duration = Duration::from_millis(10);

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
pub struct Children {
    running: Vec<(u32, Child)>,
    how: How,
    /// How many processes of its control group the system had killed for want of memory when it was looked last.
    oom_kills: Option<u64>,
}

/// How each is started.
struct How {
    command: Vec<OsString>,
    at: Rendezvous,
    share: Share,
    prints: Box<dyn Fn() -> Stdio>,
    /// CPUs that this process may use.
    allowed: Vec<usize>,
    workers: u32,
}

/// A worker that has ended.
pub struct EndedChild {
    /// Its process.
    pub pid: u32,
    /// How.
    pub status: ExitStatus,
    /// Which of them it was: another one may take its place.
    pub place: u32,
    /// Whether the system has killed a process of the control group for want of memory since one ended before; none: it does not say.
    pub oom: Option<bool>,
}

impl EndedChild {
    /// As a controller is told.
    pub fn end(&self) -> ProcessEnd {
        let code = self.status.code().map(DeathKind::Exit);
        ProcessEnd {
            pid: self.pid,
            kind: code.or(self.status.signal().map(DeathKind::Signal)),
            oom: self.oom,
        }
    }
}

impl std::fmt::Display for EndedChild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let EndedChild { pid, status, .. } = self;
        write!(f, "the worker of process {pid} has ended: {status}")
    }
}

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
        prints: impl Fn() -> Stdio + 'static,
    ) -> Result<Children, ClusterError> {
        let mut children = Children {
            running: Vec::new(),
            how: How {
                command: command.to_vec(),
                at: at.clone(),
                share: share.clone(),
                prints: Box::new(prints),
                // Where masks cannot be read or set, the system places threads as it likes.
                allowed: pin::allowed_cpus().unwrap_or_default(),
                workers,
            },
            oom_kills: oom_kills(),
        };
        (0..workers).try_for_each(|place| children.start_again(place))?;
        Ok(children)
    }

    /// Starts a worker in the place of one that has ended.
    ///
    /// # Errors
    /// When the system starts no process.
    pub fn start_again(&mut self, place: u32) -> Result<(), ClusterError> {
        let child = self.how.spawn(place);
        let child = child.map_err(|source| ClusterError::System { source })?;
        self.running.push((place, child));
        Ok(())
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Their processes.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|(_, child)| child.id())
    }

    /// Those that have ended since the last call.
    pub fn ended(&mut self) -> Vec<EndedChild> {
        let mut ended = Vec::new();
        self.running
            .retain_mut(|(place, child)| match child.try_wait() {
                Ok(Some(status)) => {
                    ended.push(EndedChild {
                        pid: child.id(),
                        status,
                        place: *place,
                        oom: None,
                    });
                    false
                }
                _ => true,
            });
        self.tell_oom(&mut ended);
        ended
    }

    /// Who was killed by the system for want of memory ends with signal 9, and the system counts it.
    fn tell_oom(&mut self, ended: &mut [EndedChild]) {
        if ended.is_empty() {
            return;
        }
        let now = oom_kills();
        let has_killed = now.zip(self.oom_kills).map(|(now, before)| now > before);
        self.oom_kills = now;
        for it in ended {
            it.oom = has_killed.map(|has_killed| has_killed && it.status.signal() == Some(KILL));
        }
    }
}

impl How {
    fn spawn(&self, place: u32) -> std::io::Result<Child> {
        let How { at, share, .. } = self;
        let (program, first) = self.command.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command.args(first).arg("worker").arg("--attached");
        command.args(["--controller", &at.address.to_string()]);
        command.args(["--threads", &share.threads.to_string()]);
        command.args(["--memory", &share.memory_bytes.to_string()]);
        if let Some(to) = &share.spill {
            command.args(["--spill", &to.to_string()]);
        }
        command.env_remove(TOKEN_VARIABLE);
        match &at.tls {
            Some(tls) => command.env(TLS_VARIABLE, tls.folder()),
            None => command.env_remove(TLS_VARIABLE),
        };
        command.stdin(Stdio::piped()).stdout((self.prints)());
        let places = places(&self.allowed, self.workers, share.threads);
        let mut child = on(places.get(place as usize), &self.allowed, || {
            command.spawn()
        })?;
        let input = child.stdin.as_mut().expect("it is piped");
        // It fits into the pipe. A worker that has ended already is found among those that have.
        let _ = writeln!(input, "{}", at.token.to_hex());
        Ok(child)
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
        let running = self.running.iter_mut();
        running.for_each(|(_, child)| drop(child.stdin.take()));
        let deadline = Instant::now() + ENDING;
        while !self.running.is_empty() && Instant::now() < deadline {
            std::thread::sleep(LOOKS);
            let _ = self.ended();
        }
        for (_, child) in &mut self.running {
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
