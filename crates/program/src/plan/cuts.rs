//! Where snapshots may be taken.

use super::LoopId;
use crate::{ProgramNode, Spec};

/// A point at which no exchange is open: where a snapshot may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Before the first instruction.
    Start,
    /// The top of an outermost loop, at each of its turns.
    LoopTop(LoopId),
}

/// Scatter and gather stand in one block, so an exchange that is open at a point of the program's own
/// block was opened in that block.
pub(super) fn find_cuts(spec: &Spec) -> Vec<Cut> {
    let mut cuts = vec![Cut::Start];
    let (mut open, mut loops) = (0usize, 0);
    for node in &spec.blocks[0] {
        match node {
            ProgramNode::Stage(stage) => {
                // Only the outermost level is looked at: validation lets no exchange reach across a
                // block's end.
                open += usize::from(spec.sends_to(*stage).is_some());
                open -= spec.takes_from(*stage).len();
            }
            ProgramNode::Repeat { .. } | ProgramNode::While { .. } => {
                if open == 0 {
                    cuts.push(Cut::LoopTop(loops));
                }
                loops += 1;
            }
            ProgramNode::Branch { .. } => {}
        }
    }
    cuts
}
