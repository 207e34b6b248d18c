//! High-level exchanges: broadcast, reduce, all-reduce, shuffle by key, exchange with neighbours.

use crate::chunks::{Chunk, ChunkError, Cursor};
use crate::tree::{Folding, TreeNode, aligned_nodes};
use crate::{
    Blocked, Blocks, Count, Dataset, DecodeError, Inbox, Key, Outbox, Payload, Program, Relation,
    Use, Value, partition_of,
};
use brambling_memory::SpillError;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// An associative operation: merges the right operand into the left one. Operands are always adjacent and
/// in order, on the fixed tree, so it need not be commutative.
pub trait Combine<T>: Clone + Send + Sync + 'static {
    /// Merges `right` into `left`.
    fn combine(&self, left: &mut T, right: &T);
}

/// Adds: numbers, and vectors and arrays element by element. Integers wrap.
#[derive(Clone, Copy, Debug)]
pub struct Sum;
/// The smaller of two; a NaN wins, so that it is seen.
#[derive(Clone, Copy, Debug)]
pub struct Min;
/// The larger of two; a NaN wins, so that it is seen.
#[derive(Clone, Copy, Debug)]
pub struct Max;

impl<T, F: Fn(&mut T, &T) + Clone + Send + Sync + 'static> Combine<T> for F {
    fn combine(&self, left: &mut T, right: &T) {
        self(left, right);
    }
}

/// A number that [`Sum`], [`Min`] and [`Max`] understand.
pub trait Number: Copy {
    /// The sum.
    fn add(self, other: Self) -> Self;
    /// The smaller; NaN if either is.
    fn least(self, other: Self) -> Self;
    /// The larger; NaN if either is.
    fn greatest(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn least(self, other: Self) -> Self { self.min(other) }
            fn greatest(self, other: Self) -> Self { self.max(other) }
        }
    )*};
}
integers!(u8, u16, u32, u64, usize, i8, i16, i32, i64);

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn add(self, other: Self) -> Self {
                let sum = self + other;
                // One NaN: which bits a sum of NaNs has differs by CPU.
                if sum.is_nan() { <$t>::NAN } else { sum }
            }
            fn least(self, other: Self) -> Self {
                // A NaN wins, whichever side it is on.
                if self.is_nan() || other.is_nan() { return <$t>::NAN; }
                // Total order, so that −0.0 and 0.0 do not depend on the order of operands.
                if self.total_cmp(&other).is_le() { self } else { other }
            }
            fn greatest(self, other: Self) -> Self {
                if self.is_nan() || other.is_nan() { return <$t>::NAN; }
                if self.total_cmp(&other).is_ge() { self } else { other }
            }
        }
    )*};
}
floats!(f32, f64);

macro_rules! operator {
    ($name:ident, $method:ident) => {
        impl<N: Number> Combine<N> for $name {
            fn combine(&self, left: &mut N, right: &N) {
                *left = left.$method(*right);
            }
        }

        impl<N: Number> Combine<Vec<N>> for $name {
            /// Element by element; the missing end of a shorter vector counts as nothing.
            fn combine(&self, left: &mut Vec<N>, right: &Vec<N>) {
                left.iter_mut()
                    .zip(right)
                    .for_each(|(left, right)| *left = left.$method(*right));
                left.extend(right.iter().skip(left.len()).copied());
            }
        }

        impl<N: Number, const LEN: usize> Combine<[N; LEN]> for $name {
            fn combine(&self, left: &mut [N; LEN], right: &[N; LEN]) {
                left.iter_mut()
                    .zip(right)
                    .for_each(|(left, right)| *left = left.$method(*right));
            }
        }
    };
}
operator!(Sum, add);
operator!(Min, least);
operator!(Max, greatest);

/// Partial results of a reduction, named by their tree nodes. Entries beyond `used` are kept for their buffers.
#[derive(Clone, Default, Debug)]
pub struct Partials<T> {
    used: usize,
    entries: Vec<(TreeNode, T)>,
}

