//! What the hardware can do: the CPUs this process may use, the limits its control group sets, and
//! probes that measure disks, memory bandwidth, random access, calls, the distance between two cores, messages, flows and flops. A
//! [`Profile`] is what they have found out about a host, kept in a file.
//!
//! This crate stands alone: it knows nothing of programs, and nothing of the engine.

pub mod cgroup;
pub mod cpu;
pub mod crew;
pub mod exit;
pub mod isa;
pub mod ledger;
pub mod measure;
pub mod network;
pub mod pin;
pub mod probes;
pub mod profile;

pub use isa::IsaLevel;
pub use ledger::Ledger;
pub use measure::{Figure, Rounds};
pub use profile::Profile;
