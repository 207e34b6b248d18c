//! What a job was given, and what it may take: room for its program, which counts from its first part on, and its share of the worker's memory.
//!
//! While the program is made of what has come, both are there, and both count ([`program_room_bytes`]). What was made of it, the arrays that the client has
//! handed over, counts as long as the job is here.

use super::{Hosted, State};
use brambling_memory::{Budget, Class, OutOfMemory};
use brambling_protocol::message::program_room_bytes;

impl Hosted {
    /// Room for a program of so many bytes, before any of it is kept. Said again on another link, it is the same program.
    pub(super) fn take_room(&self, state: &mut State, bytes: u64) -> Result<(), OutOfMemory> {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(());
        };
        if state.program.is_some() || state.share.is_some() {
            return Ok(());
        }
        state.room = None;
        let taken = shared
            .memory
            .own()
            .reserve(Class::Given, program_room_bytes(bytes));
        state.is_refused = taken.is_err();
        state.room = Some(taken?);
        Ok(())
    }

    /// The job cannot be here: there is no room for its program.
    pub(super) fn refuse(&self, why: OutOfMemory) {
        if let Some(shared) = self.shared.upgrade() {
            let why = format!("the program and the arrays in it ran {why}");
            shared.say_unprepared(self.key, why);
        }
    }

    /// The job takes its share of the worker's memory: at once, since its controller has looked for room.
    pub(super) fn take_share(&self, shared: &super::WorkerShared) -> Budget {
        let weight = self.state().weight;
        let share = shared.memory.admit(weight);
        let budget = share.budget().clone();
        self.state().share = Some(share);
        budget
    }

    /// The program has been made, and the bytes that it was made of are gone: there is room for more of the job's floors.
    pub(super) fn end_making(&self, program_bytes: u64) {
        let mut state = self.state();
        if let Some(room) = &mut state.room {
            room.shrink(program_bytes.min(room.bytes()));
        }
        if let Some(share) = &state.share {
            share.weigh(state.weight);
        }
    }

    /// What the job has here of the worker's memory.
    pub(in super::super) fn in_use_bytes(&self) -> u64 {
        let state = self.state();
        let share = state.share.as_ref();
        let room = state.room.as_ref().map_or(0, |room| room.bytes());
        room + share.map_or(0, |share| share.budget().in_use_bytes())
    }

    /// The job is here no more.
    pub(super) fn end_share(&self) {
        let mut state = self.state();
        let had = (state.share.take(), state.room.take());
        drop(state);
        drop(had);
    }
}
