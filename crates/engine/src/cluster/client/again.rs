//! A client whose controller is gone, and whose jobs outlive it: it looks for the controller again, and says that it waits.

use super::link_events::{LinkEvent, LinkLoss};
use super::{Cluster, cut_off};
use crate::Error;
use crate::cluster::client::link_events::LossKind;
use crate::cluster::jobs::ourselves;
use crate::cluster::{ClusterError, LASTING_TIME};
use brambling_exchange::transports::tcp::LinkId;
use brambling_protocol::message::Message;
use brambling_worker::executor::{CALLER_LOOKS, Caller, Failure};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How soon it is looked for at first; then twice as long each time, up to [`AGAIN_MAX`].
const AGAIN_FIRST: Duration = Duration::from_millis(50);
/// At most: so soon after a controller is back its clients are there.
const AGAIN_MAX: Duration = Duration::from_secs(1);

impl Cluster {
    /// The link to the controller.
    pub(super) fn controller(&self) -> LinkId {
        *self
            .controller
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether what it was asked outlives the controller.
    pub(super) fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Acquire)
    }

    /// How the link to the controller has ended, if it has.
    pub(super) fn loss(&self) -> Option<LinkLoss> {
        let ended = self.ended.lock();
        ended
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// The error of a link that has ended so.
    pub(super) fn gone_by(&self, LinkLoss { why, how, .. }: LinkLoss) -> ClusterError {
        match how {
            LossKind::CutOff => cut_off(format!("the controller at {}", self.address), why),
            _ => self.gone(why),
        }
    }

    /// Looks for a controller that is gone, until it is back, the caller interrupts, or it has taken too long.
    ///
    /// # Errors
    /// When it is not back in time, or whoever is there is another.
    pub(super) fn find_again(
        &self,
        inbox: &Receiver<LinkEvent>,
        patience: Duration,
        caller: &mut dyn Caller,
    ) -> Result<(), Error> {
        let Some(loss) = self.loss() else {
            return Ok(());
        };
        if !self.lasts() {
            return Err(self.gone_by(loss).into());
        }
        let deadline = Instant::now() + patience.min(LASTING_TIME);
        let mut pause = AGAIN_FIRST;
        let mut next = Instant::now();
        let mut dialed = None;
        loop {
            if caller.check().is_err() {
                return Err(Failure::Interrupted.into());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.gone_by(loss).into());
            }
            if dialed.is_none() && now >= next {
                dialed = self.board.visit(self.address).ok();
                (next, pause) = (now + pause, (pause * 2).min(AGAIN_MAX));
            }
            match inbox.recv_timeout(CALLER_LOOKS) {
                Ok(LinkEvent::Open(link)) if Some(link) == dialed => {
                    self.found(link);
                    return Ok(());
                }
                Ok(LinkEvent::Lost(link, loss)) if Some(link) == dialed => match loss.how {
                    // Another token or version will not be otherwise the next time.
                    LossKind::Refused if !loss.may_pass => {
                        let (at, why) = (self.address, loss.why);
                        return Err(ClusterError::Unwelcome { at, why }.into());
                    }
                    _ => dialed = None,
                },
                // Of links that are left.
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.gone("this side ended".into()).into());
                }
            }
        }
    }

    fn found(&self, link: LinkId) {
        let poison = std::sync::PoisonError::into_inner;
        *self.controller.lock().unwrap_or_else(poison) = link;
        *self
            .ended
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        self.say(link, Message::Introduce(ourselves()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{
        ControllerOptions, ControllerProcess, JOBS_AT_ONCE, Rendezvous, SILENCE, Token,
    };

    /// Longer than a controller of this process takes to answer.
    const ANSWERED: Duration = Duration::from_secs(1);

    #[test]
    fn what_a_controller_says_before_the_first_question_is_heard() {
        let state = tempfile::tempdir().unwrap();
        let token = Token::new([9; 32]);
        let controller = ControllerProcess::start(ControllerOptions {
            bind: "127.0.0.1:0".parse().unwrap(),
            token: token.clone(),
            tls: None,
            balance_each: None,
            jobs_at_once: JOBS_AT_ONCE,
            snapshots: None,
            state: Some(state.path().display().to_string()),
            silence: SILENCE,
        });
        let controller = controller.unwrap();
        let cluster = Cluster::connect(&Rendezvous {
            address: controller.address(),
            token,
            tls: None,
        });
        let cluster = cluster.unwrap();
        cluster.lasts.store(false, Ordering::Release);
        cluster.say(cluster.controller(), Message::Introduce(ourselves()));
        // The answer lies there when the question is put.
        std::thread::sleep(ANSWERED);
        cluster.status().unwrap();
        assert!(cluster.lasts());
    }
}
