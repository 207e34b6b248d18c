//! Stream: each receiver puts its coflows into classes, by what it has received and heard of.

use super::thresholds::Thresholds;
use super::{CoflowEvent, Heard, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes, Unit};
use std::collections::BTreeMap;

/// How the paper's equation 2 is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamRule {
    /// The class is the number of thresholds that are passed: it does not depend on how often it is looked at.
    #[default]
    Recommended,
    /// Equation 2 to the letter with one threshold, the first: all classes lie within a few times that.
    Fixed,
    /// Equation 2 with the threshold of the class that the coflow is in.
    Current,
}

/// How [`StreamPolicy`] decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamSettings {
    /// How many classes the network has (K).
    pub queues: u8,
    /// Where the first one ends, in bytes (τ₁).
    pub threshold: f64,
    /// How many times the threshold before the next one is.
    pub factor: f64,
    /// How equation 2 is read.
    pub rule: StreamRule,
    /// How much a coflow's condition delays its demotion (α): 0 not at all, 1 by up to as much again. Equation 3.
    pub alpha: f64,
    /// How much the number of a sub-coflow weighs (the α of Weighted-Priority): its bytes count `max(1, α ln(m + 1))`
    /// times. Equation 4.
    pub alpha_of_weight: f64,
    /// How much bytes count that other receivers have (β). Equation 5.
    pub beta: f64,
    /// Makes the term n ÷ Σx of equation 3 a ratio: bytes that a flow has at least. 0: the term is left out.
    pub flow_bytes: f64,
    /// Seconds without a byte after which a coflow rises by a class; none: never.
    pub starvation_s: Option<f64>,
    /// Whether classes share links by weights (WFQ) instead of one after the other.
    pub weighted: bool,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        StreamSettings {
            queues: 8,
            threshold: 10e6,
            factor: 10.0,
            rule: StreamRule::Recommended,
            alpha: 0.0,
            alpha_of_weight: 1.0,
            beta: 1.0,
            flow_bytes: 0.0,
            starvation_s: None,
            weighted: false,
        }
    }
}

/// How long a lift lasts: until so much of the first threshold has come.
const LIFT_SHARE: f64 = 0.1;

/// What a receiver knows of a coflow.
#[derive(Clone, Copy, Debug)]
struct Known {
    class: u8,
    sub_coflow: u32,
    flows: u32,
    flows_done: u32,
    bytes: Heard,
    /// Up to how many effective bytes it stays where it was lifted to, since it starved.
    lifted_until: Option<f64>,
}

/// Coflow shortest job first by receivers (C-SJF), with Weighted-Priority, Information-Relay and Child-to-Parent.
///
/// A coflow begins in the first class, and sinks as it is known to have more bytes. A flow without a coflow is a
/// coflow of one, which makes it PIAS.
///
/// # Source
/// Susanto, Jin, Chen: Stream: decentralized opportunistic inter-coflow scheduling for datacenter networks (ICNP 2016),
/// equations 2 to 5 and Algorithm 1.
#[derive(Clone, Debug)]
pub struct StreamPolicy {
    settings: StreamSettings,
    thresholds: Thresholds,
    known: BTreeMap<Unit, Known>,
}

impl StreamPolicy {
    /// With these settings.
    pub fn new(settings: StreamSettings) -> StreamPolicy {
        StreamPolicy {
            settings,
            thresholds: Thresholds::new(settings.queues, settings.threshold, settings.factor),
            known: BTreeMap::new(),
        }
    }

    /// W: how many times the bytes of a sub-coflow count. At least once, or a late one would rise.
    fn weight(&self, known: &Known) -> f64 {
        // math: how much a part weighs; its last bit decides nobody's result.
        let weight = self.settings.alpha_of_weight * f64::from(known.sub_coflow + 1).ln();
        match known.sub_coflow > 1 {
            true => weight.max(1.0),
            false => 1.0,
        }
    }

    /// 1 + αH: how much further thresholds lie for a coflow in its condition.
    fn stretch(&self, known: &Known) -> f64 {
        let flows = f64::from(known.flows.max(1));
        let done = f64::from(known.flows_done) / flows;
        let short = match self.settings.flow_bytes > 0.0 && known.bytes.own > 0.0 {
            true => flows * self.settings.flow_bytes / known.bytes.own,
            false => 0.0,
        };
        1.0 + self.settings.alpha * (done + short).min(1.0)
    }

    /// The bytes that the rule looks at.
    fn effective(&self, known: &Known) -> f64 {
        let bytes = known.bytes;
        self.weight(known) * (bytes.own + self.settings.beta * bytes.peers + bytes.children)
    }

    /// The class that the rule gives, whatever it was.
    fn class_of(&self, known: &Known) -> u8 {
        let (bytes, stretch) = (self.effective(known), self.stretch(known));
        match self.settings.rule {
            StreamRule::Recommended => self.thresholds.class_of(bytes, stretch),
            StreamRule::Fixed => self.equation_2(self.settings.threshold * stretch, bytes),
            StreamRule::Current => {
                let end = self.thresholds.end_of(known.class);
                end.map_or(known.class, |end| self.equation_2(end * stretch, bytes))
            }
        }
    }

