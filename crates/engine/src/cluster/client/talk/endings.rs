//! How a job ends that has failed: where that began, as far as workers know it.

use super::Talk;
use super::hearing::Event;
use crate::Error;
use brambling_exchange::transports::tcp::LinkId;
use brambling_protocol::message::{self, Message};
use brambling_protocol::patience::LEFT_OUT_AFTER;
use brambling_protocol::{JobKey, WorkerId};
use brambling_worker::executor::{Failure, Origin};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long workers may take to say where a failure began, and what was printed before it.
const ENDING_TIME: Duration = Duration::from_secs(2);

impl Talk<'_> {
    /// The job has failed on a worker, which tells more of it.
    pub(super) fn failed(&mut self, failure: Option<String>) -> Error {
        let origin = self
            .key
            .and_then(|key| self.ending(key, failure.as_deref()));
        elsewhere(failure, origin)
    }

    /// Whether a worker is not likely to answer.
    pub(super) fn is_silent(&self, worker: WorkerId) -> bool {
        let silences = self.silences.0.iter();
        let told = silences.filter(|(it, _)| *it == worker);
        told.into_iter()
            .any(|(_, silent_ms)| Duration::from_millis(*silent_ms) >= LEFT_OUT_AFTER)
    }

    /// Where a failure began, if a worker knows that. What was printed before it is shown meanwhile. Whoever does not answer soon is not
    /// waited for.
    fn ending(&mut self, key: JobKey, failure: Option<&str>) -> Option<Origin> {
        let deadline = Instant::now() + ENDING_TIME;
        let asked = self.workers.iter();
        let asked = asked.filter(|(_, it)| it.has_program && !self.is_silent(it.member.worker));
        let mut printing: BTreeSet<LinkId> = asked.map(|(link, _)| *link).collect();
        let mut asked = printing.clone();
        for link in &printing {
            self.cluster.say(*link, Message::AskPrinted(key));
        }
        match failure {
            None => asked.clear(),
            Some(failure) => asked
                .iter()
                .for_each(|link| self.cluster.say(*link, Message::AskOrigin { key, failure })),
        }
        let mut origin = None;
        while !(asked.is_empty() && printing.is_empty()) && Instant::now() < deadline {
            match self.next_by(Some(deadline)) {
                Err(_) => break,
                Ok(Event::Origin(link, None)) => drop(asked.remove(&link)),
                Ok(Event::Origin(_, found)) => {
                    origin = found;
                    asked.clear();
                }
                Ok(Event::AllPrinted(link)) => drop(printing.remove(&link)),
                Ok(Event::Lost(link, _)) => {
                    asked.remove(&link);
                    printing.remove(&link);
                }
                Ok(_) => {}
            }
        }
        origin
    }
}

pub(super) fn elsewhere(failure: Option<String>, origin: Option<Origin>) -> Error {
    let failure = failure.unwrap_or_else(|| "the job ended before it began".into());
    let origin = origin.map(Box::new);
    Failure::Elsewhere { failure, origin }.into()
}

/// An origin as a worker has sent it.
pub(super) fn come(origin: message::FailureOrigin<'_>) -> Origin {
    Origin {
        kind: origin.kind,
        stage: origin.stage.to_owned(),
        partition: origin.partition,
        turn: origin.turn,
        message: origin.message.to_owned(),
        cause: origin.cause.to_vec(),
    }
}
