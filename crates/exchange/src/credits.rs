//! Credit: how many turns of an exchange are open at a destination.
//!
//! A scatter of turn t waits until every destination has retired its gather of turn t − K, also in turns
//! in which it sends nothing. The wait points backwards in program order only, so it cannot deadlock, and
//! what waits at a destination is bounded by K turns.

use brambling_memory::mutants;
use brambling_program::{ExchangeId, Turn};
use std::ops::Range;

/// A credit for something that the program does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("exchange {exchange} has no destinations {destinations:?}")]
pub struct UnknownDestination {
    /// The exchange named.
    pub exchange: ExchangeId,
    /// The destinations named.
    pub destinations: Range<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Ledger {
    exchange: ExchangeId,
    /// By destination: the first turn that it has not retired.
    retired: Vec<Turn>,
    /// The least of them, and how many destinations are there: a scatter asks for all at once.
    least: Turn,
    at_least: u32,
}

/// Whether a turn may be open at a destination that has retired so many, where so many are open at a time.
#[inline]
pub fn fits(turn: Turn, retired: Turn, open_turns: u64) -> bool {
    let end = retired.saturating_add(open_turns);
    turn < end || (turn == end && mutants::is_on("credit-opens-one-too-many"))
}

/// What this worker knows about the turns that destinations have retired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credits {
    /// Ascending by exchange.
    ledgers: Vec<Ledger>,
}

impl Credits {
    /// Nothing retired yet: `exchanges` with their numbers of destinations.
    pub fn new(exchanges: impl IntoIterator<Item = (ExchangeId, u32)>) -> Credits {
        let ledger = |(exchange, destinations): (ExchangeId, u32)| Ledger {
            exchange,
            retired: vec![0; destinations as usize],
            least: 0,
            at_least: destinations,
        };
        let mut ledgers: Vec<Ledger> = exchanges.into_iter().map(ledger).collect();
        ledgers.sort_by_key(|ledger| ledger.exchange);
        Credits { ledgers }
    }

    /// The first turn that a destination has not retired.
    ///
    /// # Panics
    /// If the program has no such exchange or destination.
    pub fn retired_by(&self, exchange: ExchangeId, destination: u32) -> Turn {
        self.ledger(exchange).retired[destination as usize]
    }

    /// The first turn that the slowest destination has not retired.
    ///
    /// # Panics
    /// If the program has no such exchange.
    pub fn lowest_open(&self, exchange: ExchangeId) -> Turn {
        self.ledger(exchange).least
    }

    /// Runs of destinations that have retired as many turns, where they have any: the run, and the first turn that it has not retired.
    ///
    /// # Panics
    /// If the program has no such exchange.
    pub fn retired(&self, exchange: ExchangeId) -> Vec<(Range<u32>, Turn)> {
        let mut runs: Vec<(Range<u32>, Turn)> = Vec::new();
        for (destination, &turns) in (0..).zip(&self.ledger(exchange).retired) {
            match runs.last_mut() {
                Some((run, same)) if run.end == destination && *same == turns => run.end += 1,
                _ if turns > 0 => runs.push((destination..destination + 1, turns)),
                _ => {}
            }
        }
        runs
    }

    /// Destinations have retired all turns before `turns`. Returns whether the slowest destination moved
    /// on, so that scatters may go.
    ///
    /// Insensitive to order and repetition. What is refused changes nothing.
    pub fn on_credit(
        &mut self,
        exchange: ExchangeId,
        destinations: Range<u32>,
        turns: Turn,
    ) -> Result<bool, UnknownDestination> {
        let place = self
            .ledgers
            .binary_search_by_key(&exchange, |ledger| ledger.exchange);
        let ledger = place.ok().map(|place| &mut self.ledgers[place]);
        let span = destinations.start as usize..destinations.end as usize;
        // Checked before anything changes: the range comes from other workers.
        let Some(ledger) = ledger.filter(|ledger| ledger.retired.get(span.clone()).is_some())
        else {
            return Err(UnknownDestination {
                exchange,
                destinations,
            });
        };
        let mut slowest_moved = 0;
        for retired in &mut ledger.retired[span] {
            if turns > *retired || mutants::is_on("credit-goes-back") {
                // The least is looked for only when the last of the slowest moves: else each credit
                // would cost a pass.
                slowest_moved += u32::from(*retired == ledger.least);
                *retired = turns;
            }
        }
        ledger.at_least = ledger.at_least.saturating_sub(slowest_moved);
        if slowest_moved == 0 || ledger.at_least > 0 {
            return Ok(false);
        }
        ledger.least = ledger.retired.iter().copied().min().unwrap_or(ledger.least);
        ledger.at_least = ledger
            .retired
            .iter()
            .filter(|&&turn| turn == ledger.least)
            .count() as u32;
        Ok(true)
    }

    fn ledger(&self, exchange: ExchangeId) -> &Ledger {
        let place = self
            .ledgers
            .binary_search_by_key(&exchange, |ledger| ledger.exchange);
        &self.ledgers[place.expect("an exchange of this program")]
    }
}
