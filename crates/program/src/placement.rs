//! Which shuffles need not move anything: their rows lie by the hash of their keys already.

use crate::{DatasetId, ExchangeId, Relation, Spec, StageKind, StageSpec, Use};

/// The shuffles of a program, and what is known of the datasets that they read.
#[derive(Clone, Default, Debug)]
pub(crate) struct Placement {
    shuffles: Vec<Shuffle>,
    /// By exchange, whether it is a shuffle's.
    is_shuffle: Vec<bool>,
    /// By dataset.
    datasets: Vec<Rows>,
    /// Datasets that something else than a shuffle writes, in the order in which that was found.
    scattered: Vec<DatasetId>,
}

#[derive(Clone, Default, Debug)]
struct Rows {
    /// Whether something else than a shuffle writes it.
    are_scattered: bool,
    /// The shuffles that read it.
    read_by: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Shuffle {
    exchange: ExchangeId,
    from: DatasetId,
    to: DatasetId,
}

/// How much was known: see [`Program::mark`](crate::Program::mark).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacementMark {
    shuffles: usize,
    scattered: usize,
}

impl Placement {
    /// A shuffle was begun; its stages come after.
    pub(crate) fn shuffles(
        &mut self,
        spec: &mut Spec,
        exchange: ExchangeId,
        from: DatasetId,
        to: DatasetId,
    ) {
        grown(&mut self.is_shuffle, exchange.index());
        self.is_shuffle[exchange.index()] = true;
        let number = self.shuffles.len() as u32;
        self.shuffles.push(Shuffle { exchange, from, to });
        self.rows(from).read_by.push(number);
        self.relate(spec, number);
    }

    /// A stage was added. What it writes may have lain by key until now, also for shuffles that stand before
    /// it: they may be in the same loop.
    pub(crate) fn stage_added(&mut self, spec: &mut Spec, stage: usize) {
        let StageSpec { kind, ref uses, .. } = spec.stages[stage];
        let shuffles = match kind {
            StageKind::Gather(exchange) => {
                self.is_shuffle.get(exchange.index()).copied() == Some(true)
            }
            _ => false,
        };
        // A shuffle lays its rows by key, so what it writes is not scattered.
        if shuffles {
            return;
        }
        let writes = uses.iter().filter(|(_, how)| *how != Use::Read);
        let written: smallvec::SmallVec<[DatasetId; 4]> =
            writes.map(|(dataset, _)| *dataset).collect();
        for dataset in written {
            // Once: the first writer that is no shuffle decides for good.
            if !std::mem::replace(&mut self.rows(dataset).are_scattered, true) {
                self.scattered.push(dataset);
                self.relate_readers(spec, dataset);
            }
        }
    }

    pub(crate) fn mark(&self) -> PlacementMark {
        PlacementMark {
            shuffles: self.shuffles.len(),
            scattered: self.scattered.len(),
        }
    }

    /// What was added since is no longer there.
    pub(crate) fn take_back(&mut self, mark: &PlacementMark, spec: &mut Spec) {
        // Taken back from the last to the first: each is then the last of its dataset's readers.
        for shuffle in self.shuffles.split_off(mark.shuffles).into_iter().rev() {
            self.is_shuffle[shuffle.exchange.index()] = false;
            self.rows(shuffle.from).read_by.pop();
        }
        for dataset in self.scattered.split_off(mark.scattered) {
            self.rows(dataset).are_scattered = false;
            self.relate_readers(spec, dataset);
        }
    }

    fn rows(&mut self, dataset: DatasetId) -> &mut Rows {
        grown(&mut self.datasets, dataset.index());
        &mut self.datasets[dataset.index()]
    }

    fn relate_readers(&mut self, spec: &mut Spec, dataset: DatasetId) {
        for place in 0..self.rows(dataset).read_by.len() {
            let shuffle = self.datasets[dataset.index()].read_by[place];
            self.relate(spec, shuffle);
        }
    }

    /// Says whom a shuffle's partitions send to: nobody else where nothing but shuffles ever writes what it reads.
    fn relate(&self, spec: &mut Spec, shuffle: u32) {
        let Shuffle { exchange, from, to } = self.shuffles[shuffle as usize];
        let read = &spec.datasets[from.index()];
        // Only shuffles have written it, and with as many partitions a row stays where it is.
        let lie_by_key = !read.loaded && !self.datasets[from.index()].are_scattered;
        let stays = lie_by_key && read.count == spec.datasets[to.index()].count;
        spec.exchanges[exchange.index()].relation = if stays {
            Relation::Offsets {
                offsets: vec![0],
                wrap: false,
            }
        } else {
            Relation::AllToAll
        };
    }
}

/// Makes a place for an index.
fn grown<T: Clone + Default>(list: &mut Vec<T>, index: usize) {
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
}
