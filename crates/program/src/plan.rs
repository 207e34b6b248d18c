//! Compilation: a program with its partition counts bound becomes flat code per group.

mod bindings;
mod code;
mod compiler;
mod cuts;
mod look_past;

pub use bindings::Bindings;
pub use code::{Action, Code, Linked, LoopId, Mask, Op, Task};
pub use cuts::{Cut, CutAnswer, CutPlan, CutSite, CutStates, CutTurn, GroupState, OutermostLoop};

use crate::validate::{self, Structure};
use crate::{
    BuildError, DatasetId, ExchangeId, Group, GroupId, Links, PlacementHint, Program, ProgramNode,
    Spec, StageId, hint,
};
use compiler::Compiler;
use std::sync::Arc;

/// An exchange with its ends.
#[derive(Clone, Debug)]
pub struct ExchangePlan {
    /// The group that sends.
    pub source: GroupId,
    /// The group that receives.
    pub destination: GroupId,
    /// Who may send to whom.
    pub links: Links,
}

/// A compiled program, ready to be run by shards.
#[derive(Clone)]
pub struct Plan {
    /// The program.
    pub program: Arc<Program>,
    /// Its groups.
    pub groups: Vec<Group>,
    /// Group of each dataset.
    pub group_of_dataset: Vec<GroupId>,
    /// Group of each stage.
    pub group_of_stage: Vec<GroupId>,
    /// Partition count of each group.
    pub counts: Vec<u32>,
    /// Where each group's shards had better be.
    pub hints: Vec<PlacementHint>,
    /// Code of each group.
    pub codes: Vec<Code>,
    /// Ends of each exchange; none for one that is never used.
    pub exchanges: Vec<Option<ExchangePlan>>,
    /// How many outermost loops there are.
    pub loops: u32,
    /// Where snapshots may be taken.
    pub cuts: Vec<Cut>,
}

impl Plan {
    /// Validates a program, binds its partition counts and compiles it.
    ///
    /// # Errors
    /// What is wrong with the program, or a symbol that is not bound.
    pub fn compile(program: Arc<Program>, bindings: &Bindings) -> Result<Plan, BuildError> {
        let structure = program.structure()?;
        let spec = program.spec();
        // A shard of such a dataset could be made on no worker.
        if let Some(dataset) = program.to_be_given().next() {
            let dataset = spec.datasets[dataset.index()].name.clone();
            return Err(BuildError::NotGiven { dataset });
        }
        let counts = structure
            .groups
            .iter()
            .map(|group| {
                bindings.value(
                    spec,
                    &spec.datasets[group.datasets[0].index()].name,
                    group.count,
                )
            })
            .collect::<Result<Vec<u32>, _>>()?;
        let hints = hint::of_groups(&program.hints, &structure.groups);
        // Linked once counts are bound: a relation between symbols could not be checked before.
        let exchanges = link_exchanges(spec, &structure, &counts)?;
        let codes = Compiler::new(&program, &structure).compile();
        let is_loop = |node: &&ProgramNode| {
            matches!(node, ProgramNode::Repeat { .. } | ProgramNode::While { .. })
        };
        let loops = spec.blocks[0].iter().filter(is_loop).count() as u32;
        let mut cuts = cuts::find_cuts(spec);
        // In a loop without stages nobody comes to its top.
        let takes = |outermost| {
            let mut sites = codes.iter().flat_map(|code| &code.sites);
            sites.any(|(of, _)| *of == outermost)
        };
        cuts.retain(|cut| !matches!(cut, Cut::LoopTop(outermost) if !takes(*outermost)));
        let Structure {
            groups,
            group_of_dataset,
            group_of_stage,
            ..
        } = structure;
        Ok(Plan {
            groups,
            group_of_dataset,
            group_of_stage,
            counts,
            hints,
            codes,
            exchanges,
            loops,
            cuts,
            program,
        })
    }

    /// How many tasks the program is, over all shards; none where signals decide it.
    pub fn task_count(&self) -> Option<u64> {
        let of_group = |(code, shards): (&Code, &u32)| {
            let tasks = code.task_count()?;
            Some(tasks.saturating_mul(u64::from(*shards)))
        };
        self.codes
            .iter()
            .zip(&self.counts)
            .map(of_group)
            .try_fold(0u64, |sum, tasks| Some(sum.saturating_add(tasks?)))
    }

    /// The cell of a dataset within its group's shards.
    pub fn cell(&self, dataset: DatasetId) -> usize {
        let group = &self.groups[self.group_of_dataset[dataset.index()].index()];
        group
            .datasets
            .binary_search(&dataset)
            .expect("a group holds its datasets in order")
    }
}

fn link_exchanges(
    spec: &Spec,
    structure: &Structure,
    counts: &[u32],
) -> Result<Vec<Option<ExchangePlan>>, BuildError> {
    let link = |(id, pair): (usize, &Option<(StageId, StageId)>)| {
        // An exchange that no stage uses has no ends to link.
        let Some((scatter, gather)) = *pair else {
            return Ok(None);
        };
        let source = structure.group_of_stage[scatter.index()];
        let destination = structure.group_of_stage[gather.index()];
        let links = validate::link(
            spec,
            ExchangeId(id as u32),
            counts[source.index()],
            counts[destination.index()],
        )?;
        Ok(Some(ExchangePlan {
            source,
            destination,
            links,
        }))
    };
    structure.exchanges.iter().enumerate().map(link).collect()
}
