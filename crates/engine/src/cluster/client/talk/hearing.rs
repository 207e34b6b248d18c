//! What a client hears of its job, from the controller and from workers, and what that comes to.

use super::Talk;
use super::endings::come;
use crate::Error;
use crate::cluster::client::link_events::{LinkEvent, LinkLoss};
use crate::cluster::client::{Silences, refused};
use crate::cluster::{ClusterError, Status, prints, wire};
use brambling_exchange::transports::tcp::LinkId;
use brambling_program::DatasetId;
use brambling_protocol::message::{self, Accepted, Member, Message};
use brambling_protocol::patience::{HEARTBEAT, LEFT_OUT_AFTER};
use brambling_protocol::{JobId, WorkerId};
use brambling_worker::executor::{Advance, CALLER_LOOKS, Failure, Origin, Silent, Tally};
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How often the controller is asked how far a job is: it hears of that once a heartbeat.
const ASKS: Duration = HEARTBEAT;

/// What a conversation comes to.
pub(super) enum Event {
    Queued(JobId),
    /// The workers that take jobs, with their threads and budgets.
    Budgets(Vec<(WorkerId, u32, u64)>),
    Accepted(Accepted),
    /// The job begins again as soon as it can.
    Recovering(String),
    Admitted(Member),
    Left(WorkerId),
    Over(Option<String>),
    Open(LinkId),
    Lost(LinkId, LinkLoss),
    Partition(DatasetId, u32, Vec<u8>),
    Wanted(LinkId, DatasetId, u32),
    /// Of a worker at an address.
    Ledger(Member, Vec<u8>),
    Fetched(LinkId, Tally),
    Origin(LinkId, Option<Origin>),
    AllPrinted(LinkId),
    /// Something that changes nothing.
    None,
}

