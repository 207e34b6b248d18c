//! Where a client hears what comes on its links.

use brambling_exchange::transports::switchboard::{Reception, Refused};
use brambling_exchange::transports::tcp::{LinkId, Lost};
use brambling_protocol::greeting::GreetingError;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// What comes on the links.
pub(super) enum Heard {
    Open(LinkId),
    Frame(LinkId, Vec<u8>),
    Lost(LinkId, Loss),
}

/// Why a link ended, or never opened.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) why: String,
    pub(super) how: How,
    /// Whether it may open the next time, if it never did.
    pub(super) may_pass: bool,
}

/// What that says of who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// Its machine does not answer.
    CutOff,
    /// Its machine answers, and nobody listens there.
    Nobody,
    /// It answers, and takes nobody with what is known here.
    Refused,
    /// It is there and says nothing.
    Silent,
    Otherwise,
}

impl From<&Lost> for Loss {
    fn from(lost: &Lost) -> Loss {
        let how = match lost {
            lost if lost.is_cut() => How::CutOff,
            lost if lost.is_nobody() => How::Nobody,
            Lost::Greeting(GreetingError::NotBrambling) => How::Otherwise,
            Lost::Greeting(_) | Lost::Tls(_) => How::Refused,
            Lost::Silent => How::Silent,
            _ => How::Otherwise,
        };
        Loss {
            why: lost.to_string(),
            how,
            may_pass: lost.may_pass(),
        }
    }
}

pub(super) struct Desk(pub(super) Mutex<Sender<Heard>>);

impl Desk {
    fn hear(&self, heard: Heard) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that is being dropped does not listen.
        let _ = sender.send(heard);
    }
}

impl Reception for Desk {
    fn on_open(&self, link: LinkId) {
        self.hear(Heard::Open(link));
    }
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), Refused> {
        self.hear(Heard::Frame(link, frame.to_vec()));
        Ok(())
    }
    fn on_lost(&self, link: LinkId, why: &Lost) {
        self.hear(Heard::Lost(link, why.into()));
    }
}
