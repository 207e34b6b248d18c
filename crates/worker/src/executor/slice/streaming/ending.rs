//! Owns the end of a task that sends by chunks: what it has written goes, and each destination hears how many chunks there were. The call
//! of the task asks for it when its kernel is done (`streaming.rs`). It never calls a kernel.

use super::{Ports, piece};
use crate::executor::open::Outlet;
use crate::node::NodeError;
use crate::piece_data::{Encoded, PieceBytes, PieceData};
use crate::waiting::WaitingPiece;
use brambling_exchange::Item;
use brambling_memory::mutants;
use brambling_program::StreamPorts;
use brambling_program::tree::TreeNode;

impl Ports<'_> {
    /// The task is done: what was written is sent, and every destination hears that no more comes.
    pub(super) fn end(&mut self) {
        let mut far = Vec::new();
        for place in 0..self.fan_out() {
            let sent = match mutants::is_on("the-last-chunk-is-left") {
                true => Ok(()),
                false => self.send(place),
            };
            let ended = sent.and_then(|()| self.end_at(place, &mut far));
            if let Err(error) = ended {
                return self.fail(error);
            }
        }
        if !far.is_empty() {
            let id = self.open.stream.output.expect("it has destinations");
            let at = (id, self.at.turn);
            let said = (self.job.remote()).scattered(self.job, self.resident.id(), at, far);
            if let Err(error) = said {
                self.fail(error);
            }
        }
    }

    fn end_at(&self, place: u32, far: &mut Vec<(u32, Option<Encoded>)>) -> Result<(), NodeError> {
        let job = self.job;
        let Outlet { mut chunks, .. } = self.open.outlets[place as usize];
        if mutants::is_on("ends-count-no-chunks") {
            chunks = chunks.min(1);
        }
        let (at, to, number) = self.to(self.destination(place));
        let source = TreeNode::leaf(self.resident.index.into());
        let nothing = PieceData::Bytes(PieceBytes::new());
        let is_far = job.owner(number).is_none();
        match (chunks, is_far) {
            // Nothing was sent: an empty mark ends the turn, as of any scatter.
            (0, true) => far.push((to.index, None)),
            (0, false) => {
                let sources = source.leaves().expect("a leaf");
                self.put(at, to, number, Item::Empty { sources })?;
            }
            (_, true) => {
                let last = piece(source, (chunks, true), nothing);
                job.remote().streamed(job, at, to, &last)?;
            }
            (_, false) => {
                let last = piece(source, (chunks, true), WaitingPiece::uncounted(nothing));
                self.put(at, to, number, last)?;
            }
        }
        Ok(())
    }
}