impl<T: Payload> Payload for Partials<T> {
    const INTERPRETED: bool = T::INTERPRETED;
    const SPILLS: bool = T::SPILLS;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Partials<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        self.entries.heap_bytes()
    }
    fn spilled_bytes(&self) -> u64 {
        self.entries.spilled_bytes()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.used.encode(out);
        self.entries[..self.used]
            .iter()
            .for_each(|entry| entry.encode(out));
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let entries = Vec::<(TreeNode, T)>::decode(input)?;
        Ok(Partials {
            used: entries.len(),
            entries,
        })
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        cursor.encode_rows(&self.entries[..self.used], chunk)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        let is_whole = self.entries.decode_some(cursor, input)?;
        self.used = self.entries.len();
        Ok(is_whole)
    }
}

impl<T: Payload> Partials<T> {
    fn push(&mut self, node: TreeNode, value: &T) -> &mut T {
        match self.entries.get_mut(self.used) {
            Some(entry) => {
                entry.0 = node;
                // The buffers of the turn before are used again.
                entry.1.clone_from(value);
            }
            None => self.entries.push((node, value.clone())),
        }
        self.used += 1;
        &mut self.entries[self.used - 1].1
    }
}

impl<T: Payload> Partials<T> {
    /// Takes in those of the sources that follow, all of them neighbours, and folds what they make together. What lies between the
    /// first and the last leaf is known to be all there is, so the maximal aligned nodes in between are folded, and nothing else:
    /// what others will add can only meet it above.
    fn append<'a>(&mut self, others: impl Iterator<Item = &'a mut Self>, op: &impl Combine<T>)
    where
        T: 'a,
    {
        self.entries.truncate(self.used);
        for other in others {
            self.entries.extend(other.entries.drain(..other.used));
            other.used = 0;
        }
        self.used = self.entries.len();
        self.fold(op);
    }

    fn fold(&mut self, op: &impl Combine<T>) {
        // Entries that do not follow each other are left as they are.
        let Some(leaves) = self.leaves() else {
            return;
        };
        let entries = &mut self.entries;
        let (mut at, mut kept) = (0, 0);
        // The nodes that the fixed tree has there: anything else would group a sum in another way.
        for node in aligned_nodes(leaves.start, leaves.end) {
            let mut folding = Folding::default();
            while let Some(&(inner, _)) = entries
                .get(at)
                .filter(|it| it.0.start() >> node.level == node.index)
            {
                folding.push(inner, at, |l, r| merge(op, entries, l, r));
                at += 1;
            }
            if let Some(place) = folding.finish(|l, r| merge(op, entries, l, r)) {
                entries.swap(kept, place);
                entries[kept].0 = node;
                kept += 1;
            }
        }
        self.used = kept;
    }

    /// From the first leaf to the last one; none where they are not in order, as no source sends them: then they stay as they are.
    fn leaves(&self) -> Option<Range<u64>> {
        let all = self.entries.iter().map(|(node, _)| node.leaves());
        let follows = |before: Range<u64>, leaves: Range<u64>| {
            (before.end <= leaves.start).then_some(before.start..leaves.end)
        };
        all.reduce(|before, leaves| follows(before?, leaves?))?
    }
}

impl<T: Payload> Blocks<T> {
    /// Folds each maximal aligned node of this partition's blocks. Uses as many entries as the tree is high,
    /// not as there are blocks.
    fn partials(&self, op: &impl Combine<T>, out: &mut Partials<T>) {
        out.used = 0;
        let range = self.range();
        for node in aligned_nodes(range.start, range.end) {
            let first = out.used;
            let mut folding = Folding::default();
            let fold = |out: &mut Partials<T>, left: usize, right: usize| {
                debug_assert_eq!(right + 1, out.used);
                merge(op, &mut out.entries, left, right);
                // The right operand was the last in use; its buffer is free again.
                out.used = right;
            };
            for index in node.start()..node.start() + (1 << node.level) {
                if let Some(value) = self.block((index - range.start) as usize) {
                    let leaf = TreeNode::leaf(index);
                    // Merged before the value is pushed: that frees the last buffer, and the value
                    // is written there.
                    folding.settle(leaf, |l, r| fold(out, l, r));
                    folding.push(leaf, out.used, |_, _| unreachable!("settled"));
                    out.push(leaf, value);
                }
            }
            if let Some(place) = folding.finish(|l, r| fold(out, l, r)) {
                debug_assert_eq!((place, out.used), (first, first + 1));
                out.entries[first].0 = node;
            }
        }
    }
}

