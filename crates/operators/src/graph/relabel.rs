//! Ids of any size become places from 0 on.

use super::edges::{GraphError, VERTICES_MAX};

/// How many places a table of ids may have for each end of an edge: beyond that, sorting takes less memory.
const PLACES_PER_END: usize = 1;

/// Edges whose ids are dense, and what the ids were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relabelled {
    /// The id of each vertex, ascending.
    pub ids: Vec<u64>,
    /// Where each edge begins, as a place in `ids`.
    pub sources: Vec<u32>,
    /// Where each edge ends, as a place in `ids`.
    pub targets: Vec<u32>,
}

/// Numbers the ids that occur, in ascending order.
///
/// ```
/// use brambling_operators::graph::relabel::relabel;
///
/// let dense = relabel(&[70, 5], &[5, 1_000_000_000_000])?;
/// assert_eq!(dense.ids, [5, 70, 1_000_000_000_000]);
/// assert_eq!((dense.sources, dense.targets), (vec![1, 0], vec![0, 2]));
/// # Ok::<(), brambling_operators::graph::edges::GraphError>(())
/// ```
///
/// # Errors
/// When there are more different ids than a graph may have vertices.
pub fn relabel(sources: &[u64], targets: &[u64]) -> Result<Relabelled, GraphError> {
    relabel_with(sources, targets, &[])
}

/// As [`relabel`]; `others` are vertices too, where no edge begins or ends at them.
///
/// ```
/// use brambling_operators::graph::relabel::relabel_with;
///
/// let dense = relabel_with(&[70, 5], &[5, 90], &[80, 70])?;
/// assert_eq!(dense.ids, [5, 70, 80, 90]);
/// assert_eq!((dense.sources, dense.targets), (vec![1, 0], vec![0, 3]));
/// # Ok::<(), brambling_operators::graph::edges::GraphError>(())
/// ```
///
/// # Errors
/// As [`relabel`].
pub fn relabel_with(
    sources: &[u64],
    targets: &[u64],
    others: &[u64],
) -> Result<Relabelled, GraphError> {
    let columns = [sources, targets, others];
    let all = || columns.into_iter().flatten().copied();
    let (Some(least), Some(most)) = (all().min(), all().max()) else {
        return Ok(Relabelled::default());
    };
    let room = columns.map(<[u64]>::len).iter().sum::<usize>() * PLACES_PER_END;
    if most - least < room as u64 {
        return by_table(columns, least, (most - least) as usize + 1);
    }
    by_sorting(columns)
}

/// Ids that lie close together have a place each in a table.
fn by_table(columns: [&[u64]; 3], least: u64, span: usize) -> Result<Relabelled, GraphError> {
    let mut occurs = vec![false; span];
    for id in columns.into_iter().flatten() {
        occurs[(id - least) as usize] = true;
    }
    let ids: Vec<u64> = occurs
        .iter()
        .enumerate()
        .filter_map(|(place, occurs)| occurs.then_some(least + place as u64))
        .collect();
    drop(occurs);
    check(&ids)?;
    let mut places = vec![0; span];
    for (place, id) in ids.iter().enumerate() {
        places[(id - least) as usize] = place as u32;
    }
    let places = |of: &[u64]| of.iter().map(|id| places[(id - least) as usize]).collect();
    let [sources, targets, _] = columns;
    Ok(Relabelled {
        sources: places(sources),
        targets: places(targets),
        ids,
    })
}

fn by_sorting(columns: [&[u64]; 3]) -> Result<Relabelled, GraphError> {
    let [sources, targets, others] = columns;
    let mut ids = merged(distinct(sources), distinct(targets));
    if !others.is_empty() {
        ids = merged(ids, distinct(others));
    }
    check(&ids)?;
    let place = |id: &u64| ids.partition_point(|other| other < id) as u32;
    Ok(Relabelled {
        sources: sources.iter().map(place).collect(),
        targets: targets.iter().map(place).collect(),
        ids,
    })
}

fn check(ids: &[u64]) -> Result<(), GraphError> {
    let vertices = ids.len();
    if vertices > VERTICES_MAX {
        return Err(GraphError::Vertices { vertices });
    }
    Ok(())
}

fn distinct(ids: &[u64]) -> Vec<u64> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids.shrink_to_fit();
    ids
}

fn merged(mut ids: Vec<u64>, others: Vec<u64>) -> Vec<u64> {
    ids.extend(others);
    // Two ascending runs: this sort merges them.
    ids.sort();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_ascend_and_lead_back() {
        let sources = [9, 3, u64::MAX, 3, 4];
        let targets = [3, 3, 0, 77, 9];
        let dense = relabel(&sources, &targets).unwrap();
        assert_eq!(dense.ids, [0, 3, 4, 9, 77, u64::MAX]);
        let back = |places: &[u32]| -> Vec<u64> {
            places.iter().map(|at| dense.ids[*at as usize]).collect()
        };
        assert_eq!(back(&dense.sources), sources);
        assert_eq!(back(&dense.targets), targets);
        assert_eq!(relabel(&[], &[]), Ok(Relabelled::default()));
    }

    #[test]
    fn a_table_and_sorting_agree() {
        let ids = |factor: u64, of: u64| -> Vec<u64> {
            (0..500).map(|i| 7 + i * of % 389 * factor).collect()
        };
        let dense = relabel(&ids(1, 31), &ids(1, 83)).unwrap();
        let columns = [&ids(1, 31)[..], &ids(1, 83), &[]];
        assert_eq!(by_sorting(columns), Ok(dense.clone()));
        // The same graph with ids far apart.
        let sparse = relabel(&ids(1 << 40, 31), &ids(1 << 40, 83)).unwrap();
        assert_eq!(
            (sparse.sources, sparse.targets),
            (dense.sources, dense.targets)
        );
    }

    /// Listed ids are vertices, those with edges once, in a table and by sorting.
    #[test]
    fn others_are_vertices_too() {
        for factor in [1, 1 << 40] {
            let of = |ids: &[u64]| -> Vec<u64> { ids.iter().map(|id| id * factor).collect() };
            let others = [2, 5, 2, 9, 0];
            let dense = relabel_with(&of(&[3, 5]), &of(&[5, 1]), &of(&others)).unwrap();
            assert_eq!(dense.ids, of(&[0, 1, 2, 3, 5, 9]), "{factor}");
            assert_eq!((dense.sources, dense.targets), (vec![3, 4], vec![4, 1]));
        }
        let alone = relabel_with(&[], &[], &[u64::MAX, 7]).unwrap();
        assert_eq!(alone.ids, [7, u64::MAX]);
        assert!(alone.sources.is_empty());
    }

    #[test]
    fn ids_at_both_ends_of_their_type() {
        let dense = relabel(&[u64::MAX, u64::MAX - 1], &[u64::MAX, u64::MAX]).unwrap();
        assert_eq!(dense.ids, [u64::MAX - 1, u64::MAX]);
        assert_eq!((dense.sources, dense.targets), (vec![1, 0], vec![1, 1]));
        let dense = relabel(&[0], &[u64::MAX]).unwrap();
        assert_eq!((dense.sources, dense.targets), (vec![0], vec![1]));
    }
}
