//! What memory is used for, which part of it is whose, and how it is told that there is none left.

use std::fmt;

/// What memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Partitions that live here, and what kernels have asked for while they work.
    Resident,
    /// Pieces of the lowest open turn of an exchange; within a process, of all its open turns.
    Exchange,
    /// Pieces that came before they are needed: of later turns, held and forwarded. They have no
    /// floor, so they can never keep the lowest open turn out of the exchange's.
    Early,
    /// Shards on their way in or out, snapshot parts, encoded frames.
    Transfer,
    /// What clients have handed over: programs, with the arrays in them.
    Given,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 5] = [
        Class::Resident,
        Class::Exchange,
        Class::Early,
        Class::Transfer,
        Class::Given,
    ];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Resident => "resident data",
            Class::Exchange => "the exchange",
            Class::Early => "early pieces of the exchange",
            Class::Transfer => "transfers",
            Class::Given => "a program",
        })
    }
}

/// Bytes that a class can use whatever the others do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Floors {
    /// For partitions that live here.
    pub resident_bytes: u64,
    /// For the lowest open turn of the exchanges.
    pub exchange_bytes: u64,
    /// For transfers.
    pub transfer_bytes: u64,
}

/// Of a budget such a part is the floor of resident data: without it nothing runs.
const RESIDENT_PART: u64 = 2;
/// Such a part that of the lowest open turn of the exchanges: a turn that does not fit it may fail.
const EXCHANGE_PART: u64 = 8;
/// And such a part that of transfers: a shard that moves needs some beside what stays.
const TRANSFER_PART: u64 = 16;

impl Floors {
    /// The default: half for resident data, an eighth for the exchange, a sixteenth for transfers.
    pub fn of(budget_bytes: u64) -> Floors {
        Floors {
            resident_bytes: budget_bytes / RESIDENT_PART,
            exchange_bytes: budget_bytes / EXCHANGE_PART,
            transfer_bytes: budget_bytes / TRANSFER_PART,
        }
    }

    /// All of them.
    pub fn sum_bytes(&self) -> u64 {
        self.resident_bytes
            .saturating_add(self.exchange_bytes)
            .saturating_add(self.transfer_bytes)
    }

    pub(crate) fn class_bytes(&self, class: Class) -> u64 {
        match class {
            Class::Resident => self.resident_bytes,
            Class::Exchange => self.exchange_bytes,
            Class::Early | Class::Given => 0,
            Class::Transfer => self.transfer_bytes,
        }
    }
}

/// The budget has no room left for a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "out of memory: {class} asked for {asked_bytes} bytes with {in_use_bytes} of {budget_bytes} in \
     use; raise the budget with BRAMBLING_MEMORY or memory in brambling.toml"
)]
pub struct OutOfMemory {
    /// Who asked.
    pub class: Class,
    /// For how much.
    pub asked_bytes: u64,
    /// What all classes used together at that moment, of all jobs of the process, with what is kept for the others.
    pub in_use_bytes: u64,
    /// The whole budget.
    pub budget_bytes: u64,
}
