//! What the hardware can do: the CPUs this process may use, the limits its control group sets, and
//! probes that measure disks, memory bandwidth, random access, calls, the distance between two cores, messages, flows and flops. A
//! [`Profile`] is what they have found out about a host, kept in a file. [`ideal`] says how long a job would take on hardware that
//! is used to the full. A ledger counts what a job did, and a report judges it by what the hardware can do.
//!
//! This crate stands alone: it knows nothing of programs, and nothing of the engine.

pub mod cgroup;
pub mod cpu;
pub mod crew;
pub mod exit;
pub mod ideal;
pub mod isa;
pub mod least;
pub mod ledger;
pub mod measure;
pub mod network;
pub mod pin;
pub mod probes;
pub mod profile;
pub mod report;
pub mod units;

pub use isa::IsaLevel;
pub use ledger::Ledger;
pub use measure::{Figure, Rounds};
pub use profile::Profile;
pub use report::{Report, Roofs};
