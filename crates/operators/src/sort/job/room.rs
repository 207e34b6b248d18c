//! Owns the memory in which the records of a sort lie in one process: it takes it from the job's
//! budget a step at a time, and says who spills when there is no more. The stage `sort` asks it
//! before it takes a chunk. It never holds a record.

use brambling_memory::{Reservation, held};
use brambling_program::Context;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::task::Waker;

/// So much is taken of the budget at once: asking for every chunk would have all threads count in
/// one place.
const STEP_BYTES: u64 = 16 << 20;

/// Who has less is not asked to spill: a run of less would be read in small pieces when runs are
/// merged. With a budget below this for each part, runs are as long as they can be.
const RUN_BYTES_MIN: u64 = 1 << 20;

/// Memory for records.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<RoomState>,
}

#[derive(Debug)]
struct RoomState {
    /// No more than this, whatever the budget has.
    limit_bytes: u64,
    used_bytes: u64,
    taken: Option<Reservation>,
    parts: BTreeMap<u32, PartRoom>,
}

/// What a part has.
#[derive(Debug, Default)]
struct PartRoom {
    bytes: u64,
    /// It is asked to spill.
    spills: bool,
    /// Woken when it is to spill; with `waits` also when there is room.
    waker: Option<Waker>,
    waits: bool,
}

/// What a part hears that asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomAnswer {
    /// It has it.
    Taken,
    /// It is to write what it has to a run, and ask again.
    Spill,
    /// Another one writes; the waker is woken.
    Wait,
}

impl Room {
    pub(super) fn new(limit_bytes: u64) -> Room {
        Room {
            state: Mutex::new(RoomState {
                limit_bytes,
                used_bytes: 0,
                taken: None,
                parts: BTreeMap::new(),
            }),
        }
    }

    /// Room for so many bytes of a part.
    pub(super) fn ask(&self, part: u32, bytes: u64, context: &Context<'_>) -> RoomAnswer {
        let mut state = held::lock(&self.state);
        let own = state.parts.entry(part).or_default();
        own.waits = false;
        if own.spills {
            return RoomAnswer::Spill;
        }
        if state.take(bytes, context) {
            state.parts.entry(part).or_default().bytes += bytes;
            return RoomAnswer::Taken;
        }
        let largest = state.largest();
        match largest {
            // Somebody has to have something: otherwise nobody would ever go on.
            None => {
                state.used_bytes += bytes;
                state.parts.entry(part).or_default().bytes += bytes;
                RoomAnswer::Taken
            }
            Some(largest) if largest == part => {
                state.parts.entry(part).or_default().spills = true;
                RoomAnswer::Spill
            }
            Some(largest) => {
                let other = state.parts.entry(largest).or_default();
                other.spills = true;
                let waker = other.waker.take();
                let own = state.parts.entry(part).or_default();
                (own.waker, own.waits) = (Some(context.completion()), true);
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
                RoomAnswer::Wait
            }
        }
    }

    /// Whether the part is asked to spill. Otherwise its waker is woken when it is.
    pub(super) fn is_to_spill(&self, part: u32, context: &Context<'_>) -> bool {
        let mut state = held::lock(&self.state);
        let own = state.parts.entry(part).or_default();
        own.waker = (!own.spills).then(|| context.completion());
        own.spills
    }

    /// A part has let go of all that it had, or of so much of it.
    pub(super) fn let_go(&self, part: u32, bytes: u64) {
        let mut state = held::lock(&self.state);
        let own = state.parts.entry(part).or_default();
        let bytes = bytes.min(own.bytes);
        own.bytes -= bytes;
        own.spills &= own.bytes > 0;
        state.used_bytes -= bytes;
        let wakers: Vec<Waker> = state
            .parts
            .values_mut()
            .filter(|it| it.waits)
            .filter_map(|it| it.waker.take())
            .collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl RoomState {
    fn take(&mut self, bytes: u64, context: &Context<'_>) -> bool {
        let wanted = self.used_bytes + bytes;
        if wanted > self.limit_bytes {
            return false;
        }
        let has = self.taken.as_ref().map_or(0, Reservation::bytes);
        if wanted > has {
            let step = (wanted - has).next_multiple_of(STEP_BYTES);
            let grown = match &mut self.taken {
                Some(taken) => taken.grow(step).is_ok(),
                None => match context.reserve(step) {
                    Ok(taken) => {
                        self.taken = Some(taken);
                        true
                    }
                    Err(_) => false,
                },
            };
            if !grown {
                return false;
            }
        }
        self.used_bytes = wanted;
        true
    }

    /// Who has most, if anybody has enough to spill; whoever spills already comes first.
    fn largest(&self) -> Option<u32> {
        let all = self.parts.iter().filter(|(_, it)| it.bytes > 0);
        if let Some((part, _)) = all.clone().find(|(_, it)| it.spills) {
            return Some(*part);
        }
        let most = all.max_by_key(|(part, it)| (it.bytes, u32::MAX - **part));
        most.filter(|(_, it)| it.bytes >= RUN_BYTES_MIN.min(self.limit_bytes / 2))
            .map(|(part, _)| *part)
    }
}
