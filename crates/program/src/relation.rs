//! Who may send to whom in an exchange.

use crate::Turn;
use serde::{Deserialize, Serialize};

/// Who may send to whom. Sources and destinations are partition indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// One source partition sends to every destination.
    OneToAll,
    /// Every source sends to one destination partition.
    AllToOne,
    /// Every source may send to every destination.
    AllToAll,
    /// Partition i sends to i + offset, for each offset; beyond the ends either around or to nobody.
    Offsets {
        /// The offsets, ascending.
        offsets: Vec<i64>,
        /// Whether the ends are joined.
        wrap: bool,
    },
    /// Tables over (turn, destination): first each of the prologue once, then the period again and again.
    Tables {
        /// Turns 0, 1, …
        prologue: Vec<RelationTable>,
        /// The turns after that; must not be empty.
        period: Vec<RelationTable>,
    },
}

/// For each destination, its sources in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RelationTable {
    /// `sources[destination]`.
    pub sources: Vec<Vec<u32>>,
}

/// A relation with partition counts known: look-ups are array accesses.
#[derive(Clone, Debug)]
pub struct Links {
    sources: u32,
    destinations: u32,
    phases: Phases,
}

#[derive(Clone, Debug)]
enum Phases {
    Dense,
    Sparse { prologue: usize, tables: Vec<Phase> },
}

/// One turn of a sparse relation, both ways.
#[derive(Clone, Debug, Default)]
struct Phase {
    /// Of each destination, its sources.
    sources: Vec<Vec<u32>>,
    /// Of each source, its destinations, and its place among that destination's sources.
    destinations: Vec<Vec<(u32, u32)>>,
}

impl Relation {
    /// Checks the relation against the partition counts, as [`Relation::link`] does. Only tables take longer the more they hold.
    ///
    /// # Errors
    /// Says what does not fit, and how to mend it.
    pub fn fits(&self, sources: u32, destinations: u32) -> Result<(), String> {
        match self {
            Relation::OneToAll if sources != 1 => Err(format!(
                "one-to-all needs a source of 1 partition, not {sources}; reduce it first"
            )),
            Relation::AllToOne if destinations != 1 => Err(format!(
                "all-to-one needs a destination of 1 partition, not {destinations}"
            )),
            Relation::Offsets { .. } if sources != destinations => Err(format!(
                "neighbours need equal partition counts, not {sources} and {destinations}"
            )),
            // Only a pass over all tables shows whether they fit.
            Relation::Tables { .. } => self.link(sources, destinations).map(|_| ()),
            Relation::OneToAll
            | Relation::AllToOne
            | Relation::AllToAll
            | Relation::Offsets { .. } => Ok(()),
        }
    }

    /// Checks the relation against the partition counts and prepares look-ups.
    ///
    /// # Errors
    /// Says what does not fit, and how to mend it.
    pub fn link(&self, sources: u32, destinations: u32) -> Result<Links, String> {
        if !matches!(self, Relation::Tables { .. }) {
            self.fits(sources, destinations)?;
        }
        let phases = match self {
            Relation::OneToAll | Relation::AllToOne | Relation::AllToAll => Phases::Dense,
            Relation::Offsets { offsets, wrap } => {
                let table = offsets_table(offsets, *wrap, sources);
                Phases::Sparse {
                    prologue: 0,
                    tables: vec![Phase::new(&table, sources, destinations)?],
                }
            }
            Relation::Tables { period, .. } if period.is_empty() => {
                return Err("the period has no table; give at least one".to_owned());
            }
            Relation::Tables { prologue, period } => Phases::Sparse {
                prologue: prologue.len(),
                tables: prologue
                    .iter()
                    .chain(period)
                    .map(|table| Phase::new(table, sources, destinations))
                    .collect::<Result<_, _>>()?,
            },
        };
        Ok(Links {
            sources,
            destinations,
            phases,
        })
    }
}

fn offsets_table(offsets: &[i64], wrap: bool, partitions: u32) -> RelationTable {
    let count = i64::from(partitions);
    let of = |destination: i64| {
        let mut list: Vec<u32> = offsets
            .iter()
            .map(|offset| destination - offset)
            .map(|source| {
                if wrap {
                    // `%` would be negative for a source before the first.
                    source.rem_euclid(count)
                } else {
                    source
                }
            })
            .filter(|source| (0..count).contains(source))
            .map(|source| source as u32)
            .collect();
        list.sort_unstable();
        // Where the ends are joined two offsets may lead to one neighbour, which sends once.
        list.dedup();
        list
    };
    RelationTable {
        sources: (0..count).map(of).collect(),
    }
}

