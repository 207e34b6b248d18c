//! What is refused when a program is built, and the groups that fall out of it.

use crate::{
    BlockId, BuildError, Count, DatasetId, ExchangeId, GroupId, ProgramNode, Spec, StageId,
    StageKind, StageSpec, StreamSpec, Use,
};
use std::collections::BTreeMap;

/// A set of datasets that some stage uses together: same partition count, same index always together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its datasets, ascending; a dataset's place here is its cell's index in a shard.
    pub datasets: Vec<DatasetId>,
    /// Their partition count.
    pub count: Count,
}

/// What validation finds out.
#[derive(Clone, Debug)]
pub struct Structure {
    /// The groups.
    pub groups: Vec<Group>,
    /// Group of each dataset.
    pub group_of_dataset: Vec<GroupId>,
    /// Group of each stage.
    pub group_of_stage: Vec<GroupId>,
    /// Scatter and gather of each exchange; none for one that is never used.
    pub exchanges: Vec<Option<(StageId, StageId)>>,
}

pub(crate) fn validate(spec: &Spec) -> Result<Structure, BuildError> {
    for stage in &spec.stages {
        check_stage(spec, stage)?;
    }
    check_streams(spec)?;
    // Paired before groups are made: the check of relations needs both ends.
    let exchanges = pair_exchanges(spec)?;
    check_signals(spec)?;
    let structure = group(spec, exchanges)?;
    check_relations(spec, &structure)?;
    Ok(structure)
}

fn describe(spec: &Spec, count: Count) -> String {
    match count {
        Count::Fixed(1) => "1 partition".to_owned(),
        Count::Fixed(count) => format!("{count} partitions"),
        Count::Symbol(symbol) => format!("`{}` partitions", spec.symbols[symbol as usize]),
    }
}

/// Uses beyond which those before one are not searched one by one.
const FEW_USES: usize = 16;

pub(crate) fn check_stage(spec: &Spec, stage: &StageSpec) -> Result<(), BuildError> {
    let name = |dataset: DatasetId| spec.datasets[dataset.index()].name.clone();
    let Some(&(first, _)) = stage.uses.first() else {
        return Err(BuildError::NoDataset {
            stage: stage.name.clone(),
        });
    };
    let mut seen = BTreeMap::new();
    for (place, &(dataset, how)) in stage.uses.iter().enumerate() {
        // A list is quicker while it is short, and stages with thousands of datasets would take its
        // square.
        let before = if stage.uses.len() > FEW_USES {
            seen.insert(dataset, how)
        } else {
            let mut before = stage.uses[..place].iter();
            before.find(|(it, _)| *it == dataset).map(|(_, how)| *how)
        };
        if let Some(before) = before {
            let (stage, dataset) = (stage.name.clone(), name(dataset));
            return Err(if (before == Use::Read) != (how == Use::Read) {
                BuildError::ReadAndWrite { stage, dataset }
            } else {
                BuildError::NamedTwice { stage, dataset }
            });
        }
        if how != Use::Read && matches!(stage.kind, StageKind::Scatter(_) | StageKind::Signal) {
            return Err(BuildError::ScatterWrites {
                stage: stage.name.clone(),
                dataset: name(dataset),
            });
        }
        let count = spec.datasets[dataset.index()].count;
        let first_count = spec.datasets[first.index()].count;
        if stage.kind == StageKind::Signal && count != Count::Fixed(1) {
            return Err(BuildError::SignalPartitions {
                stage: stage.name.clone(),
                dataset: name(dataset),
                count: describe(spec, count),
            });
        }
        if count != first_count {
            return Err(BuildError::PartitionCounts {
                stage: stage.name.clone(),
                first: name(first),
                first_count: describe(spec, first_count),
                second: name(dataset),
                second_count: describe(spec, count),
            });
        }
    }
    Ok(())
}

