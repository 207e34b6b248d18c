//! Receivers hand out their links: the coflow whose busiest port has least left to carry goes first, as far as
//! each receiver has been told.

use super::thresholds::Thresholds;
use super::varys::rank_of;
use super::{
    CoflowEvent, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes, StreamPolicy,
    StreamSettings, Unit,
};
use std::collections::BTreeSet;

/// How [`ReceiverDriven`] decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverDrivenSettings {
    /// Whether senders announce sizes; where they do not, bytes received count as in [`StreamPolicy`].
    pub knows_sizes: bool,
    /// Whether senders serve grants in exact order; otherwise the network's classes order them alone.
    pub by_rank: bool,
    /// How many classes the network has.
    pub queues: u8,
    /// Where the first class ends, in bytes that a port has left to carry.
    pub threshold: f64,
    /// How many times the threshold before the next one is.
    pub factor: f64,
    /// The same of those whose sizes are not announced: in bytes that have come.
    pub threshold_of_bytes: f64,
    /// See [`ReceiverDrivenSettings::threshold_of_bytes`].
    pub factor_of_bytes: f64,
}

impl Default for ReceiverDrivenSettings {
    fn default() -> ReceiverDrivenSettings {
        ReceiverDrivenSettings {
            knows_sizes: true,
            by_rank: true,
            queues: 8,
            threshold: 1e6,
            factor: 6.0,
            threshold_of_bytes: 10e6,
            factor_of_bytes: 10.0,
        }
    }
}

/// Smallest remaining bottleneck first, without a controller.
///
/// An exchange knows its sizes when its scatters are done. Senders announce them; receivers tell each other,
/// through the senders that they share, what they still have to receive; and each receiver grants its downlink in
/// the order of the busiest ports that it has heard of. Until it has heard, a coflow counts as one that has received
/// nothing.
///
/// # Source
/// Ours; kin of pHost (CoNEXT 2015) and Homa (SIGCOMM 2018), whose receivers order messages, with the order of Varys.
#[derive(Clone, Debug)]
pub struct ReceiverDriven {
    settings: ReceiverDrivenSettings,
    classes: Thresholds,
    /// Orders those whose sizes are not announced.
    by_bytes: StreamPolicy,
    told: BTreeSet<Unit>,
}

impl ReceiverDriven {
    /// With these settings.
    pub fn new(settings: ReceiverDrivenSettings) -> ReceiverDriven {
        ReceiverDriven {
            classes: Thresholds::new(settings.queues, settings.threshold, settings.factor),
            by_bytes: StreamPolicy::new(StreamSettings {
                queues: settings.queues,
                threshold: settings.threshold_of_bytes,
                factor: settings.factor_of_bytes,
                ..StreamSettings::default()
            }),
            told: BTreeSet::new(),
            settings,
        }
    }

    fn order(&self, bottleneck: f64) -> ServiceOrder {
        ServiceOrder {
            class: self.classes.class_of(bottleneck, 1.0),
            rank: match self.settings.by_rank {
                true => rank_of(bottleneck),
                false => 0,
            },
        }
    }
}

impl Policy for ReceiverDriven {
    fn needs(&self) -> Needs {
        Needs {
            by_receiver: !self.settings.knows_sizes,
            sizes: match self.settings.knows_sizes {
                true => Sizes::Announced,
                false => Sizes::Unknown,
            },
        }
    }

    fn sharing(&self) -> Sharing {
        match self.settings.by_rank && self.settings.knows_sizes {
            true => Sharing::Ranked,
            false => Sharing::Classes,
        }
    }

    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>) {
        match *event {
            CoflowEvent::Remaining { unit, bottleneck } => {
                self.told.insert(unit);
                let order = self.order(bottleneck);
                changes.push(OrderChange { unit, order });
            }
            CoflowEvent::Ended { unit } => {
                self.told.remove(&unit);
                self.by_bytes.hear(event, changes);
            }
            CoflowEvent::Begun { .. } | CoflowEvent::Grown { .. } => {
                self.by_bytes.hear(event, changes)
            }
            CoflowEvent::Progressed { unit, .. } | CoflowEvent::Starved { unit } => {
                if !self.told.contains(&unit) {
                    self.by_bytes.hear(event, changes);
                }
            }
        }
    }

    fn wants_at(&self, unit: Unit) -> Option<f64> {
        match self.told.contains(&unit) {
            true => None,
            false => self.by_bytes.wants_at(unit),
        }
    }
}
