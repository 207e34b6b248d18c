//! What is refused when a program is built, and the groups that fall out of it.

use crate::{
    BlockId, BuildError, Count, DatasetId, ExchangeId, GroupId, Node, Spec, StageId, StageKind,
    StageSpec, Use,
};

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
    let exchanges = pair_exchanges(spec)?;
    check_signals(spec, Spec::ROOT, &mut Vec::new())?;
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

fn check_stage(spec: &Spec, stage: &StageSpec) -> Result<(), BuildError> {
    let name = |dataset: DatasetId| spec.datasets[dataset.index()].name.clone();
    let Some(&(first, _)) = stage.uses.first() else {
        return Err(BuildError::NoDataset {
            stage: stage.name.clone(),
        });
    };
    for (place, &(dataset, how)) in stage.uses.iter().enumerate() {
        if let Some(&(_, before)) = stage.uses[..place]
            .iter()
            .find(|(other, _)| *other == dataset)
        {
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

fn pair_exchanges(spec: &Spec) -> Result<Vec<Option<(StageId, StageId)>>, BuildError> {
    let mut found: Vec<(Vec<StageId>, Vec<StageId>)> =
        vec![Default::default(); spec.exchanges.len()];
    for block in &spec.blocks {
        for node in block {
            let Node::Stage(stage) = *node else { continue };
            match spec.stages[stage.index()].kind {
                StageKind::Scatter(exchange) => found[exchange.index()].0.push(stage),
                StageKind::Gather(exchange) => found[exchange.index()].1.push(stage),
                StageKind::Compute | StageKind::Signal => {}
            }
        }
    }
    let pair = |(id, (scatters, gathers)): (usize, (Vec<StageId>, Vec<StageId>))| {
        let problem = match (&scatters[..], &gathers[..]) {
            ([], []) => return Ok(None),
            ([], _) => "it has a gather but no scatter",
            (_, []) => "it has a scatter but no gather",
            (&[scatter], &[gather]) => {
                let (from, to) = (&spec.stages[scatter.index()], &spec.stages[gather.index()]);
                if from.block != to.block {
                    "its scatter and its gather stand in different blocks"
                } else if !stands_before(spec, from.block, scatter, gather) {
                    "its gather stands before its scatter"
                } else {
                    return Ok(Some((scatter, gather)));
                }
            }
            ([_, _, ..], _) => "it has more than one scatter",
            (_, [_, _, ..]) => "it has more than one gather",
        };
        Err(BuildError::Exchange {
            exchange: spec.exchanges[id].name.clone(),
            problem,
        })
    };
    found.into_iter().enumerate().map(pair).collect()
}

fn stands_before(spec: &Spec, block: BlockId, first: StageId, second: StageId) -> bool {
    let place = |stage| {
        spec.blocks[block.index()]
            .iter()
            .position(|node| *node == Node::Stage(stage))
    };
    place(first) < place(second)
}

/// A branch may test a signal given before it in the same or an enclosing block.
fn check_signals(spec: &Spec, block: BlockId, given: &mut Vec<StageId>) -> Result<(), BuildError> {
    let outer = given.len();
    for node in &spec.blocks[block.index()] {
        match *node {
            Node::Stage(stage) if spec.stages[stage.index()].kind == StageKind::Signal => {
                given.push(stage)
            }
            Node::Stage(_) => {}
            Node::Repeat { body, .. } | Node::While { body, .. } => {
                check_signals(spec, body, given)?
            }
            Node::Branch {
                signal,
                then,
                otherwise,
            } => {
                if !given.contains(&signal) {
                    return Err(BuildError::SignalNotBefore {
                        signal: spec.stages[signal.index()].name.clone(),
                    });
                }
                check_signals(spec, then, given)?;
                check_signals(spec, otherwise, given)?;
            }
        }
    }
    given.truncate(outer);
    Ok(())
}

/// Union-find over stages: datasets used together live together (invariant 2).
fn group(spec: &Spec, exchanges: Vec<Option<(StageId, StageId)>>) -> Result<Structure, BuildError> {
    let mut parent: Vec<usize> = (0..spec.datasets.len()).collect();
    fn root(parent: &mut [usize], mut at: usize) -> usize {
        while parent[at] != at {
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
            link(spec, ExchangeId(id as u32), from, to)?;
        }
    }
    Ok(())
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
