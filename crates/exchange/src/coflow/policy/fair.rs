//! Fair sharing: all flows alike, as TCP's.

use super::{CoflowEvent, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes};

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

    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>) {
        if let CoflowEvent::Begun { unit, .. } = *event {
            changes.push(OrderChange {
                unit,
                order: ServiceOrder::default(),
            });
        }
    }
}