/// Streamed exchanges have streaming stages at their ends, and these have no others.
fn check_streams(spec: &Spec) -> Result<(), BuildError> {
    for (id, stage) in (0..).map(StageId).zip(&spec.stages) {
        let streams = matches!(stage.kind, StageKind::Stream(_));
        let of = |exchange: ExchangeId| &spec.exchanges[exchange.index()];
        let mut ends = spec.takes_from(id).iter().copied().chain(spec.sends_to(id));
        if let Some(exchange) = ends.find(|it| of(*it).streamed != streams) {
            let problem = match streams {
                true => {
                    "a streaming stage takes and sends by chunks, and the exchange is of whole pieces; make it with streamed"
                }
                false => {
                    "the exchange is streamed, so both of its ends are streaming stages; declare the stage with stream, or make the exchange with exchange"
                }
            };
            return Err(BuildError::Streamed {
                stage: stage.name.clone(),
                exchange: of(exchange).name.clone(),
                problem,
            });
        }
        // A chunk is taken once, so a task that takes some cannot be begun anew where its shard
        // arrives.
        if let StageKind::Stream(stream) = stage.kind
            && let StreamSpec {
                inputs,
                repeatable: true,
                ..
            } = &spec.streams[stream.index()]
            && let Some(input) = inputs.first()
        {
            return Err(BuildError::NotRepeatable {
                stage: stage.name.clone(),
                exchange: of(*input).name.clone(),
            });
        }
    }
    Ok(())
}

/// The stages at one end of an exchange: the first of them with its place in its block, and how many there are.
#[derive(Clone, Copy, Default)]
struct End {
    first: Option<(StageId, usize)>,
    count: u32,
}

impl End {
    fn add(&mut self, stage: StageId, place: usize) {
        self.first.get_or_insert((stage, place));
        self.count += 1;
    }
}

fn pair_exchanges(spec: &Spec) -> Result<Vec<Option<(StageId, StageId)>>, BuildError> {
    let mut found = vec![(End::default(), End::default()); spec.exchanges.len()];
    for block in &spec.blocks {
        for (place, node) in block.iter().enumerate() {
            let ProgramNode::Stage(stage) = *node else {
                continue;
            };
            if let Some(exchange) = spec.sends_to(stage) {
                found[exchange.index()].0.add(stage, place);
            }
            for exchange in spec.takes_from(stage) {
                found[exchange.index()].1.add(stage, place);
            }
        }
    }
    let block = |stage: StageId| spec.stages[stage.index()].block;
    let pair = |(id, (scatters, gathers)): (usize, (End, End))| {
        let problem = match (scatters.first, gathers.first) {
            (None, None) => return Ok(None),
            (None, _) => "it has a gather but no scatter",
            (_, None) => "it has a scatter but no gather",
            _ if scatters.count > 1 => "it has more than one scatter",
            _ if gathers.count > 1 => "it has more than one gather",
            // In one block both ends run equally often, so each turn of one has its turn of the
            // other.
            (Some((scatter, _)), Some((gather, _))) if block(scatter) != block(gather) => {
                "its scatter and its gather stand in different blocks"
            }
            (Some((_, first)), Some((_, second))) if first == second => {
                "one stage is both of its ends"
            }
            (Some((_, first)), Some((_, second))) if first > second => {
                "its gather stands before its scatter"
            }
            (Some((scatter, _)), Some((gather, _))) => return Ok(Some((scatter, gather))),
        };
        Err(BuildError::Exchange {
            exchange: spec.exchanges[id].name.clone(),
            problem,
        })
    };
    found.into_iter().enumerate().map(pair).collect()
}

/// The signals given so far.
struct Given {
    /// By stage.
    is_given: Vec<bool>,
    list: Vec<StageId>,
}

fn check_signals(spec: &Spec) -> Result<(), BuildError> {
    let mut given = Given {
        is_given: vec![false; spec.stages.len()],
        list: Vec::new(),
    };
    check_signals_of(spec, Spec::ROOT, &mut given)
}

/// A branch may test a signal given before it in the same or an enclosing block.
fn check_signals_of(spec: &Spec, block: BlockId, given: &mut Given) -> Result<(), BuildError> {
    let outer = given.list.len();
    for node in &spec.blocks[block.index()] {
        match *node {
            ProgramNode::Stage(stage) if spec.stages[stage.index()].kind == StageKind::Signal => {
                given.is_given[stage.index()] = true;
                given.list.push(stage);
            }
            ProgramNode::Stage(_) => {}
            ProgramNode::Repeat { body, .. } | ProgramNode::While { body, .. } => {
                check_signals_of(spec, body, given)?
            }
            ProgramNode::Branch {
                signal,
                then,
                otherwise,
            } => {
                if !given.is_given[signal.index()] {
                    return Err(BuildError::SignalNotBefore {
                        signal: spec.stages[signal.index()].name.clone(),
                    });
                }
                check_signals_of(spec, then, given)?;
                check_signals_of(spec, otherwise, given)?;
            }
        }
    }
    for stage in given.list.drain(outer..) {
        // A signal of an inner block may never be decided: nobody outside may test it.
        given.is_given[stage.index()] = false;
    }
    Ok(())
}