    /// `K − ⌈K · min(1, τ ÷ x)⌉`, where 0 is the first class.
    fn equation_2(&self, threshold: f64, bytes: f64) -> u8 {
        let queues = f64::from(self.settings.queues);
        let share = match bytes > 0.0 {
            true => (threshold / bytes).min(1.0),
            false => 1.0,
        };
        // Rounding must not hold up a coflow that has just reached a boundary.
        let steps = (queues * share * (1.0 - 1e-12)).ceil();
        (queues - steps.max(1.0)) as u8
    }

    /// At how many effective bytes the class changes.
    fn next_boundary(&self, known: &Known) -> Option<f64> {
        let stretch = self.stretch(known);
        let queues = f64::from(self.settings.queues);
        let class = known.class;
        if class + 1 >= self.settings.queues {
            return None;
        }
        let left = queues - f64::from(class) - 1.0;
        match self.settings.rule {
            StreamRule::Recommended => self.thresholds.end_of(class).map(|end| end * stretch),
            StreamRule::Fixed => Some(self.settings.threshold * stretch * queues / left),
            StreamRule::Current => {
                let end = self.thresholds.end_of(class)?;
                Some(end * stretch * queues / left)
            }
        }
    }

    /// Sees whether it sinks: it never rises here, and where it was lifted to it stays for a while.
    fn sink(&mut self, unit: Unit, changes: &mut Vec<OrderChange>) {
        let Some(known) = self.known.get(&unit) else {
            return;
        };
        if known
            .lifted_until
            .is_some_and(|until| self.effective(known) < until)
        {
            return;
        }
        let class = self.class_of(known).max(known.class);
        self.put(unit, class, changes);
    }

    fn put(&mut self, unit: Unit, class: u8, changes: &mut Vec<OrderChange>) {
        if let Some(known) = self.known.get_mut(&unit)
            && known.class != class
        {
            known.class = class;
            changes.push(change(unit, class));
        }
    }
}

fn change(unit: Unit, class: u8) -> OrderChange {
    OrderChange {
        unit,
        order: ServiceOrder { class, rank: 0 },
    }
}

impl Policy for StreamPolicy {
    fn needs(&self) -> Needs {
        Needs {
            by_receiver: true,
            sizes: Sizes::Unknown,
        }
    }

    fn sharing(&self) -> Sharing {
        let queues = self.settings.queues;
        match self.settings.weighted {
            true => Sharing::Weighted((1..=queues).rev().map(f64::from).collect()),
            false => Sharing::Classes,
        }
    }

    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>) {
        match *event {
            CoflowEvent::Begun {
                unit,
                sub_coflow,
                flows,
                ..
            } => {
                let known = Known {
                    class: 0,
                    sub_coflow,
                    flows,
                    flows_done: 0,
                    bytes: Heard::default(),
                    lifted_until: None,
                };
                self.known.insert(unit, known);
                changes.push(change(unit, 0));
            }
            CoflowEvent::Grown { unit, flows } => {
                if let Some(known) = self.known.get_mut(&unit) {
                    known.flows += flows;
                }
            }
            CoflowEvent::Progressed {
                unit,
                bytes,
                flows_done,
            } => {
                if let Some(known) = self.known.get_mut(&unit) {
                    (known.bytes, known.flows_done) = (bytes, flows_done);
                }
                self.sink(unit, changes);
            }
            CoflowEvent::Starved { unit } => {
                let known = self.known.get(&unit).copied();
                let lifted = known
                    .and_then(|known| Some((known.class.checked_sub(1)?, self.effective(&known))));
                if let Some((class, bytes)) = lifted {
                    self.put(unit, class, changes);
                    let until = bytes + self.settings.threshold * LIFT_SHARE;
                    self.known
                        .entry(unit)
                        .and_modify(|it| it.lifted_until = Some(until));
                }
            }
            CoflowEvent::Remaining { .. } => {}
            CoflowEvent::Ended { unit } => {
                self.known.remove(&unit);
            }
        }
    }

    fn wants_at(&self, unit: Unit) -> Option<f64> {
        let known = self.known.get(&unit)?;
        let effective = self.effective(known);
        let lifted = known.lifted_until.filter(|until| effective < *until);
        let boundary = match lifted {
            Some(until) => until,
            None => self.next_boundary(known)?,
        };
        let mut missing = (boundary - effective).max(0.0);
        if self.settings.alpha > 0.0 && self.settings.flow_bytes > 0.0 {
            // Its condition gets worse as bytes come, and with it the boundary nears: half of the way there is safe to wait for.
            missing /= 2.0;
        }
        let Heard {
            own,
            peers,
            children,
        } = known.bytes;
        // As if all that is still to come counted as much as any of it can: it is told early rather than late.
        let counted = self.weight(known) * self.settings.beta.max(1.0);
        Some(own + peers + children + missing / counted)
    }

    fn bears_s(&self) -> Option<f64> {
        self.settings.starvation_s
    }
}

#[cfg(test)]
mod tests;
