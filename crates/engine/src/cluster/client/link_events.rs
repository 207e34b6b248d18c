//! Where a client hears what comes on its links.

use brambling_exchange::transports::switchboard::{PartyRefusal, Reception};
use brambling_exchange::transports::tcp::{LinkId, Lost};
use brambling_protocol::greeting::GreetingError;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// What comes on the links.
pub(super) enum LinkEvent {
    Open(LinkId),
    Frame(LinkId, Vec<u8>),
    Lost(LinkId, LinkLoss),
}

/// Why a link ended, or never opened.
#[derive(Clone, Debug)]
pub(super) struct LinkLoss {
    pub(super) why: String,
    pub(super) how: LossKind,
    /// Whether it may open the next time, if it never did.
    pub(super) may_pass: bool,
}

/// What that says of who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LossKind {
    /// Its machine does not answer.
    CutOff,
    /// Its machine answers, and nobody listens there.
    Nobody,
    /// It answers, and takes nobody with what is known here.
    Refused,
    /// It is there and says nothing.
    Silent,
    Other,
}

impl From<&Lost> for LinkLoss {
    fn from(lost: &Lost) -> LinkLoss {
        let how = match lost {
            lost if lost.is_cut() => LossKind::CutOff,
            lost if lost.is_nobody() => LossKind::Nobody,
            Lost::Greeting(GreetingError::NotBrambling) => LossKind::Other,
            Lost::Greeting(_) | Lost::Tls(_) => LossKind::Refused,
            Lost::Silent => LossKind::Silent,
            _ => LossKind::Other,
        };
        LinkLoss {
            why: lost.to_string(),
            how,
            may_pass: lost.may_pass(),
        }
    }
}

pub(super) struct LinkEvents(pub(super) Mutex<Sender<LinkEvent>>);

impl LinkEvents {
    fn hear(&self, heard: LinkEvent) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that is being dropped does not listen.
        let _ = sender.send(heard);
    }
}

impl Reception for LinkEvents {
    fn on_open(&self, link: LinkId) {
        self.hear(LinkEvent::Open(link));
    }
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), PartyRefusal> {
        self.hear(LinkEvent::Frame(link, frame.to_vec()));
        Ok(())
    }
    fn on_lost(&self, link: LinkId, why: &Lost) {
        self.hear(LinkEvent::Lost(link, why.into()));
    }
}