fn merge<T: Payload>(
    op: &impl Combine<T>,
    entries: &mut [(TreeNode, T)],
    left: usize,
    right: usize,
) {
    let (head, tail) = entries.split_at_mut(right);
    // Merged into the left one, whose place is that of their parent.
    op.combine(&mut head[left].1, &tail[0].1);
}

/// Folds all pieces in source order and gives the result to `finish`.
fn fold_inbox<T: Payload>(
    inbox: &mut Inbox<'_, Partials<T>>,
    op: &impl Combine<T>,
    finish: impl FnOnce(&mut T),
) {
    let mut operands: SmallVec<[&mut T; 16]> = SmallVec::new();
    let mut folding = Folding::default();
    let combine = |operands: &mut SmallVec<[&mut T; 16]>, left: usize, right: usize| {
        let (head, tail) = operands.split_at_mut(right);
        op.combine(head[left], tail[0]);
    };
    for (_, partials) in inbox {
        let used = partials.used;
        for (node, value) in &mut partials.entries[..used] {
            // By reference: a sum of a thousand partials copies none of them.
            operands.push(value);
            folding.push(*node, operands.len() - 1, |l, r| {
                combine(&mut operands, l, r)
            });
        }
    }
    if let Some(place) = folding.finish(|l, r| combine(&mut operands, l, r)) {
        finish(operands[place]);
    }
}

/// A broadcast piece: small values are copied into buffers that stay, large ones are shared.
#[derive(Clone)]
enum BroadcastValue<T> {
    Copied(T),
    Large(Arc<T>),
}

impl<T: Default> Default for BroadcastValue<T> {
    fn default() -> Self {
        BroadcastValue::Copied(T::default())
    }
}

impl<T: Payload> Payload for BroadcastValue<T> {
    const INTERPRETED: bool = T::INTERPRETED;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Shared<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        match self {
            BroadcastValue::Copied(value) => value.heap_bytes(),
            // The broadcasting partition answers for it.
            BroadcastValue::Large(_) => 0,
        }
    }
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            BroadcastValue::Copied(value) => value.encode(out),
            BroadcastValue::Large(value) => value.encode(out),
        }
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        T::decode(input).map(|value| BroadcastValue::Large(Arc::new(value)))
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        match self {
            BroadcastValue::Copied(value) => value.encode_some(cursor, chunk),
            BroadcastValue::Large(value) => value.encode_some(cursor, chunk),
        }
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        let Some(value) = cursor.build(input)? else {
            return Ok(false);
        };
        *self = BroadcastValue::Large(Arc::new(value));
        Ok(true)
    }
}

/// Beyond this a broadcast shares instead of copying: a copy of 4 KiB costs about what an allocation does.
const COPIED_BYTES_MAX: usize = 4_096;

/// Rows of a shuffle.
pub type Rows<K, V> = Vec<(K, V)>;

