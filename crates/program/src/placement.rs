//! Which shuffles need not move anything: their rows lie by the hash of their keys already.

use crate::{DatasetId, ExchangeId, Relation, Spec, StageKind, StageSpec, Use};

/// The shuffles of a program.
#[derive(Clone, Default, Debug)]
pub(crate) struct Placement {
    shuffles: Vec<Shuffle>,
}

#[derive(Clone, Copy, Debug)]
struct Shuffle {
    exchange: ExchangeId,
    from: DatasetId,
    to: DatasetId,
}

impl Placement {
    /// A shuffle was begun; its stages come after.
    pub(crate) fn shuffles(&mut self, exchange: ExchangeId, from: DatasetId, to: DatasetId) {
        self.shuffles.push(Shuffle { exchange, from, to });
    }

    /// A stage was added. What it writes may have lain by key until now, also for shuffles that stand before
    /// it: they may be in the same loop.
    pub(crate) fn stage_added(&self, spec: &mut Spec) {
        for shuffle in &self.shuffles {
            let stays = spec.datasets[shuffle.from.index()].count
                == spec.datasets[shuffle.to.index()].count
                && self.lies_by_key(spec, shuffle.from);
            spec.exchanges[shuffle.exchange.index()].relation = if stays {
                Relation::Offsets {
                    offsets: vec![0],
                    wrap: false,
                }
            } else {
                Relation::AllToAll
            };
        }
    }

    /// Whether nothing but shuffles ever writes a dataset.
    fn lies_by_key(&self, spec: &Spec, dataset: DatasetId) -> bool {
        let writes = |stage: &&StageSpec| {
            stage
                .uses
                .iter()
                .any(|&(used, how)| used == dataset && how != Use::Read)
        };
        let shuffles = |stage: &StageSpec| match stage.kind {
            StageKind::Gather(exchange) => self.shuffles.iter().any(|it| it.exchange == exchange),
            _ => false,
        };
        !spec.datasets[dataset.index()].loaded && spec.stages.iter().filter(writes).all(shuffles)
    }
}
