//! Baraat: first come, first served, but the heavy do not keep others waiting.

use super::{CoflowEvent, Heard, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes, Unit};
use std::collections::BTreeSet;

/// FIFO with limited multiplexing (FIFO-LM). A link serves the task that came first; when more bytes of
/// one have been seen than `heavy_bytes`, it is heavy, and the link serves one more beside it.
///
/// # Source
/// Dogar, Karagiannis, Ballani, Rowstron: Decentralized task-aware scheduling for data center networks
/// (SIGCOMM 2014). Heaviness counts the bytes of the task everywhere, as simulators do; in the paper each
/// switch counts what it sees.
#[derive(Clone, Debug)]
pub struct Baraat {
    heavy_bytes: f64,
    heavy: BTreeSet<u32>,
}

impl Baraat {
    /// The 80th percentile of coflows' sizes in the public trace of Facebook, about.
    pub const HEAVY_BYTES: f64 = 1e9;

    /// With the bytes beyond which a coflow is heavy.
    pub fn new(heavy_bytes: f64) -> Baraat {
        Baraat {
            heavy_bytes,
            heavy: BTreeSet::new(),
        }
    }

    fn order(&self, unit: Unit) -> ServiceOrder {
        ServiceOrder {
            class: u8::from(self.heavy.contains(&unit.coflow)),
            rank: u64::from(unit.coflow),
        }
    }
}

impl Policy for Baraat {
    fn needs(&self) -> Needs {
        Needs {
            by_receiver: false,
            sizes: Sizes::Unknown,
        }
    }

    fn sharing(&self) -> Sharing {
        Sharing::LimitedMultiplexing
    }

    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>) {
        let unit = match *event {
            CoflowEvent::Begun { unit, .. } => unit,
            CoflowEvent::Progressed { unit, bytes, .. } if total(bytes) >= self.heavy_bytes => {
                if !self.heavy.insert(unit.coflow) {
                    return;
                }
                unit
            }
            _ => return,
        };
        let order = self.order(unit);
        changes.push(OrderChange { unit, order });
    }

    fn wants_at(&self, unit: Unit) -> Option<f64> {
        (!self.heavy.contains(&unit.coflow)).then_some(self.heavy_bytes)
    }
}

fn total(bytes: Heard) -> f64 {
    bytes.own + bytes.peers + bytes.children
}
