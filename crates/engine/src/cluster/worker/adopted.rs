//! What a worker does when a controller has taken over: its jobs go on, and it says what they hold, until it hears what becomes of each.

use super::WorkerShared;
use crate::cluster::wire::framed;
use brambling_exchange::transports::tcp::LinkId;
use brambling_protocol::message::{Holding, Message};
use brambling_protocol::{JobKey, WorkerId};

impl WorkerShared {
    /// What is here of a job?
    pub(super) fn on_ask(&self, key: JobKey, term: u32) {
        let mut state = self.state();
        // Asked again on a new link: the controllers before this one know nothing better.
        state.asked.insert(key, term);
        let link = state.link.filter(|_| state.is_open);
        drop(state);
        if let Some(link) = link {
            self.say_holdings(link);
        }
    }

    /// Tells the controller what it wants to know.
    pub(super) fn say_holdings(&self, link: LinkId) {
        let state = self.state();
        let asked: Vec<(JobKey, u32)> = state
            .asked
            .iter()
            .map(|(key, term)| (*key, *term))
            .collect();
        let job = |(key, term)| Some((state.jobs.get(&key)?.clone(), key, term));
        let asked: Vec<_> = asked.into_iter().filter_map(job).collect();
        let me = state.me;
        drop(state);
        for (job, key, term) in asked {
            if job.begin_term(term) {
                self.board().begin_anew(key, WorkerId::CONTROLLER);
            }
            if let Some(me) = me {
                let holding = Message::Holding(job.holding(me));
                self.control().say(link, [framed(holding)]);
            }
        }
    }
}

impl super::Hosted {
    /// A controller has taken over in this term; whether that is news.
    fn begin_term(&self, term: u32) -> bool {
        self.with_job(|job| job.begin_term(term)).unwrap_or(false)
    }

    /// What is here of the job. Where it is being made, nothing has run.
    fn holding(&self, me: WorkerId) -> Holding {
        let told = self.with_job(|job| job.holding());
        let held = told.or_else(|| self.held_at_end()).unwrap_or_default();
        Holding {
            key: self.key(),
            me,
            members: held.members,
            shards: held.shards,
            is_busy: held.is_busy,
            has_ended: held.has_ended,
        }
    }
}
