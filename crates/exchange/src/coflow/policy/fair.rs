//! Fair sharing: all flows alike, as TCP's.

use super::{Change, Event, Needs, Order, Policy, Sharing, Sizes};

/// All flows share each link alike, whichever coflow they are of.
///
/// # Source
/// What coflow schedulers are compared with: "per-flow fair sharing".
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

impl Policy for Fair {
    fn needs(&self) -> Needs {
        Needs {
            by_receiver: false,
            sizes: Sizes::Unknown,
        }
    }

    fn sharing(&self) -> Sharing {
        Sharing::Classes
    }

    fn hear(&mut self, event: &Event, changes: &mut Vec<Change>) {
        if let Event::Begun { unit, .. } = *event {
            changes.push(Change {
                unit,
                order: Order::default(),
            });
        }
    }
}
