//! Large pieces of which some parts have come: where the parts lie, and where the next ones are to lie.

use super::Remote;
use crate::assembly::Assembly;
use crate::executor::job::Job;
use crate::waiting::ExchangeTurn;
use brambling_exchange::read_target::ReadTarget;
use brambling_memory::held::{self, Held};
use brambling_program::{ExchangeId, Turn};
use brambling_protocol::frame::{DataHead, FrameTail};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// So many pieces whose parts come are remembered before those are forgotten that are no more.
const SWEPT_AT: usize = 64;

/// Whose a piece is: the exchange and its turn, the source, and the first of those who get it alike.
type PieceKey = (ExchangeId, Turn, u64, u32);

/// Large pieces of which some parts have come; they are there for as long as anybody has a part.
pub(super) struct Assemblies {
    pieces: BTreeMap<PieceKey, Weak<Assembly>>,
    /// How many there may be before those are forgotten that are no more.
    swept_at: usize,
}

impl Default for Assemblies {
    fn default() -> Assemblies {
        Assemblies {
            pieces: BTreeMap::new(),
            swept_at: SWEPT_AT,
        }
    }
}

impl Assemblies {
    fn begin(&mut self, key: PieceKey, assembly: Arc<Assembly>) -> Arc<Assembly> {
        if self.pieces.len() >= self.swept_at {
            self.pieces.retain(|_, piece| piece.strong_count() > 0);
            self.swept_at = SWEPT_AT.max(2 * self.pieces.len());
        }
        self.pieces.insert(key, Arc::downgrade(&assembly));
        assembly
    }

    fn get(&self, key: PieceKey) -> Option<Arc<Assembly>> {
        self.pieces.get(&key)?.upgrade()
    }

    /// What a destination may get of a source: of those that begin before it the last one. Whose it is shows when it is taken.
    fn of(
        &self,
        (exchange, turn): (ExchangeId, Turn),
        source: u32,
        destination: u32,
    ) -> Option<Arc<Assembly>> {
        let key = |first| (exchange, turn, u64::from(source), first);
        let (_, piece) = self.pieces.range(key(0)..=key(destination)).next_back()?;
        piece.upgrade()
    }
}

impl Remote {
    /// What a destination may get of a source, as far as it is being read to where it will lie.
    pub(in crate::executor) fn assembly(
        &self,
        at: ExchangeTurn,
        source: u32,
        destination: u32,
    ) -> Option<Arc<Assembly>> {
        self.assemblies().of(at, source, destination)
    }

    fn assemblies(&self) -> Held<'_, Assemblies> {
        held::lock(&self.assemblies)
    }

    /// Where the last bytes of a frame are to lie that has begun: in the value of a large piece for shards here.
    pub(super) fn place(&self, job: &Job, begun: &[u8]) -> Option<ReadTarget> {
        let ending = FrameTail::of(begun)?;
        let DataHead {
            exchange,
            turn,
            group,
            ..
        } = ending.head;
        let ends = job.plan().exchanges.get(exchange.index())?.as_ref()?;
        let destinations = ending.first..ending.end;
        let count = *job.plan().counts.get(group.index())?;
        let is_here = |index| {
            let number = job.number(group, index);
            job.owner(number).is_some()
        };
        let spares = &self.spares[exchange.index()];
        let exchanges = &job.plan().program.spec().exchanges;
        // Not for streams: each of their chunks is a piece by itself, and the key below tells
        // pieces of one turn apart by their source alone.
        let is_sound = !exchanges[exchange.index()].streamed
            && group == ends.destination
            && ending.source.level == 0
            && ending.end <= count
            && (destinations.len() == 1 || spares.are_shared())
            && destinations.clone().all(is_here);
        if !is_sound || !self.reads_in_place {
            return None;
        }
        let key = (exchange, turn, ending.source.index, destinations.start);
        let assembly = match ending.before {
            Some(head) => {
                let begun = Assembly::begin(spares, head)?;
                self.assemblies().begin(key, begun)
            }
            None => self.assemblies().get(key)?,
        };
        let start = match ending.last {
            true => assembly.bytes().checked_sub(ending.bytes)?,
            false => (ending.chunk as usize).checked_sub(1)? * ending.bytes,
        };
        let region = assembly.region(start..start + ending.bytes)?;
        Some(ReadTarget {
            at: ending.at,
            room: Box::new(region),
        })
    }
}
