//! A client's links to the workers of its job: made, made again, and ended.

use super::Talk;
use crate::Error;
use crate::cluster::client::cut_off;
use crate::cluster::client::link_events::{LinkLoss, LossKind};
use crate::cluster::{ClusterError, REDIAL};
use brambling_exchange::transports::tcp::{GREETING_TIME, LinkId, Lost};
use brambling_protocol::message::{Member, Message, Parts};
use brambling_protocol::patience::{ACKNOWLEDGED_WITHIN, CUT_OFF_AFTER};
use std::time::{Duration, Instant};

/// For how long the link to a worker is made again, where nothing says that its machine is cut off.
pub(super) const REDIALED_FOR: Duration = Duration::from_secs(5);

/// The link to a worker, and what comes on it.
pub(super) struct WorkerLink {
    pub(super) member: Member,
    /// The partition that comes in parts.
    pub(super) parts: Parts,
    pub(super) is_done: bool,
    /// Whether it is open, or was.
    pub(super) is_open: bool,
    /// Whether it was sent the program: who was not holds nothing.
    pub(super) has_program: bool,
    /// The number of what its kernels print next.
    pub(super) printed: u64,
    /// Since when there is none.
    pub(super) lost: Option<Instant>,
    /// Since when its machine does not answer, and what happens.
    pub(super) cut: Option<(Instant, String)>,
}

impl WorkerLink {
    pub(super) fn new(member: Member, lost: Option<Instant>) -> WorkerLink {
        WorkerLink {
            member,
            parts: Parts::default(),
            is_done: false,
            is_open: false,
            has_program: false,
            printed: 0,
            lost,
            cut: None,
        }
    }
}

impl WorkerLink {
    pub(super) fn opened(&mut self) {
        (self.is_open, self.cut) = (true, None);
    }
}

impl Talk<'_> {
    pub(super) fn dial(&mut self, to: WorkerLink) -> Result<(), Error> {
        match self.cluster.board.visit(to.member.at) {
            Ok(link) => {
                self.workers.insert(link, to);
            }
            // The network may come back.
            Err(error) if Lost::is_no_way(&error) => {
                let why = error.to_string();
                self.dial_later(to, Some((Instant::now(), why)));
            }
            Err(source) => return Err(ClusterError::System { source }.into()),
        }
        Ok(())
    }

    /// Of these workers nothing is expected any more.
    pub(super) fn part_from(&mut self, are_meant: impl Fn(&WorkerLink) -> bool) {
        self.again.retain(|(_, worker)| !are_meant(worker));
        let workers = std::mem::take(&mut self.workers).into_iter();
        let (left, stay): (Vec<_>, Vec<_>) = workers.partition(|(_, it)| are_meant(it));
        self.workers = stay.into_iter().collect();
        self.left.extend(left);
    }

    /// A worker is dialed again after a while.
    pub(super) fn lost(&mut self, link: LinkId, loss: &LinkLoss) {
        let Some(worker) = self.workers.remove(&link) else {
            return;
        };
        let now = Instant::now();
        // One that was open has ended so long after that.
        let before = match worker.is_open {
            true => ACKNOWLEDGED_WITHIN,
            false => GREETING_TIME,
        };
        let since = now.checked_sub(before).unwrap_or(now);
        let cut = (loss.how == LossKind::CutOff).then(|| (since, loss.why.clone()));
        self.dial_later(worker, cut);
    }

    fn dial_later(&mut self, worker: WorkerLink, cut: Option<(Instant, String)>) {
        let now = Instant::now();
        let again = WorkerLink {
            has_program: worker.has_program,
            printed: worker.printed,
            cut: cut.map(|cut| worker.cut.unwrap_or(cut)),
            ..WorkerLink::new(worker.member, worker.lost.or(Some(now)))
        };
        self.again.push((now + REDIAL, again));
    }

    /// A worker to which there has been no way for too long is not waited for. One of which the controller does not hear either is the controller's: it
    /// knows what is lost with it.
    pub(super) fn expect_ways(&self) -> Result<(), ClusterError> {
        let links = self.workers.values();
        let links = links.chain(self.again.iter().map(|(_, it)| it));
        let mut cut = links.filter_map(|it| Some((it.member, it.cut.as_ref()?)));
        let is_ours = |member: &Member| !self.is_silent(member.worker);
        match cut.find(|(it, (since, _))| since.elapsed() >= CUT_OFF_AFTER && is_ours(it)) {
            None => Ok(()),
            Some((Member { worker, at }, (since, why))) => {
                let why = format!("for {} s: {why}", since.elapsed().as_secs());
                Err(cut_off(format!("worker {worker} at {at}"), why))
            }
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

    pub(super) fn worker(&mut self, link: LinkId) -> &mut WorkerLink {
        self.workers.get_mut(&link).expect("a link to a worker")
    }

    /// Of those that ran the job nothing is expected any more, nor heard: it begins again.
    pub(super) fn part_from_all(&mut self) {
        for link in self.workers.keys().chain(self.left.keys()) {
            self.cluster.board.hang_up(*link);
        }
        self.workers.clear();
        self.left.clear();
        self.again.clear();
        self.gone.clear();
        self.key = None;
    }

    /// Says that this client wants nothing more of the job, and ends the links to workers.
    pub(super) fn part(&mut self) {
        if let Some(job) = self.job {
            self.cluster
                .say(self.cluster.controller(), Message::Done(job));
        }
        for link in self.workers.keys().chain(self.left.keys()) {
            self.cluster.board.hang_up(*link);
        }
    }
}
