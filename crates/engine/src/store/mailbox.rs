//! What a job's threads say of cuts, on its way to the coordinator.

use brambling_memory::held;
use brambling_program::{CutAnswer, GroupState, ShardId};
use brambling_worker::executor::{Capture, CutKeeper};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a shard has said.
#[derive(Debug)]
pub(crate) enum Said {
    Stands(ShardId, GroupState),
    Answered(u64, ShardId, CutAnswer),
    Captured(u64, Capture),
    Committed(u64),
}

#[derive(Debug)]
pub(crate) struct CutMailbox(Mutex<Sender<Said>>);

impl CutMailbox {
    pub(crate) fn new() -> (CutMailbox, Receiver<Said>) {
        let (sender, receiver) = channel();
        (CutMailbox(Mutex::new(sender)), receiver)
    }

    fn put(&self, said: Said) {
        // Nobody listens any more when the job is over.
        let _ = held::lock(&self.0).send(said);
    }
}

impl CutKeeper for CutMailbox {
    fn stands(&self, shard: ShardId, at: GroupState) {
        self.put(Said::Stands(shard, at));
    }

    fn answered(&self, cut: u64, shard: ShardId, answer: CutAnswer) {
        self.put(Said::Answered(cut, shard, answer));
    }

    fn captured(&self, cut: u64, capture: Capture) {
        self.put(Said::Captured(cut, capture));
    }

    fn committed(&self, cut: u64) {
        self.put(Said::Committed(cut));
    }
}
