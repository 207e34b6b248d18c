//! Varys: the coflow whose busiest port has least to carry goes first.

use super::{CoflowEvent, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes};

/// Smallest effective bottleneck first (SEBF), by what remains; all flows of a coflow end at once (MADD).
///
/// It knows all sizes and all ports, and decides for all of them: a controller.
///
/// # Source
/// Chowdhury, Zhong, Stoica: Efficient coflow scheduling with Varys (SIGCOMM 2014).
#[derive(Clone, Copy, Debug, Default)]
pub struct Varys;

impl Policy for Varys {
    fn needs(&self) -> Needs {
        Needs {
            by_receiver: false,
            sizes: Sizes::Known,
        }
    }

    fn sharing(&self) -> Sharing {
        Sharing::EndTogether
    }

    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>) {
        let (unit, bottleneck) = match *event {
            CoflowEvent::Begun {
                unit, bottleneck, ..
            } => (unit, bottleneck.unwrap_or(0.0)),
            CoflowEvent::Remaining { unit, bottleneck } => (unit, bottleneck),
            _ => return,
        };
        changes.push(OrderChange {
            unit,
            order: ServiceOrder {
                class: 0,
                rank: rank_of(bottleneck),
            },
        });
    }
}

/// Bytes as a rank: whole ones, so that what differs by rounding is alike.
pub(super) fn rank_of(bytes: f64) -> u64 {
    bytes.max(0.0).round() as u64
}
