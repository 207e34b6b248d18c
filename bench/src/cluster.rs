//! A cluster for the time of a bench: a controller in this process, workers as its children.

use crate::BenchError;
use brambling::cluster::{
    Children, Cluster, ClusterError, ControllerOptions, ControllerProcess, JOBS_AT_ONCE,
    Rendezvous, SILENCE, Share, Traffic,
};
use brambling::{Error, Settings};
use brambling_machine::probes::{self, thread_cpu_time};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long workers may take to register.
const STARTING: Duration = Duration::from_secs(60);

/// Ends with its workers when it is dropped.
pub(crate) struct Running {
    pub(crate) cluster: Arc<Cluster>,
    children: Children,
    controller: ControllerProcess,
    /// The threads of the controller.
    threads: BTreeSet<u32>,
}

/// What a controller has done since it began.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Heard and said.
    pub(crate) messages: u64,
    /// Shards that have moved.
    pub(crate) moves: u64,
    pub(crate) cpu: Duration,
}

impl Running {
    pub(crate) fn start(
        command: &[OsString],
        workers: u32,
        threads: u32,
        balance_each: Option<Duration>,
    ) -> Result<Running, BenchError> {
        let token = Rendezvous::new_token().map_err(Error::from)?;
        let bind = "127.0.0.1:0".parse().expect("an address");
        let options = ControllerOptions {
            bind,
            token: token.clone(),
            tls: None,
            balance_each,
            jobs_at_once: JOBS_AT_ONCE,
            snapshots: None,
            state: None,
            silence: SILENCE,
        };
        let others = probes::threads().map_err(BenchError::Machine)?;
        let controller = ControllerProcess::start(options).map_err(Error::from)?;
        let all = probes::threads().map_err(BenchError::Machine)?;
        let address = controller.address();
        let at = Rendezvous {
            address,
            token,
            tls: None,
        };
        let memory = Settings::default().resolve().map_err(Error::from)?;
        let share = Share {
            threads,
            memory_bytes: memory.memory_bytes / u64::from(workers),
            spill: memory.spill.map(|to| to.share(workers)),
        };
        let mut children =
            Children::start(command, &at, workers, &share, || std::io::stderr().into())
                .map_err(Error::from)?;
        let deadline = Instant::now() + STARTING;
        while controller.workers() < workers as usize {
            let ended = children.ended();
            if !ended.is_empty() || Instant::now() > deadline {
                let why = match ended.first() {
                    Some(ended) => format!("{ended}; what it said stands above"),
                    None => "workers do not register".to_owned(),
                };
                return Err(Error::from(ClusterError::Refused { why }).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let cluster = Arc::new(Cluster::connect(&at).map_err(Error::from)?);
        Ok(Running {
            cluster,
            children,
            controller,
            threads: all.difference(&others).copied().collect(),
        })
    }

    /// What the controller has done.
    pub(crate) fn controller_load(&self) -> std::io::Result<Load> {
        let Traffic { heard, said } = self.controller.traffic();
        let times = self.threads.iter().map(|&thread| thread_cpu_time(thread));
        Ok(Load {
            messages: heard + said,
            moves: self.controller.moves_arrived(),
            cpu: times.sum::<std::io::Result<Duration>>()?,
        })
    }

    /// The workers' processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.pids().collect()
    }
}
