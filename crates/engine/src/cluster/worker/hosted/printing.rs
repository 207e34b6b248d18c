//! What the kernels of a job have printed and loaded on a worker, on its way to the client.

use super::super::super::wire::framed;
use super::super::prints::Batch;
use super::Hosted;
use brambling_protocol::message::Message;
use bytes::Bytes;

impl Hosted {
    /// Sends its client what was printed, unless it has to show something first.
    pub(super) fn send_printed(&self) {
        let mut waiting = self.prints.waiting();
        let framed = waiting.next().map(|batch| self.printed(batch));
        drop(waiting);
        let frames: Vec<Bytes> = framed.into_iter().chain(self.packages()).collect();
        if frames.is_empty() {
            return;
        }
        let to = self.state().from;
        if let (Some(to), Some(shared)) = (to, self.shared.upgrade()) {
            shared.board().say(to, frames);
        }
    }

    /// What its kernels have loaded here, if the client has not been told. Who ran nothing of it has loaded nothing for it.
    pub(super) fn packages(&self) -> Option<Bytes> {
        if !self.prints.waiting().has_unsaid_packages() || self.tally().tasks == 0 {
            return None;
        }
        let mut waiting = self.prints.waiting();
        let packages = waiting.say_packages();
        let packages = packages.iter().map(|(name, version)| (&**name, &**version));
        Some(framed(Message::Packages {
            key: self.key,
            packages: packages.collect(),
        }))
    }

    fn printed(&self, batch: &Batch) -> Bytes {
        framed(batch.message(self.key))
    }

    /// Its client has shown what it was sent, up to this number.
    pub(in super::super) fn on_shown(&self, number: u64) {
        self.prints.waiting().on_shown(number);
        self.send_printed();
    }

    /// All that its kernels have printed and that may not have been shown. What they print from now on goes nowhere.
    pub(in super::super) fn all_printed(&self) -> Vec<Bytes> {
        let mut waiting = self.prints.waiting();
        let all = waiting.close().iter();
        all.map(|batch| self.printed(batch)).collect()
    }
}