impl Phase {
    fn new(table: &RelationTable, sources: u32, destinations: u32) -> Result<Phase, String> {
        if table.sources.len() != destinations as usize {
            return Err(format!(
                "a table lists {} destinations, not {destinations}",
                table.sources.len()
            ));
        }
        let mut reverse = vec![Vec::new(); sources as usize];
        for (destination, list) in table.sources.iter().enumerate() {
            // Sources must ascend: pieces are merged in the order of this list, and that has to be
            // source order.
            if !list.is_sorted_by(|a, b| a < b) {
                return Err(format!(
                    "the sources of destination {destination} must ascend without repeats"
                ));
            }
            for (ordinal, &source) in list.iter().enumerate() {
                reverse
                    .get_mut(source as usize)
                    .ok_or_else(|| {
                        format!("destination {destination} lists source {source} of only {sources}")
                    })?
                    // Kept with its ordinal, so that a source finds its slot without a search.
                    .push((destination as u32, ordinal as u32));
            }
        }
        Ok(Phase {
            sources: table.sources.clone(),
            destinations: reverse,
        })
    }
}

impl Links {
    /// Partitions that send.
    #[inline]
    pub fn source_count(&self) -> u32 {
        self.sources
    }

    /// Partitions that receive.
    #[inline]
    pub fn destination_count(&self) -> u32 {
        self.destinations
    }

    /// Whether every source is related to every destination at all turns.
    #[inline]
    pub fn is_dense(&self) -> bool {
        matches!(self.phases, Phases::Dense)
    }

    /// How many tables there are: one for each turn of the prologue and of the period.
    pub fn phase_count(&self) -> usize {
        match &self.phases {
            Phases::Dense => 1,
            Phases::Sparse { tables, .. } => tables.len(),
        }
    }

    /// One turn of the relation: look it up once a task, not once a piece.
    #[inline]
    pub fn at(&self, turn: Turn) -> LinksAt<'_> {
        let (index, phase) = match &self.phases {
            Phases::Dense => (0, None),
            Phases::Sparse { prologue, tables } => {
                let turn = turn as usize;
                let period = tables.len() - prologue;
                let index = if turn < *prologue {
                    turn
                // The usual case without a division.
                } else if period == 1 {
                    *prologue
                } else {
                    prologue + (turn - prologue) % period
                };
                (index, Some(&tables[index]))
            }
        };
        LinksAt {
            sources: self.sources,
            destinations: self.destinations,
            index,
            phase,
        }
    }

    /// How many sources a destination hears from at a turn.
    #[inline]
    pub fn fan_in(&self, turn: Turn, destination: u32) -> u32 {
        self.at(turn).fan_in(destination)
    }

    /// How many destinations a source is related to at a turn.
    #[inline]
    pub fn fan_out(&self, turn: Turn, source: u32) -> u32 {
        self.at(turn).fan_out(source)
    }

    /// As [`LinksAt::source`].
    pub fn source(&self, turn: Turn, destination: u32, ordinal: u32) -> u32 {
        self.at(turn).source(destination, ordinal)
    }

    /// As [`LinksAt::ordinal`].
    pub fn ordinal(&self, turn: Turn, source: u32, destination: u32) -> Option<u32> {
        self.at(turn).ordinal(source, destination)
    }

    /// As [`LinksAt::destination`].
    pub fn destination(&self, turn: Turn, source: u32, place: u32) -> (u32, u32) {
        self.at(turn).destination(source, place)
    }

    /// The most sources that any destination ever hears from.
    pub fn fan_in_max(&self) -> u32 {
        match &self.phases {
            Phases::Dense => self.sources,
            Phases::Sparse { tables, .. } => tables
                .iter()
                .flat_map(|phase| &phase.sources)
                .map(|list| list.len() as u32)
                .max()
                .unwrap_or(0),
        }
    }
}

/// A relation at one turn.
#[derive(Clone, Copy, Debug)]
pub struct LinksAt<'a> {
    sources: u32,
    destinations: u32,
    index: usize,
    phase: Option<&'a Phase>,
}

