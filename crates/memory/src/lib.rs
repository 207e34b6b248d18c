//! Memory: one budget of a process with classes and floors, what the machine allows,
//! which locks a thread holds that tasks may want, memory in pages of its own,
//! and the switch by which tests remove one condition of production code.
//!
//! Nothing here knows what the bytes mean, and nothing here spills: whoever is refused decides, in the words of [`spill`].

mod budget;
pub mod cgroup;
mod class;
pub mod held;
pub mod mutants;
mod pages;
mod process;
mod spare;
pub mod spill;

pub use budget::{Budget, Reservation};
pub use class::{Class, Floors, OutOfMemory};
pub use pages::Pages;
pub use process::{AdmissionWait, BudgetShare, Memory, Queued, count_jobs, share_bytes};
pub use spare::Spare;
pub use spill::{Spill, SpillError, Spilled};
