//! What clients ask of jobs that are not theirs, and what they say of themselves.

use super::client::{Cluster, looking, refused};
use super::{ClusterError, SUBMISSION_VARIABLE};
use crate::Error;
use brambling_protocol::JobId;
use brambling_protocol::message::{Client, JobDetails, JobStatus, Message};
use brambling_worker::executor::Caller;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// This machine's name.
pub(super) fn host() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

/// This process, as it introduces itself to controllers.
pub fn ourselves() -> Client {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Client {
        user: set("USER")
            .or_else(|| set("LOGNAME"))
            .unwrap_or_else(|| "somebody".into()),
        host: host(),
        pid: std::process::id(),
        log: set(SUBMISSION_VARIABLE),
    }
}

/// What jobs wait for, as the controller says before it says the rest of how they fare.
#[derive(Default)]
pub(super) struct WaitReasons(BTreeMap<JobId, String>);

impl From<Vec<(JobId, &str)>> for WaitReasons {
    fn from(told: Vec<(JobId, &str)>) -> WaitReasons {
        let told = told.into_iter();
        WaitReasons(told.map(|(job, why)| (job, why.to_owned())).collect())
    }
}

impl WaitReasons {
    pub(super) fn tell<'j>(&self, jobs: impl Iterator<Item = &'j mut JobStatus>) {
        for job in jobs {
            job.waits = self.0.get(&job.id).cloned();
        }
    }
}

impl Cluster {
    /// The jobs that run, wait, or have ended lately: whose they are, who runs them, and how they fare.
    ///
    /// # Errors
    /// When the controller is gone or does not answer.
    pub fn jobs(&self) -> Result<Vec<JobDetails>, ClusterError> {
        let mut waits = WaitReasons::default();
        self.ask(
            Message::AskJobs,
            self.answers_soon(),
            |answer| match answer {
                Message::Waits(told) => {
                    waits = WaitReasons::from(told);
                    None
                }
                Message::Jobs(mut jobs) => {
                    waits.tell(jobs.iter_mut().map(|job| &mut job.status));
                    Some(Ok(jobs))
                }
                // Of an earlier conversation that was broken off.
                _ => None,
            },
        )
    }

    /// Ends a job, whoever's it is: its client is told who did. Gives when it is over for its client; kernels that run end by themselves,
    /// and what they leave is dropped. `caller` is asked for interruptions, which leave the order as it is.
    ///
    /// # Errors
    /// When there is no such job, when it was over before, or when it is not over after so long; or what became of the cluster.
    pub fn cancel(
        &self,
        job: JobId,
        patience: Duration,
        caller: &mut dyn Caller,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        let mut interrupted = looking(caller);
        let look = || {
            if Instant::now() >= deadline {
                let after = patience;
                return Err(ClusterError::NotOver { job, after }.into());
            }
            interrupted()
        };
        self.ask(Message::Cancel(job), look, |answer| match answer {
            Message::Over { job: it, failure } if it == job => Some(match failure {
                Some(_) => Ok(()),
                None => {
                    Err(refused(&format!("job {job} has succeeded before it was cancelled")).into())
                }
            }),
            Message::Refused { why } => Some(Err(refused(why).into())),
            _ => None,
        })
    }
}