impl<'a> LinksAt<'a> {
    /// Which table holds: 0 to [`Links::phase_count`].
    #[inline]
    pub fn phase(self) -> usize {
        self.index
    }

    /// The sources of a destination, ascending; none when every source is one.
    #[inline]
    pub fn sources(self, destination: u32) -> Option<&'a [u32]> {
        self.phase
            .map(|phase| &phase.sources[destination as usize][..])
    }

    /// How many sources a destination hears from.
    #[inline]
    pub fn fan_in(self, destination: u32) -> u32 {
        match self.phase {
            None => self.sources,
            Some(phase) => phase.sources[destination as usize].len() as u32,
        }
    }

    /// The source at a place among a destination's sources.
    #[inline]
    pub fn source(self, destination: u32, ordinal: u32) -> u32 {
        match self.phase {
            None => ordinal,
            Some(phase) => phase.sources[destination as usize][ordinal as usize],
        }
    }

    /// The place of a source among a destination's sources; none when they are not related at this turn.
    #[inline]
    pub fn ordinal(self, source: u32, destination: u32) -> Option<u32> {
        match self.phase {
            None => (destination < self.destinations).then_some(source),
            Some(phase) => {
                let list = &phase.destinations[source as usize];
                list.iter()
                    .find(|(to, _)| *to == destination)
                    .map(|(_, ordinal)| *ordinal)
            }
        }
    }

    /// How many destinations a source is related to.
    #[inline]
    pub fn fan_out(self, source: u32) -> u32 {
        match self.phase {
            None => self.destinations,
            Some(phase) => phase.destinations[source as usize].len() as u32,
        }
    }

    /// The destination at a place among a source's destinations, and the source's place among its sources.
    #[inline]
    pub fn destination(self, source: u32, place: u32) -> (u32, u32) {
        match self.phase {
            None => (place, source),
            Some(phase) => phase.destinations[source as usize][place as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_agree_at_every_turn() {
        let stencil = Relation::Offsets {
            offsets: vec![-1, 0, 1],
            wrap: false,
        };
        let odd = RelationTable {
            sources: vec![vec![2], vec![], vec![0, 1, 2]],
        };
        let even = RelationTable {
            sources: vec![vec![], vec![0, 2], vec![1]],
        };
        let tables = Relation::Tables {
            prologue: vec![odd.clone()],
            period: vec![even, odd],
        };
        for links in [
            stencil.link(3, 3).unwrap(),
            tables.link(3, 3).unwrap(),
            Relation::AllToAll.link(4, 3).unwrap(),
        ] {
            for turn in 0..7 {
                for destination in 0..links.destination_count() {
                    for ordinal in 0..links.fan_in(turn, destination) {
                        let source = links.source(turn, destination, ordinal);
                        assert_eq!(links.ordinal(turn, source, destination), Some(ordinal));
                    }
                }
                let sent: u32 = (0..links.source_count())
                    .map(|source| links.fan_out(turn, source))
                    .sum();
                let heard: u32 = (0..links.destination_count())
                    .map(|to| links.fan_in(turn, to))
                    .sum();
                assert_eq!(sent, heard);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(
            Relation::OneToAll
                .link(2, 3)
                .unwrap_err()
                .contains("1 partition, not 2")
        );
        assert!(
            Relation::AllToOne
                .link(2, 3)
                .unwrap_err()
                .contains("1 partition, not 3")
        );
        assert!(
            Relation::Offsets {
                offsets: vec![1],
                wrap: true
            }
            .link(2, 3)
            .is_err()
        );
        let table = |sources: Vec<Vec<u32>>| Relation::Tables {
            prologue: vec![],
            period: vec![RelationTable { sources }],
        };
        assert!(
            table(vec![vec![0]])
                .link(1, 2)
                .unwrap_err()
                .contains("1 destinations, not 2")
        );
        assert!(
            table(vec![vec![1, 0]])
                .link(2, 1)
                .unwrap_err()
                .contains("ascend")
        );
        assert!(
            table(vec![vec![5]])
                .link(2, 1)
                .unwrap_err()
                .contains("source 5 of only 2")
        );
        assert!(
            Relation::Tables {
                prologue: vec![],
                period: vec![]
            }
            .link(1, 1)
            .is_err()
        );
    }
}
