//! Where a client hears what comes on its links.

use brambling_exchange::transports::switchboard::{Reception, Refused};
use brambling_exchange::transports::tcp::{LinkId, Lost};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// What comes on the links.
pub(super) enum Heard {
    Open(LinkId),
    Frame(LinkId, Vec<u8>),
    Lost(LinkId, Why),
}

/// Why a link is lost.
pub(super) struct Why {
    pub(super) text: String,
    /// Whether it may open the next time, if it never did.
    pub(super) may_pass: bool,
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
        let (text, may_pass) = (why.to_string(), why.may_pass());
        self.hear(Heard::Lost(link, Why { text, may_pass }));
    }
}