impl Program {
    /// Brings a one-partition value to every partition of another dataset.
    ///
    /// # Movement
    /// One scatter and gather. Within a process a large value is shared until written, never copied.
    pub fn broadcast<T: Payload>(&mut self, from: &Dataset<T>, to: &Dataset<T>) {
        let name = format!("broadcast {}", self.spec.datasets[from.id.index()].name);
        let exchange = self.exchange::<BroadcastValue<T>>(name.clone(), Relation::OneToAll);
        self.scatter(name.clone(), &exchange).cell(from).run(
            |from: &mut Value, out: &mut Outbox<'_, BroadcastValue<T>>| {
                // A copy of some cache lines costs less than the count of a shared value, which all
                // destinations write.
                if from.bytes() <= COPIED_BYTES_MAX {
                    let value = from.get::<T>().expect("the dataset's type");
                    out.for_each(|_, piece| match piece {
                        BroadcastValue::Copied(buffer) => buffer.clone_from(value),
                        piece => *piece = BroadcastValue::Copied(value.clone()),
                    });
                } else {
                    let shared = from.share::<T>().expect("the dataset's type");
                    out.for_each(|_, piece| *piece = BroadcastValue::Large(shared.clone()));
                }
            },
        );
        self.gather(name, &exchange).cell(to).run(
            |inbox: &mut Inbox<'_, BroadcastValue<T>>, to: &mut Value| {
                for (_, piece) in inbox {
                    match piece {
                        // Copied into the buffers that are there, unless somebody else sees them.
                        BroadcastValue::Copied(value) if !to.is_shared() => {
                            to.get_mut::<T>()
                                .expect("the dataset's type")
                                .clone_from(value);
                        }
                        BroadcastValue::Copied(value) => *to = Value::new(value.clone()),
                        BroadcastValue::Large(_) => {
                            let BroadcastValue::Large(value) = std::mem::take(piece) else {
                                unreachable!("just matched")
                            };
                            *to = Value::shared(value);
                        }
                    }
                }
            },
        );
    }

    /// Folds the values of all partitions on the fixed tree and gives the result to `step`, which updates
    /// the one-partition destination. Where there is no operand at all, `step` is not called. What `op` and
    /// `step` capture is named by [`Program::named`].
    ///
    /// # Movement
    /// One scatter and gather: one piece from each partition.
    pub fn reduce<T: Payload, U: Payload>(
        &mut self,
        op: impl Combine<T>,
        from: &Dataset<T>,
        to: &Dataset<U>,
        step: impl Fn(&mut U, &T) + Send + Sync + 'static,
    ) {
        let name = self.reduce_name(from);
        let exchange = self.partials(name.clone(), &op);
        let scatter = self.scatter(name.clone(), &exchange).read(from);
        scatter.run(|value: &T, out: &mut Outbox<'_, Partials<T>>| {
            let leaf = TreeNode::leaf(u64::from(out.source()));
            let piece = out.piece(0);
            piece.used = 0;
            piece.push(leaf, value);
        });
        self.gather(name, &exchange).update(to).run(
            move |inbox: &mut Inbox<'_, Partials<T>>, to: &mut U| {
                fold_inbox(inbox, &op, |total| step(to, total));
            },
        );
    }

    /// As [`Program::reduce`], over the blocks of a blocked dataset: the number of partitions does not
    /// enter the result.
    pub fn reduce_blocks<T: Payload, U: Payload>(
        &mut self,
        op: impl Combine<T>,
        from: &Dataset<Blocks<T>>,
        to: &Dataset<U>,
        step: impl Fn(&mut U, &T) + Send + Sync + 'static,
    ) {
        let name = self.reduce_name(from);
        let exchange = self.partials(name.clone(), &op);
        let scatter_op = op.clone();
        let scatter = self.scatter(name.clone(), &exchange).read(from);
        scatter.run(
            move |blocks: &Blocks<T>, out: &mut Outbox<'_, Partials<T>>| {
                blocks.partials(&scatter_op, out.piece(0));
            },
        );
        self.gather(name, &exchange).update(to).run(
            move |inbox: &mut Inbox<'_, Partials<T>>, to: &mut U| {
                fold_inbox(inbox, &op, |total| step(to, total));
            },
        );
    }

    /// Folds the values of all partitions into a one-partition dataset of the same type.
    pub fn reduce_to<T: Payload>(
        &mut self,
        op: impl Combine<T>,
        from: &Dataset<T>,
        to: &Dataset<T>,
    ) {
        self.reduce(op, from, to, |to: &mut T, total: &T| to.clone_from(total));
    }

    /// Folds the values of all partitions and gives the result to every partition of `to`.
    ///
    /// # Movement
    /// A reduction and a broadcast.
    pub fn all_reduce<T: Payload>(
        &mut self,
        op: impl Combine<T>,
        from: &Dataset<T>,
        to: &Dataset<T>,
    ) {
        let total = self.temporary(
            format!("all-reduced {}", self.spec.datasets[from.id.index()].name),
            1,
        );
        self.reduce_to(op, from, &total);
        self.broadcast(&total, to);
    }

    /// As [`Program::all_reduce`], over the blocks of a blocked dataset.
    pub fn all_reduce_blocks<T: Payload>(
        &mut self,
        op: impl Combine<T>,
        from: &Dataset<Blocks<T>>,
        to: &Dataset<T>,
    ) {
        let total = self.temporary(
            format!("all-reduced {}", self.spec.datasets[from.id.index()].name),
            1,
        );
        self.reduce_blocks(op, from, &total, |to: &mut T, total: &T| {
            to.clone_from(total)
        });
        self.broadcast(&total, to);
    }

    /// The exchange of a reduction: partial results, which may be folded on their way.
    fn partials<T: Payload>(
        &mut self,
        name: String,
        op: &impl Combine<T>,
    ) -> crate::Exchange<Partials<T>> {
        let exchange = self.exchange(name, Relation::AllToOne);
        let op = op.clone();
        self.combine(&exchange, move |first: &mut Partials<T>, others| {
            first.append(others, &op)
        });
        exchange
    }

    fn reduce_name<T>(&self, from: &Dataset<T>) -> String {
        format!("reduce {}", self.spec.datasets[from.id.index()].name)
    }

    /// Brings all rows of a key into one partition, by the key's hash; rows of a key come out in source
    /// order: by source partition, then by place in it.
    ///
    /// # Movement
    /// One scatter and gather: each row moves at most once. Rows that only other shuffles have written stay
    /// where they are if the partition counts are equal.
    pub fn shuffle<K: Key, V: Payload>(
        &mut self,
        from: &Dataset<Rows<K, V>>,
        to: &Dataset<Rows<K, V>>,
    ) {
        let name = format!("shuffle {}", self.spec.datasets[from.id.index()].name);
        let exchange = self.exchange::<Rows<K, V>>(name.clone(), Relation::AllToAll);
        self.placement
            .shuffles(&mut self.spec, exchange.id, from.id, to.id);
        self.mark_hashed(to);
        self.scatter(name.clone(), &exchange).read(from).run(
            |rows: &Rows<K, V>, out: &mut Outbox<'_, Rows<K, V>>| {
                let partitions = out.fan_out();
                if partitions == 1 {
                    // One partition is all that there is, or the one where the rows lie already.
                    return out.piece(out.destination(0)).clone_from(rows);
                }
                let mut started = vec![false; partitions as usize];
                for row in rows {
                    let destination = partition_of(&row.0, partitions);
                    let piece = out.piece(destination);
                    // A piece's buffer has what an earlier turn left: it is cleared when it is
                    // first written.
                    if !std::mem::replace(&mut started[destination as usize], true) {
                        piece.clear();
                    }
                    piece.push(row.clone());
                }
            },
        );
        self.gather(name, &exchange).write(to).run(
            |inbox: &mut Inbox<'_, Rows<K, V>>, to: &mut Rows<K, V>| {
                to.clear();
                inbox.for_each(|(_, piece)| to.append(piece));
            },
        );
    }

    /// Sends a piece to each neighbour: partition i to i + offset, for each offset (ascending). `send` writes
    /// the piece to a neighbour, given its index; `receive` gets each neighbour's index and piece, in order.
    ///
    /// # Movement
    /// One scatter and gather over the given offsets only.
    #[allow(clippy::too_many_arguments)] // Two datasets, two functions, and where the neighbours are.
    pub fn exchange_neighbours<T: Payload, P: Payload>(
        &mut self,
        name: &str,
        dataset: &Dataset<T>,
        offsets: &[i64],
        wrap: bool,
        send: impl Fn(&T, u32, &mut P) + Send + Sync + 'static,
        receive: impl Fn(&mut T, u32, &P) + Send + Sync + 'static,
    ) {
        let exchange = self.exchange::<P>(
            name,
            Relation::Offsets {
                offsets: offsets.to_vec(),
                wrap,
            },
        );
        self.scatter(name, &exchange).read(dataset).run(
            move |value: &T, out: &mut Outbox<'_, P>| {
                out.for_each(|neighbour, piece| send(value, neighbour, piece));
            },
        );
        self.gather(name, &exchange).update(dataset).run(
            move |inbox: &mut Inbox<'_, P>, value: &mut T| {
                inbox.for_each(|(neighbour, piece)| receive(value, neighbour, piece));
            },
        );
    }

    /// The partition count of a dataset.
    pub fn count_of<T>(&self, dataset: &Dataset<T>) -> Count {
        self.spec.datasets[dataset.id.index()].count
    }

    /// Marks how a use of a stage was declared. For other languages' builders.
    pub fn use_of<T>(&self, dataset: &Dataset<T>, how: Use) -> (crate::DatasetId, Use) {
        (dataset.id, how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However they are grouped on their way, neighbours give what the tree gives.
    #[test]
    fn what_is_folded_on_the_way_is_what_the_tree_folds() {
        let join = |left: &mut String, right: &String| *left = format!("({left} {right})");
        for empty_every in [1_000, 3, 2] {
            for (cut, shift) in [(1, 0), (2, 3), (3, 5), (5, 1)] {
                let value = |index: u64| {
                    (index % empty_every != empty_every - 1).then(|| index.to_string())
                };
                let whole = |start: u64, end: u64| {
                    let mut partials = Partials::default();
                    Blocks::new(start, (start..end).map(value)).partials(&join, &mut partials);
                    partials.entries.truncate(partials.used);
                    partials
                };
                let mut parts: Vec<Partials<String>> = (shift..shift + 12)
                    .map(|source| whole(cut * source, cut * (source + 1)))
                    .collect();
                // By fours, and these together.
                let mut groups: Vec<Partials<String>> = Vec::new();
                for group in parts.chunks_mut(4) {
                    let (first, others) = group.split_first_mut().expect("four of them");
                    first.append(others.iter_mut(), &join);
                    groups.push(std::mem::take(first));
                }
                let (first, others) = groups.split_first_mut().expect("three of them");
                first.append(others.iter_mut(), &join);
                let total = |partials: &mut Partials<String>| {
                    let mut text: Vec<String> =
                        partials.entries.iter().map(|it| it.1.clone()).collect();
                    let mut folding = Folding::default();
                    let mut meet =
                        |l: usize, r: usize| text[l] = format!("({} {})", text[l], text[r]);
                    for (place, entry) in partials.entries[..partials.used].iter().enumerate() {
                        folding.push(entry.0, place, &mut meet);
                    }
                    folding.finish(&mut meet).map(|place| text[place].clone())
                };
                let mut expected = whole(cut * shift, cut * (shift + 12));
                assert!(first.used <= expected.used + 2, "{first:?}");
                assert_eq!(total(first), total(&mut expected), "{cut} {shift}");
            }
        }
    }

    /// What a worker that lies has sent is not folded, and nothing of it is lost.
    #[test]
    fn what_is_out_of_order_stays_as_it_is() {
        let node = |level, index| TreeNode { level, index };
        let lies = [
            [node(0, 4), node(0, 3)],
            [node(2, 0), node(0, 3)],
            [node(64, 0), node(0, 3)],
            [node(63, 2), node(0, 3)],
            [node(0, 3), node(0, u64::MAX)],
        ];
        for nodes in lies {
            let one = |node| Partials {
                used: 1,
                entries: vec![(node, 1.0)],
            };
            let (mut first, mut other) = (one(nodes[0]), one(nodes[1]));
            first.append(std::iter::once(&mut other), &Sum);
            assert_eq!(first.used, 2, "{nodes:?}");
        }
    }

    /// What a partition sends is kept from turn to turn, so it must not grow with the blocks.
    #[test]
    fn a_partition_folds_its_blocks_in_little_memory() {
        let join = |left: &mut String, right: &String| *left = format!("({left} {right})");
        let value = |index: u64| (index % 3 != 1).then(|| index.to_string());
        let blocks = Blocks::new(3, (3..13).map(value));
        let mut partials = Partials::default();
        for _ in 0..2 {
            blocks.partials(&join, &mut partials);
            let sent = &partials.entries[..partials.used];
            let sent: Vec<_> = sent
                .iter()
                .map(|(node, text)| (node.start(), &**text))
                .collect();
            assert_eq!(
                sent,
                [(3, "3"), (4, "(5 6)"), (8, "((8 9) 11)"), (12, "12")]
            );
        }
        let blocks = Blocks::new(0, (0..1_000).map(value));
        blocks.partials(&join, &mut partials);
        assert!(partials.entries.len() <= 12, "{}", partials.entries.len());
    }
}
