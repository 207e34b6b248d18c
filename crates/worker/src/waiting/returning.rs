//! Turns of which something was spilled: it is brought back by threads that wait for files, and the gather is not ready until all of it is here.
//!
//! # States of a turn of which all has come
//! ```text
//! some of it is spilled ──► is being read ──► is here ──► gathered
//!      ▲        └─ others have their chance, and there is none left, or no room
//!      └────────── one of those was gathered
//! ```
//!
//! # Rules
//! * A turn is read when there is room for all of it, and nobody spills meanwhile what of it is in memory. It waits for the disk then, and for nothing else.
//! * No more turns of a job have their chance at once than it has threads, which might all gather at once as well. A turn has it until it was gathered, or
//!   its shard has left.
//! * Who finds no room while others have their chance waits until one of them has had it. Who finds none alone never will: its gather is called, and fails.
//! * A shard that is to leave, and is kept by a task, steps back: it will not gather here, and what it waits for may need another's chance.
//! * Who waits is woken: when something was read, when the queue for files has room, when another turn has had its chance.
//! * What cannot be read is the gather's failure.

use super::chances::{Chance, Chances, Refused};
use super::{Charge, ExchangeTurn, Unreturned, WaitingPiece, WaitingRoom, no_room};
use crate::piece_data::{PieceData, read};
use brambling_memory::{Reservation, Spilled, held};
use brambling_program::ShardId;
use brambling_storage::{FileError, FilePool, Request, Ticket};
use std::sync::Arc;
use std::task::Waker;

/// Which turns of a job are brought back, and by whom.
#[derive(Debug)]
pub(crate) struct Returns {
    files: Arc<FilePool>,
    chances: Arc<Chances>,
}

impl Returns {
    pub(super) fn new(files: Arc<FilePool>, turns_max: usize) -> Returns {
        Returns {
            files,
            chances: Arc::new(Chances::new(turns_max)),
        }
    }
}

/// Reads something back.
struct ReadBack(Arc<dyn Spilled>);

impl Request for ReadBack {
    type Done = Vec<u8>;

    fn run(self) -> Result<Vec<u8>, FileError> {
        Ok(read(&*self.0)?)
    }

    fn name(&self) -> String {
        format!("reading {} spilled bytes", self.0.bytes())
    }
}

/// A turn that has its chance, or has failed.
#[derive(Debug)]
pub(crate) struct Returning {
    pub(crate) at: ExchangeTurn,
    /// Whether a shard that is to leave has asked for it.
    pub(crate) is_asked: bool,
    /// The places of pieces that are being read.
    asked: Vec<(usize, Ticket<Vec<u8>>)>,
    /// What was read of them: it becomes theirs when all of it is here, so that a turn can step back until then.
    read: Vec<(usize, Vec<u8>)>,
    /// The pieces before this one are here, or are being read.
    next: usize,
    /// How it counts until it was gathered; or why it cannot be.
    end: Option<Result<Charge, Unreturned>>,
}

/// What became of a turn of which all has come.
pub(crate) enum Begun {
    /// All of it is in memory.
    Here,
    /// Others have their chance: the waker is woken.
    Later,
    /// It has its own, or has failed.
    Now(Returning),
}

impl WaitingRoom {
    /// Begins to bring back what of a turn was spilled.
    pub(crate) fn begin_return(
        &self,
        returns: &Arc<Returns>,
        (at, shard): (ExchangeTurn, ShardId),
        pieces: &mut [&mut WaitingPiece],
        waker: &Waker,
    ) -> Begun {
        held::forbid("spilled pieces are asked for");
        let spilled_bytes = |pieces: &[&mut WaitingPiece]| {
            let spilled = pieces.iter().filter_map(|it| it.cargo.spilled_bytes());
            spilled.reduce(|all, it| all + it)
        };
        if spilled_bytes(pieces).is_none() {
            return Begun::Here;
        }
        loop {
            let Some(chance) = returns.chances.chance(waker) else {
                return Begun::Later;
            };
            // Pinned pieces are not spilled, so what is spilled now is all that has to be read.
            pieces.iter().for_each(|it| it.cargo.pin());
            let bytes = spilled_bytes(pieces).unwrap_or(0);
            let source = match self.make_room(bytes) {
                Ok(Ok(room)) => {
                    return Begun::Now(Returning::new(at, Ok((room, chance)), pieces));
                }
                Err(error) => return Begun::Now(Returning::new(at, Err(error.into()), pieces)),
                Ok(Err(source)) => source,
            };
            match chance.step_back(waker) {
                Refused::Waits => {
                    pieces.iter().for_each(|it| it.cargo.unpin());
                    return Begun::Later;
                }
                Refused::Again => pieces.iter().for_each(|it| it.cargo.unpin()),
                Refused::Never => {
                    let no_room = no_room(at, shard, source);
                    return Begun::Now(Returning::new(at, Err(no_room.into()), pieces));
                }
            }
        }
    }
}

impl Returning {
    /// Of pieces that are pinned.
    fn new(
        at: ExchangeTurn,
        begun: Result<(Reservation, Chance), Unreturned>,
        pieces: &mut [&mut WaitingPiece],
    ) -> Returning {
        for kept in pieces {
            if let Some(in_use) = kept.cargo.take_pinned() {
                kept.charge = Charge::InUse(in_use);
            }
        }
        let charge = |(room, chance)| Charge::Returned(room, chance);
        Returning {
            at,
            is_asked: true,
            asked: Vec::new(),
            read: Vec::new(),
            next: 0,
            end: Some(begun.map(charge)),
        }
    }

    /// Takes what was read, and asks for more; whether all of it is here, or never will be.
    pub(crate) fn go_on(
        &mut self,
        returns: &Returns,
        pieces: &mut [&mut WaitingPiece],
        waker: &Waker,
    ) -> bool {
        let mut lost = None;
        let read = &mut self.read;
        self.asked.retain_mut(|(place, ticket)| {
            let Some(end) = ticket.take() else {
                return true;
            };
            match end {
                Ok(bytes) => read.push((*place, bytes)),
                Err(error) => lost = Some(error),
            }
            false
        });
        if let Some(error) = lost {
            self.end = Some(Err(error.into()));
        }
        if matches!(self.end, Some(Err(_))) {
            return true;
        }
        while let Some(kept) = pieces.get(self.next) {
            if let PieceData::Spilled(spilled, _) = &kept.cargo {
                match returns.files.give(ReadBack(spilled.clone()), waker) {
                    Ok(ticket) => self.asked.push((self.next, ticket)),
                    Err(_) => return false,
                }
            }
            self.next += 1;
        }
        if !self.asked.is_empty() {
            return false;
        }
        for (place, bytes) in self.read.drain(..) {
            pieces[place].cargo.returned(bytes);
        }
        true
    }

    /// Others may have its chance, and spill what of its pieces is in memory: it begins anew when it is asked for again.
    pub(crate) fn step_back<'p>(self, pieces: impl Iterator<Item = &'p mut WaitingPiece>) {
        // Before the chance is had: whoever gets it finds room then.
        pieces.for_each(WaitingPiece::park_again);
        drop(self);
    }

    /// The turn is gathered: how what was read counts.
    ///
    /// # Errors
    /// When it could not be.
    pub(crate) fn end(mut self) -> Result<Charge, Unreturned> {
        self.end.take().expect("it ends once")
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        // Nobody needs these reads any more.
        for (_, ticket) in &mut self.asked {
            let _ = ticket.cancel();
        }
    }
}
