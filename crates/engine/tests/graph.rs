//! Components, searches, communities and clustering against plain loops, and the promise for them.

use brambling::QuietCaller;
use brambling::graph::{
    AnalysisError, EdgeList, bfs, connected_components, label_propagation, local_clustering, sssp,
};
use brambling::prelude::*;
use brambling::program::Rng;
use std::collections::{BTreeMap, BTreeSet};

mod support;
use support::bits;
use support::graphs::{Edges, list, random, weighted};

/// Calls `check` with graphs of every kind, and with several numbers of partitions and threads.
fn each(check: impl Fn(u32, &Edges, &RunOptions)) {
    for (vertices, count) in [
        (1, 0),
        (1, 2),
        (2, 1),
        (12, 6),
        (30, 25),
        (90, 400),
        (301, 900),
    ] {
        // Quarters, so that every order of additions gives the same sums; some are 0.
        let quarters = |rng: &mut Rng| rng.below(9) as f64 / 4.0;
        let edges = random(vertices, count, u64::from(vertices) + 7, quarters);
        for (threads, partitions) in [(1, 1), (2, 2), (2, 6), (3, 7), (2, 16)] {
            let options = RunOptions::new().threads(threads).grid(partitions);
            check(vertices, &edges, &options);
        }
    }
}

#[test]
fn components_are_those_of_a_flood() {
    each(|vertices, edges, options| {
        let found = connected_components(&list(vertices, edges), options, &mut QuietCaller);
        let mut expected: Vec<u32> = (0..vertices).collect();
        loop {
            let before = expected.clone();
            for &(a, b, _) in edges {
                let least = expected[a as usize].min(expected[b as usize]);
                (expected[a as usize], expected[b as usize]) = (least, least);
            }
            if expected == before {
                break;
            }
        }
        assert_eq!(found.unwrap().values, expected);
    });
}

/// By relaxing every edge as often as there are vertices.
fn distances(
    vertices: u32,
    from: u32,
    edges: impl Iterator<Item = (u32, u32, f64)> + Clone,
) -> Vec<f64> {
    let mut all = vec![f64::INFINITY; vertices as usize];
    all[from as usize] = 0.0;
    for _ in 0..vertices {
        for (source, target, weight) in edges.clone() {
            all[target as usize] = all[target as usize].min(all[source as usize] + weight);
        }
    }
    all
}

#[test]
fn hops_are_those_of_relaxed_edges() {
    each(|vertices, edges, options| {
        for from in [0, vertices / 3, vertices - 1] {
            let found = bfs(
                &list(vertices, edges),
                from as usize,
                options,
                &mut QuietCaller,
            );
            let hops = edges.iter().map(|&(a, b, _)| (a, b, 1.0));
            let expected: Vec<Option<u32>> = distances(vertices, from, hops)
                .into_iter()
                .map(|hops| hops.is_finite().then_some(hops as u32))
                .collect();
            assert_eq!(found.unwrap().values, expected);
        }
    });
}

#[test]
fn distances_are_those_of_relaxed_edges() {
    each(|vertices, edges, options| {
        let expected = distances(vertices, 0, edges.iter().copied());
        let found = sssp(&weighted(vertices, edges), 0, options, &mut QuietCaller);
        assert_eq!(found.unwrap().values, expected);
        let ones = distances(vertices, 0, edges.iter().map(|&(a, b, _)| (a, b, 1.0)));
        let found = sssp(&list(vertices, edges), 0, options, &mut QuietCaller);
        assert_eq!(found.unwrap().values, ones);
    });
}

#[test]
fn labels_are_those_of_a_map_of_counts() {
    each(|vertices, edges, options| {
        for turns in [0, 1, 5] {
            let mut expected: Vec<u32> = (0..vertices).collect();
            for _ in 0..turns {
                let mut counts = vec![BTreeMap::<u32, u32>::new(); vertices as usize];
                for &(a, b, _) in edges {
                    *counts[b as usize].entry(expected[a as usize]).or_default() += 1;
                    *counts[a as usize].entry(expected[b as usize]).or_default() += 1;
                }
                for (vertex, counts) in counts.iter().enumerate() {
                    let most = counts.values().max();
                    let label = counts.iter().find(|(_, count)| Some(*count) == most);
                    expected[vertex] = label.map_or(expected[vertex], |(label, _)| *label);
                }
            }
            let found = label_propagation(&list(vertices, edges), turns, options, &mut QuietCaller);
            assert_eq!(found.unwrap().values, expected);
        }
    });
}

#[test]
fn coefficients_are_those_of_pairs_of_neighbours() {
    each(|vertices, edges, options| {
        let set: BTreeSet<(u32, u32)> = edges.iter().map(|&(a, b, _)| (a, b)).collect();
        let expected: Vec<f64> = (0..vertices)
            .map(|vertex| {
                let is_near = |&other: &u32| {
                    other != vertex
                        && (set.contains(&(vertex, other)) || set.contains(&(other, vertex)))
                };
                let near: Vec<u32> = (0..vertices).filter(is_near).collect();
                let pairs = near.iter().flat_map(|&a| near.iter().map(move |&b| (a, b)));
                let there = pairs
                    .filter(|(a, b)| a != b && set.contains(&(*a, *b)))
                    .count();
                if near.len() < 2 {
                    return 0.0;
                }
                there as f64 / (near.len() * (near.len() - 1)) as f64
            })
            .collect();
        let found = local_clustering(&list(vertices, edges), options, &mut QuietCaller);
        assert_eq!(bits(found.unwrap().values), bits(expected));
    });
}

/// Ways of thousands of edges, over as many turns.
#[test]
fn a_long_path_is_walked_to_its_end() {
    let vertices = 3_000u32;
    // Vertices lie along the path in an order that jumps.
    let at = |step: u32| step * 1_009 % vertices;
    let edges: Edges = (1..vertices)
        .map(|step| (at(step - 1), at(step), 0.5))
        .collect();
    let options = RunOptions::new().threads(2).grid(6);
    let found = sssp(
        &weighted(vertices, &edges),
        at(0) as usize,
        &options,
        &mut QuietCaller,
    )
    .unwrap();
    for step in 0..vertices {
        assert_eq!(found.values[at(step) as usize], f64::from(step) / 2.0);
    }
    let found = connected_components(&list(vertices, &edges), &options, &mut QuietCaller).unwrap();
    assert!(found.values.iter().all(|&component| component == 0));
}

#[test]
fn a_start_that_is_no_vertex_is_refused() {
    let edges = EdgeList::new(2, vec![0u32], vec![1u32]);
    let options = RunOptions::new();
    for refused in [
        bfs(&edges, 2, &options, &mut QuietCaller).err(),
        sssp(&edges, 2, &options, &mut QuietCaller).err(),
    ] {
        match refused {
            Some(AnalysisError::Graph(error)) => assert_eq!(
                error.to_string(),
                "the search starts at vertex 2, but the 2 vertices are 0 to 1"
            ),
            other => panic!("{other:?}"),
        }
    }
    let beyond = EdgeList::new(2, vec![0u32], vec![2u32]);
    assert!(connected_components(&beyond, &options, &mut QuietCaller).is_err());
    assert!(label_propagation(&beyond, 1, &options, &mut QuietCaller).is_err());
    assert!(local_clustering(&beyond, &options, &mut QuietCaller).is_err());
}
