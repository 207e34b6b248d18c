//! Which coflow goes first: events in, orders out, and nothing else.
//!
//! A policy hears what happens to coflows, and says in which order they are to be served. It reads no
//! clock, sends nothing and knows no links: whoever owns it, a receiver of the data plane or the
//! simulator, tells it what it needs ([`Needs`]) and sees to it that its orders are kept
//! ([`Sharing`]). So the same code decides in both.

mod aalo;
mod baraat;
mod fair;
mod fifo;
mod names;
mod receiver_driven;
mod stream;
mod thresholds;
mod varys;

pub use aalo::Aalo;
pub use baraat::Baraat;
pub use fair::Fair;
pub use fifo::Fifo;
pub use names::{PolicyChoices, PolicyName, UnknownPolicy};
pub use receiver_driven::{ReceiverDriven, ReceiverDrivenSettings};
pub use stream::{StreamPolicy, StreamRule, StreamSettings};
pub use varys::Varys;

use std::fmt::Debug;

/// The place of those that are decided about everywhere at once.
pub const EVERYWHERE: u32 = u32::MAX;

/// What is decided about: a part of a coflow, at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// The coflow, in the order of arrival.
    pub coflow: u32,
    /// Its part, where it has several: a node of a job's graph.
    pub part: u32,
    /// The receiver that decides, or [`EVERYWHERE`].
    pub place: u32,
}

/// What happens to a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CoflowEvent {
    /// Its first flows have come.
    Begun {
        /// What begins.
        unit: Unit,
        /// The number of the sub-coflow ([`super::sub_coflow_id`]).
        sub_coflow: u32,
        /// How many.
        flows: u32,
        /// What its busiest port has to carry, of those that tell their sizes.
        bottleneck: Option<f64>,
    },
    /// More flows have come, a wave.
    Grown {
        /// What grows.
        unit: Unit,
        /// By how many flows.
        flows: u32,
    },
    /// So much has come by now, and so many flows are finished.
    Progressed {
        /// Of what.
        unit: Unit,
        /// What its receiver knows of.
        bytes: Heard,
        /// How many flows are finished.
        flows_done: u32,
    },
    /// What its busiest port still has to carry.
    Remaining {
        /// Of what.
        unit: Unit,
        /// In bytes.
        bottleneck: f64,
    },
    /// Nothing has come of it for as long as the policy bears.
    Starved {
        /// What starves.
        unit: Unit,
    },
    /// All of it has come.
    Ended {
        /// What has ended.
        unit: Unit,
    },
}

/// Bytes of a unit, as its receiver knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heard {
    /// That it has received.
    pub own: f64,
    /// That other receivers of the coflow have told it of, through senders.
    pub peers: f64,
    /// Of the parts that had to finish before this one.
    pub children: f64,
}

/// In which order units are served: the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceOrder {
    /// The class that the network sees: 0 is the first.
    pub class: u8,
    /// Within it, where [`Sharing`] looks at that.
    pub rank: u64,
}

/// A unit's order from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderChange {
    /// Whose.
    pub unit: Unit,
    /// Which.
    pub order: ServiceOrder,
}

/// How links are shared by those orders.
#[derive(Clone, Debug, PartialEq)]
pub enum Sharing {
    /// Lower classes first; flows of a class share as TCP's do (max-min).
    Classes,
    /// A flow of each class has such a weight.
    Weighted(Vec<f64>),
    /// One unit after the other; its flows share what is left (max-min).
    Ranked,
    /// One unit after the other; each of its flows gets the lesser share of its two ends, counted over the unit, in
    /// one pass (as the code of Aalo does).
    OnePass,
    /// One unit after the other; all flows of one end at once, and what that leaves goes to flows in order (MADD and
    /// backfilling of Varys).
    EndTogether,
    /// Each link serves the first unit on it, and one more for each that is heavy (class 1) of those it serves (FIFO-LM
    /// of Baraat).
    LimitedMultiplexing,
}

/// Whether a policy knows how much there is to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// It does not, and counts what comes.
    Unknown,
    /// At once: [`CoflowEvent::Remaining`] whenever a coflow comes or ends.
    Known,
    /// As soon as senders have told receivers, and these each other.
    Announced,
}

/// What a policy has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Whether each receiver decides for itself, by what has come.
    pub by_receiver: bool,
    /// Whether it knows how much there is to carry.
    pub sizes: Sizes,
}

/// Decides in which order coflows are served.
pub trait Policy: Debug + Send {
    /// What it has to be told.
    fn needs(&self) -> Needs;

    /// How links are shared by its orders.
    fn sharing(&self) -> Sharing;

    /// Something has happened; orders that change are appended.
    fn hear(&mut self, event: &CoflowEvent, changes: &mut Vec<OrderChange>);

    /// At how many bytes of a unit, `own + peers + children`, it wants to be told next. None: never.
    fn wants_at(&self, unit: Unit) -> Option<f64> {
        let _ = unit;
        None
    }

    /// How many seconds a unit may get nothing before [`CoflowEvent::Starved`].
    fn bears_s(&self) -> Option<f64> {
        None
    }
}
