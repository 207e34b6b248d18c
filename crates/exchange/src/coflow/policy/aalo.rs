//! Aalo: the less a coflow has sent, the sooner it is served.

use super::thresholds::Thresholds;
use super::{CoflowEvent, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// Discretized coflow-aware least attained service (D-CLAS): queues by the bytes that a coflow has sent
/// everywhere, first come first served within each, one after the other.
///
/// It knows no sizes beforehand, and counts for all ports: a controller.
///
/// # Source
/// Chowdhury, Stoica: Efficient coflow scheduling without prior knowledge (SIGCOMM 2015). Queues are strict, as in
/// the authors' code; the paper has weights between them.
#[derive(Clone, Debug)]
pub struct Aalo {
    queues: Thresholds,
    class: BTreeMap<u32, u8>,
    /// Those that have begun and not ended, by coflow: a class is that of the whole coflow.
    units: BTreeMap<u32, BTreeSet<Unit>>,
}

impl Aalo {
    /// With so many queues, of which the first ends at `first` bytes, and each next one at `factor` times as many.
    pub fn new(queues: u8, first: f64, factor: f64) -> Aalo {
        Aalo {
            queues: Thresholds::new(queues, first, factor),
            class: BTreeMap::new(),
            units: BTreeMap::new(),
        }
    }

    fn change(&self, unit: Unit) -> OrderChange {
        OrderChange {
            unit,
            order: ServiceOrder {
                class: self.class.get(&unit.coflow).copied().unwrap_or(0),
                // Parts of one coflow in the order of their numbers.
                rank: u64::from(unit.coflow) << 32 | u64::from(unit.part),
            },
        }
    }
}

impl Policy for Aalo {
    fn needs(&self) -> Needs {
        Needs {
            by_receiver: false,
            sizes: Sizes::Unknown,
        }
    }

    fn sharing(&self) -> Sharing {
        Sharing::OnePass
    }

    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>) {
        match *event {
            CoflowEvent::Begun { unit, .. } => {
                self.class.entry(unit.coflow).or_insert(0);
                self.units.entry(unit.coflow).or_default().insert(unit);
                changes.push(self.change(unit));
            }
            CoflowEvent::Progressed { unit, bytes, .. } => {
                let sent = bytes.own + bytes.peers + bytes.children;
                let class = self.queues.class_of(sent, 1.0);
                let before = self.class.entry(unit.coflow).or_insert(0);
                if class > *before {
                    *before = class;
                    let units = self.units.get(&unit.coflow).into_iter().flatten();
                    changes.extend(units.map(|unit| self.change(*unit)));
                }
            }
            CoflowEvent::Ended { unit } => {
                if let Some(units) = self.units.get_mut(&unit.coflow) {
                    units.remove(&unit);
                }
            }
            _ => {}
        }
    }

    fn wants_at(&self, unit: Unit) -> Option<f64> {
        let class = self.class.get(&unit.coflow).copied().unwrap_or(0);
        self.queues.end_of(class)
    }
}
