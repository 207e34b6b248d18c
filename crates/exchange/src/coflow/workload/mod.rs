//! Coflows to try policies on: of a trace, or made.

mod generate;
mod shape;
mod trace;

pub use generate::{GenerateOptions, Tails};
pub use shape::{Dag, UnknownDag};
pub use trace::TraceError;

use brambling_program::key;

/// A flow: bytes from one port to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSpec {
    /// The port that sends.
    pub source: u32,
    /// The port that receives.
    pub destination: u32,
    /// How long it is.
    pub bytes: f64,
}

/// Flows of a coflow that begin at once: a node of a job's graph, or a wave of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoflowPart {
    /// The number of the sub-coflow ([`super::sub_coflow_id`]); waves of one have the same.
    pub sub_coflow: u32,
    /// Its flows.
    pub flows: Vec<FlowSpec>,
    /// The parts that have to be done before this one begins, by their place in the coflow: its children.
    pub after: Vec<u32>,
    /// Whether it goes on with what the part before it is: a wave, not a node of its own.
    pub is_wave: bool,
}

/// What is done when all of it is: one exchange, or a job of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coflow {
    /// As the trace names it.
    pub name: u64,
    /// When it comes.
    pub arrival_s: f64,
    /// What it consists of: one part, unless it is a graph or comes in waves.
    pub parts: Vec<CoflowPart>,
}

impl Coflow {
    /// Of flows that begin at once.
    pub fn of(name: u64, arrival_s: f64, flows: Vec<FlowSpec>) -> Coflow {
        Coflow {
            name,
            arrival_s,
            parts: vec![CoflowPart {
                sub_coflow: 1,
                flows,
                ..CoflowPart::default()
            }],
        }
    }

    /// All its flows.
    pub fn flows(&self) -> impl Iterator<Item = &FlowSpec> {
        self.parts.iter().flat_map(|part| &part.flows)
    }

    /// All its bytes.
    pub fn bytes(&self) -> f64 {
        self.flows().map(|flow| flow.bytes).sum()
    }
}

/// Coflows, in the order of arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// How many ports there are.
    pub ports: u32,
    /// By arrival.
    pub coflows: Vec<Coflow>,
}

impl Workload {
    /// Puts coflows in the order of arrival; those that arrive together stay in the order they have.
    pub fn of(ports: u32, mut coflows: Vec<Coflow>) -> Workload {
        coflows.sort_by(|left, right| left.arrival_s.total_cmp(&right.arrival_s));
        Workload { ports, coflows }
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.coflows.iter().map(|it| it.flows().count()).sum()
    }

    /// All bytes.
    pub fn bytes(&self) -> f64 {
        self.coflows.iter().map(Coflow::bytes).sum()
    }

    /// A number that says which coflows these are: the same for the same ones, and another for others.
    pub fn fingerprint(&self) -> u64 {
        let mut mixed = u64::from(self.ports);
        let mut add = |bits: u64| mixed = key::integer(i128::from(mixed.rotate_left(7) ^ bits));
        for coflow in &self.coflows {
            add(coflow.name);
            add(coflow.arrival_s.to_bits());
            for flow in coflow.flows() {
                add(u64::from(flow.source) << 32 | u64::from(flow.destination));
                add(flow.bytes.to_bits());
            }
        }
        mixed
    }
}
