//! Owns what splits that are mapped leave to those after them: tables whose memory is there already,
//! and the room that was taken for them. The room for all that map at once is taken by the first of
//! them, before chunks are on their way, so no later one finds it taken.

use super::fold_table::{FoldTable, MAP_SALT};
use super::{MapReduceSteps, map_stage};
use crate::parts::ChunkPool;
use brambling_memory::held;
use brambling_program::{Context, KernelError, Reservation};
use std::sync::Mutex;

/// What is left, and how many splits are mapped or will be.
#[derive(Debug, Default)]
pub(super) struct Mapping(Mutex<Left>);

#[derive(Debug, Default)]
struct Left {
    open: usize,
    has_begun: bool,
    tables: Vec<FoldTable>,
    rooms: Vec<Reservation>,
}

impl Mapping {
    /// A split will be mapped.
    pub(super) fn open(&self) {
        held::lock(&self.0).open += 1;
    }

    /// An empty table for a split that begins, and the room for what it takes.
    pub(super) fn take(
        &self,
        steps: &MapReduceSteps,
        context: &Context<'_>,
    ) -> Result<(FoldTable, Reservation), KernelError> {
        let mut left = held::lock(&self.0);
        if !left.has_begun {
            left.has_begun = true;
            for _ in 1..left.open.min(steps.at_once as usize) {
                // Where there is none now, whoever needs it asks again.
                left.rooms
                    .extend(context.reserve(map_stage::room_bytes(steps)).ok());
            }
        }
        let room = match left.rooms.pop() {
            Some(room) => room,
            None => context.reserve(map_stage::room_bytes(steps))?,
        };
        let table = left.tables.pop();
        let table = table.unwrap_or_else(|| FoldTable::new(steps.reduce, MAP_SALT));
        Ok((table, room))
    }

    /// A split is mapped, or is mapped elsewhere: what it had is left to the others, if there are any.
    pub(super) fn close(&self, held: Option<(FoldTable, Reservation)>, pool: &ChunkPool) {
        let mut left = held::lock(&self.0);
        left.open -= 1;
        if let Some((table, room)) = held
            && table.is_empty()
        {
            left.tables.push(table);
            left.rooms.push(room);
        }
        let open = left.open;
        left.tables.truncate(open);
        left.rooms.truncate(open);
        if open == 0 {
            pool.end();
        }
    }
}
