//! First come, first served.

use super::{Change, Event, Needs, Order, Policy, Sharing, Sizes};

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

    fn hear(&mut self, event: &Event, changes: &mut Vec<Change>) {
        if let Event::Begun { unit, .. } = *event {
            let order = Order {
                class: 0,
                rank: u64::from(unit.coflow),
            };
            changes.push(Change { unit, order });
        }
    }
}
