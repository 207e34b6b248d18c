//! The benches' programs as bytes: what workers build of them is what the client runs. Workers make their data themselves.

use crate::benches;
use crate::{GraphName, Precision};
use brambling::program::Program;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a description begins with. It ends with the version of its encoding.
const MAGIC: &[u8] = b"brambling bench 1\n";

/// A bench's program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Described {
    Logistic {
        rows: usize,
        iterations: u64,
        partitions: u32,
    },
    KMeans {
        k: usize,
        rows: usize,
        iterations: u64,
        partitions: u32,
    },
    PageRank {
        graph: GraphName,
        dtype: Precision32,
        smoke: bool,
        iterations: u64,
        partitions: u32,
    },
    Barrier {
        shards: u32,
        turns: u64,
    },
    TaskRate {
        shards: u32,
        turns: u64,
        work: u64,
    },
    TaskGraph {
        pattern: String,
        width: usize,
        timesteps: usize,
    },
    Shuffle {
        words: usize,
        turns: u64,
    },
}

/// Whether ranks are singles.
pub(crate) type Precision32 = bool;

pub(crate) fn is_single(precision: Precision) -> Precision32 {
    precision == Precision::F32
}

pub(crate) fn precision(is_single: Precision32) -> Precision {
    if is_single {
        Precision::F32
    } else {
        Precision::F64
    }
}

impl Described {
    pub(crate) fn bytes(&self) -> Arc<[u8]> {
        let mut bytes = MAGIC.to_vec();
        serde_json::to_writer(&mut bytes, self).expect("names and numbers");
        bytes.into()
    }

    fn build(&self) -> Result<Program, String> {
        match *self {
            Described::Logistic {
                rows,
                iterations,
                partitions,
            } => benches::logistic::program(rows, iterations, partitions),
            Described::KMeans {
                k,
                rows,
                iterations,
                partitions,
            } => benches::kmeans::program(k, rows, iterations, partitions),
            Described::PageRank {
                graph,
                dtype,
                smoke,
                iterations,
                partitions,
            } => benches::pagerank::program(graph, precision(dtype), smoke, iterations, partitions),
            Described::Barrier { shards, turns } => Ok(benches::barrier::program(shards, turns).0),
            Described::TaskRate {
                shards,
                turns,
                work,
            } => Ok(benches::task_rate::program(shards, turns, work).0),
            Described::TaskGraph {
                ref pattern,
                width,
                timesteps,
            } => benches::task_graph::program(pattern, width, timesteps),
            Described::Shuffle { words, turns } => Ok(benches::shuffle::program(words, turns).0),
        }
    }
}

/// The program that bytes describe; nothing when they describe no bench's.
pub fn program(bytes: &[u8]) -> Option<Result<Program, String>> {
    let text = bytes.strip_prefix(MAGIC)?;
    let described = serde_json::from_slice::<Described>(text);
    Some(match described {
        Ok(described) => described.build(),
        Err(error) => Err(format!("a bench's program that cannot be read: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_is_built() {
        let described = Described::Barrier {
            shards: 3,
            turns: 7,
        };
        let program = program(&described.bytes()).unwrap().unwrap();
        assert_eq!(program.spec().name, "barrier");
        assert!(super::program(b"something else").is_none());
        let broken = super::program(b"brambling bench 1\n{").unwrap();
        assert!(broken.unwrap_err().contains("cannot be read"));
    }
}
