//! First come, first served.

use super::{CoflowEvent, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes};

/// One coflow after the other, in the order of arrival.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn needs(&self) -> Needs {
        Needs {
            by_receiver: false,
            sizes: Sizes::Unknown,
        }
    }

    fn sharing(&self) -> Sharing {
        Sharing::Ranked
    }

    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>) {
        if let CoflowEvent::Begun { unit, .. } = *event {
            let order = ServiceOrder {
                class: 0,
                rank: u64::from(unit.coflow),
            };
            changes.push(OrderChange { unit, order });
        }
    }
}
