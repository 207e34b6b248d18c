//! A client's links to the workers of its job: made, made again, and ended.

use super::Talk;
use crate::Error;
use crate::cluster::ClusterError;
use brambling_exchange::transports::tcp::LinkId;
use brambling_protocol::message::{Member, Message, Parts};
use std::time::{Duration, Instant};

/// How long after it was lost the link to a worker is made again, and for how long that is tried.
const REDIAL: Duration = Duration::from_millis(100);
pub(super) const REDIALED_FOR: Duration = Duration::from_secs(5);

/// The link to a worker, and what comes on it.
pub(super) struct Link {
    pub(super) member: Member,
    /// The partition that comes in parts.
    pub(super) parts: Parts,
    pub(super) is_done: bool,
    /// Whether it was sent the program: who was not holds nothing.
    pub(super) has_program: bool,
    /// The number of what its kernels print next.
    pub(super) printed: u64,
    /// Since when there is none.
    pub(super) lost: Option<Instant>,
}

impl Link {
    pub(super) fn new(member: Member, lost: Option<Instant>) -> Link {
        Link {
            member,
            parts: Parts::default(),
            is_done: false,
            has_program: false,
            printed: 0,
            lost,
        }
    }
}

impl Talk<'_> {
    pub(super) fn dial(&mut self, to: Link) -> Result<(), Error> {
        let visited = self.cluster.board.visit(to.member.at);
        let link = visited.map_err(|source| ClusterError::System { source })?;
        self.workers.insert(link, to);
        Ok(())
    }

    /// Of these workers nothing is expected any more.
    pub(super) fn part_from(&mut self, are_meant: impl Fn(&Link) -> bool) {
        self.again.retain(|(_, worker)| !are_meant(worker));
        let workers = std::mem::take(&mut self.workers).into_iter();
        let (left, stay): (Vec<_>, Vec<_>) = workers.partition(|(_, it)| are_meant(it));
        self.workers = stay.into_iter().collect();
        self.left.extend(left);
    }

    /// A worker is dialed again after a while.
    pub(super) fn lost(&mut self, link: LinkId) {
        if let Some(worker) = self.workers.remove(&link) {
            let lost = worker.lost.or(Some(Instant::now()));
            let Link {
                has_program,
                printed,
                ..
            } = worker;
            let again = Link {
                has_program,
                printed,
                ..Link::new(worker.member, lost)
            };
            self.again.push((Instant::now() + REDIAL, again));
        }
    }

    pub(super) fn dial_again(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        for (due, worker) in std::mem::take(&mut self.again) {
            match due <= now {
                true => self.dial(worker)?,
                false => self.again.push((due, worker)),
            }
        }
        Ok(())
    }

    pub(super) fn worker(&mut self, link: LinkId) -> &mut Link {
        self.workers.get_mut(&link).expect("a link to a worker")
    }

    /// Says that this client wants nothing more of the job, and ends the links to workers.
    pub(super) fn part(&mut self) {
        if let Some(job) = self.job {
            self.cluster
                .say(self.cluster.controller, Message::Done(job));
        }
        for link in self.workers.keys().chain(self.left.keys()) {
            self.cluster.board.hang_up(*link);
        }
    }
}