/// Union-find over stages: datasets used together live together (invariant 2).
fn group(spec: &Spec, exchanges: Vec<Option<(StageId, StageId)>>) -> Result<Structure, BuildError> {
    let mut parent: Vec<usize> = (0..spec.datasets.len()).collect();
    fn root(parent: &mut [usize], mut at: usize) -> usize {
        while parent[at] != at {
            // Halving the path on the way keeps later look-ups short.
            parent[at] = parent[parent[at]];
            at = parent[at];
        }
        at
    }
    for stage in &spec.stages {
        for (dataset, _) in &stage.uses[1..] {
            if brambling_memory::mutants::is_on("groups-split") {
                continue;
            }
            let first = root(&mut parent, stage.uses[0].0.index());
            let other = root(&mut parent, dataset.index());
            let (low, high) = (first.min(other), first.max(other));
            // The least dataset is the root, whatever order the stages come in.
            parent[high] = low;
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of_root = vec![None; spec.datasets.len()];
    let mut group_of_dataset = Vec::new();
    for (index, dataset) in spec.datasets.iter().enumerate() {
        let root = root(&mut parent, index);
        let group = *group_of_root[root].get_or_insert_with(|| {
            groups.push(Group {
                datasets: Vec::new(),
                count: dataset.count,
            });
            GroupId(groups.len() as u32 - 1)
        });
        groups[group.index()].datasets.push(DatasetId(index as u32));
        group_of_dataset.push(group);
    }
    let group_of_stage = spec
        .stages
        .iter()
        .map(|stage| group_of_dataset[stage.uses[0].0.index()])
        .collect();
    Ok(Structure {
        groups,
        group_of_dataset,
        group_of_stage,
        exchanges,
    })
}

fn check_relations(spec: &Spec, structure: &Structure) -> Result<(), BuildError> {
    for (id, pair) in structure.exchanges.iter().enumerate() {
        let Some((scatter, gather)) = *pair else {
            continue;
        };
        let count = |stage: StageId| {
            structure.groups[structure.group_of_stage[stage.index()].index()].count
        };
        // Symbols are checked when they are bound.
        if let (Count::Fixed(from), Count::Fixed(to)) = (count(scatter), count(gather)) {
            fits(spec, ExchangeId(id as u32), from, to)?;
        }
    }
    Ok(())
}

pub(crate) fn fits(
    spec: &Spec,
    exchange: ExchangeId,
    from: u32,
    to: u32,
) -> Result<(), BuildError> {
    let exchange = &spec.exchanges[exchange.index()];
    exchange
        .relation
        .fits(from, to)
        .map_err(|problem| BuildError::Relation {
            exchange: exchange.name.clone(),
            problem,
        })
}

pub(crate) fn link(
    spec: &Spec,
    exchange: ExchangeId,
    from: u32,
    to: u32,
) -> Result<crate::Links, BuildError> {
    let exchange = &spec.exchanges[exchange.index()];
    exchange
        .relation
        .link(from, to)
        .map_err(|problem| BuildError::Relation {
            exchange: exchange.name.clone(),
            problem,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelId, Program};

    #[test]
    fn a_dataset_named_twice_is_found_among_few_and_among_many() {
        let mut p = Program::new("uses");
        let all: Vec<_> = (0..100)
            .map(|at| p.dataset::<u64>(format!("d{at}"), 1).id())
            .collect();
        for count in [2, FEW_USES, FEW_USES + 1, 100] {
            let mut stage = StageSpec {
                name: "many".into(),
                kind: StageKind::Compute,
                uses: all[..count].iter().map(|it| (*it, Use::Read)).collect(),
                cells: false,
                kernel: KernelId(0),
                block: Spec::ROOT,
            };
            assert_eq!(check_stage(&p.spec, &stage), Ok(()));
            let (stage_name, dataset) = ("many".to_owned(), "d1".to_owned());
            stage.uses[count - 1] = (all[1], Use::Update);
            if count > 2 {
                let error = BuildError::ReadAndWrite {
                    stage: stage_name.clone(),
                    dataset: dataset.clone(),
                };
                assert_eq!(check_stage(&p.spec, &stage), Err(error));
            }
            stage.uses[0] = (all[1], Use::Update);
            let error = match count {
                2 => BuildError::NamedTwice {
                    stage: stage_name,
                    dataset,
                },
                _ => BuildError::ReadAndWrite {
                    stage: stage_name,
                    dataset,
                },
            };
            assert_eq!(check_stage(&p.spec, &stage), Err(error));
        }
    }
}
