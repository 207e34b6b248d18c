//! What is sent, by whom, and what is expected.

use brambling_exchange::*;
use brambling_program::{ExchangeId, GroupId, ShardId, Turn};
use brambling_protocol::{EntryRange, Generation, Sequence};
use std::collections::BTreeMap;

pub const X: ExchangeId = ExchangeId(0);
pub const G: GroupId = GroupId(0);
pub const NOW: Generation = Generation(1);
pub const SOURCES: u64 = 5;
pub const DESTINATIONS: u32 = 4;
pub const TURNS: Turn = 9;
pub const OPEN: u64 = 2;

/// What is sent.
pub type Payload = [u8; 8];
pub const WORKERS: usize = 3;
/// Speaks to the workers like one of them.
pub const CONTROLLER: usize = WORKERS;

#[derive(Clone, Debug)]
pub enum Message {
    Parcel(Parcel<Payload>),
    Update(EntryRange),
    Credit(u32, Turn),
    Shard(ShardId, InboxState<Payload>),
}

#[derive(Clone, Debug)]
pub enum Packet {
    Frame(Sequence, Message),
    Ack(Sequence),
}

pub struct Worker {
    pub router: Router<Payload>,
    pub inboxes: BTreeMap<ShardId, ShardInbox<Payload>>,
    pub credits: Credits,
    /// Sources that live here, with the next turn of each.
    pub sources: BTreeMap<u64, Turn>,
}

pub fn shard(index: u32) -> ShardId {
    ShardId { group: G, index }
}

pub fn links() -> Sources<'static> {
    Sources::Dense(SOURCES)
}

pub fn mix(seed: u64, turn: Turn, source: u64, destination: u32) -> u64 {
    let mut x = seed ^ (turn << 40) ^ (source << 20) ^ u64::from(destination);
    for _ in 0..3 {
        x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    x ^ (x >> 29)
}

/// How many chunks a source sends; none is an empty mark.
pub fn chunks(turn: Turn, source: u64, destination: u32) -> u32 {
    [0, 1, 1, 1, 2, 3][(mix(1, turn, source, destination) % 6) as usize]
}

pub fn payload(turn: Turn, source: u64, destination: u32, chunk: u32) -> Payload {
    mix(u64::from(chunk) + 2, turn, source, destination).to_le_bytes()
}