impl Talk<'_> {
    /// The next thing that happens. Meanwhile the caller is asked, and told.
    pub(super) fn next(&mut self) -> Result<Event, Error> {
        self.next_by(None)
    }

    /// The same, or nothing by some time.
    pub(super) fn next_by(&mut self, deadline: Option<Instant>) -> Result<Event, Error> {
        let mut asked = Instant::now();
        loop {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Event::None);
            }
            if self.caller.check().is_err() {
                return Err(Failure::Interrupted.into());
            }
            self.dial_again()?;
            self.expect_ways()?;
            match self.inbox.recv_timeout(CALLER_LOOKS) {
                Ok(heard) => return self.understand(heard),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.cluster.gone("this side ended".into()).into());
                }
            }
            if asked.elapsed() >= ASKS {
                asked = Instant::now();
                self.cluster.say(self.cluster.controller(), Message::Ask);
            }
        }
    }

    pub(super) fn understand(&mut self, heard: LinkEvent) -> Result<Event, Error> {
        let controller = self.cluster.controller();
        match heard {
            LinkEvent::Frame(link, frame) if link == controller => {
                let message = wire::message(&frame).map_err(|why| self.cluster.broken(why))?;
                self.controller_said(message)
            }
            LinkEvent::Lost(link, loss) if link == controller => {
                Err(self.cluster.lost(loss).into())
            }
            LinkEvent::Frame(link, frame) => self.worker_said(link, &frame),
            LinkEvent::Open(link) if self.workers.contains_key(&link) => Ok(Event::Open(link)),
            LinkEvent::Lost(link, loss) if self.workers.contains_key(&link) => {
                Ok(Event::Lost(link, loss))
            }
            // Links of an earlier conversation.
            LinkEvent::Open(_) | LinkEvent::Lost(..) => Ok(Event::None),
        }
    }

    fn controller_said(&mut self, message: Message<'_>) -> Result<Event, Error> {
        Ok(match message {
            Message::Lasting => {
                self.cluster.lasts.store(true, Ordering::Release);
                Event::None
            }
            Message::Queued(job) => Event::Queued(job),
            Message::Budgets(budgets) => Event::Budgets(budgets),
            Message::Waits(waits) => {
                self.show_waits(&waits);
                Event::None
            }
            Message::Accepted(accepted) if self.job == Some(accepted.key.job) => {
                Event::Accepted(accepted)
            }
            Message::Told { job, line } if self.job == Some(job) => {
                self.caller.told(line);
                Event::None
            }
            Message::Recovering { job, why } if self.job == Some(job) => {
                Event::Recovering(why.to_owned())
            }
            Message::Admitted { key, member } if self.key == Some(key) => Event::Admitted(member),
            Message::Left { key, worker } if self.key == Some(key) => Event::Left(worker),
            Message::Over { job, failure } if self.job == Some(job) => {
                Event::Over(failure.map(str::to_owned))
            }
            Message::Refused { why } => return Err(refused(why).into()),
            Message::Silences(told) => {
                self.silences = Silences(told);
                Event::None
            }
            Message::Status(status) => {
                self.show(&self.silences.told_of(status));
                Event::None
            }
            _ => Event::None,
        })
    }

    /// Those that are waited for, if a worker is: of a job that waits for its turn, all that there are.
    fn silent(&self, status: &Status) -> Vec<Silent> {
        let member = |id: WorkerId| {
            let linked = self.workers.values().any(|it| it.member.worker == id);
            linked || self.again.iter().any(|(_, it)| it.member.worker == id)
        };
        let waits = self.workers.is_empty() && self.again.is_empty();
        let left_out =
            |it: &&message::WorkerStatus| it.silent_ms >= LEFT_OUT_AFTER.as_millis() as u64;
        if waits && !status.workers.iter().all(|it| left_out(&it)) {
            return Vec::new();
        }
        let silent = status.workers.iter().filter(left_out);
        let silent = silent.filter(|it| waits || member(it.id));
        let silent = silent.map(|it| Silent {
            worker: it.id,
            so_long: Duration::from_millis(it.silent_ms),
        });
        silent.collect()
    }

    /// What the job waits for before it begins.
    fn show_waits(&mut self, waits: &[(JobId, &str)]) {
        let ours = waits.iter().find(|(job, _)| Some(*job) == self.job);
        if let Some((job, why)) = ours {
            let why = format!("job {job} waits for {why}");
            self.caller.waits(&why, self.started.elapsed());
            self.waits = true;
        }
    }

    fn show(&mut self, status: &Status) {
        let silent = self.silent(status);
        // It was told what the job waits for.
        if std::mem::take(&mut self.waits) && silent.is_empty() {
            return;
        }
        let ours = status.jobs.iter().find(|job| Some(job.id) == self.job);
        if let Some(job) = ours {
            self.caller.advanced(Advance {
                program: &self.plan.program.spec().name,
                tasks: job.position,
                tasks_total: self.plan.task_count(),
                elapsed: self.started.elapsed(),
                silent: &silent,
            });
        }
    }

    fn worker_said(&mut self, link: LinkId, frame: &[u8]) -> Result<Event, Error> {
        let Some(worker) = self.workers.get_mut(&link) else {
            return self.leaving_said(link, frame);
        };
        self.heard = Instant::now();
        let broken = |why: String| ClusterError::Broken {
            who: format!("worker {}", worker.member.worker),
            why,
        };
        let message = wire::message(frame).map_err(|why| broken(why.to_string()))?;
        Ok(match message {
            Message::Partition {
                dataset,
                index,
                part,
            } if self.key == Some(part.key) => match worker.parts.take(&part) {
                Ok(Some(whole)) => Event::Partition(dataset, index, whole),
                Ok(None) => Event::None,
                Err(why) => return Err(broken(why.to_string()).into()),
            },
            Message::Ledger(part) if self.key == Some(part.key) => match worker.parts.take(&part) {
                Ok(Some(whole)) => Event::Ledger(worker.member, whole),
                Ok(None) => Event::None,
                Err(why) => return Err(broken(why.to_string()).into()),
            },
            Message::Want {
                key,
                dataset,
                index,
            } if self.key == Some(key) => Event::Wanted(link, dataset, index),
            Message::Fetched {
                key,
                tasks,
                threads,
                busy_ns,
                peak_bytes,
            } if self.key == Some(key) => {
                let tally = Tally {
                    tasks,
                    threads,
                    busy: Duration::from_nanos(busy_ns),
                    peak_bytes,
                    ..Tally::default()
                };
                Event::Fetched(link, tally)
            }
            Message::Origin { key, origin } if self.key == Some(key) => {
                Event::Origin(link, origin.map(come))
            }
            Message::Printed(printed) if self.key == Some(printed.key) => {
                self.show_printed(link, &printed);
                Event::None
            }
            Message::AllPrinted(key) if self.key == Some(key) => Event::AllPrinted(link),
            Message::Packages { key, packages } if self.key == Some(key) => {
                let worker = worker.member.worker;
                self.packages.compare(worker, &packages)?;
                Event::None
            }
            Message::Refused { why } => return Err(refused(why).into()),
            _ => Event::None,
        })
    }

    /// Who has left the job is heard for what its kernels had printed and loaded.
    fn leaving_said(&mut self, link: LinkId, frame: &[u8]) -> Result<Event, Error> {
        let Some(left) = self.left.get(&link) else {
            return Ok(Event::None);
        };
        match wire::message(frame) {
            Ok(Message::Printed(printed)) if self.key == Some(printed.key) => {
                self.show_printed(link, &printed);
            }
            Ok(Message::Packages { key, packages }) if self.key == Some(key) => {
                self.packages.compare(left.member.worker, &packages)?;
            }
            _ => {}
        }
        Ok(Event::None)
    }

    /// What kernels have printed on a worker. What was shown before has come again on another link.
    fn show_printed(&mut self, link: LinkId, printed: &message::PrintedLines<'_>) {
        let worker = self.workers.get_mut(&link);
        let worker = worker.or_else(|| self.left.get_mut(&link));
        let worker = worker.expect("a link to a worker");
        if printed.number >= worker.printed {
            worker.printed = printed.number.saturating_add(1);
            let lines = prints::shown(worker.member.worker, printed);
            self.caller.printed(&lines);
        }
        let (key, number) = (printed.key, printed.number);
        self.cluster.say(link, Message::Shown { key, number });
    }
}
