//! PageRank against a dense matrix, and the promise for it.

use brambling::graph::{AnalysisError, EdgeList, PageRank, Precision, Ranked, pagerank};
use brambling::prelude::*;
use brambling::program::Foreign;

mod support;
use support::bits;
use support::graphs::{self, Edges};

fn random(vertices: u32, edges: usize, stream: u64) -> Edges {
    graphs::random(vertices, edges, stream, |rng| rng.next_f64() * 3.0)
}

fn list(vertices: u32, edges: &Edges, weighted: bool) -> EdgeList {
    if weighted {
        graphs::weighted(vertices, edges)
    } else {
        graphs::list(vertices, edges)
    }
}

/// What cannot be seen from here: a mistake that the rule itself contains.
fn dense(vertices: u32, edges: &Edges, weighted: bool, starts: &[f64], turns: u64) -> Vec<f64> {
    let n = vertices as usize;
    let mut matrix = vec![vec![0.0; n]; n];
    for &(source, target, weight) in edges {
        matrix[source as usize][target as usize] += if weighted { weight } else { 1.0 };
    }
    let outs: Vec<f64> = matrix.iter().map(|row| row.iter().sum()).collect();
    let total: f64 = starts.iter().sum();
    let mut ranks = vec![1.0 / n as f64; n];
    for _ in 0..turns {
        let lost: f64 = (0..n).filter(|&v| outs[v] == 0.0).map(|v| ranks[v]).sum();
        ranks = (0..n)
            .map(|to| {
                let all = (0..n).filter(|&from| outs[from] > 0.0);
                let along: f64 = all
                    .map(|from| ranks[from] * matrix[from][to] / outs[from])
                    .sum();
                let start = starts[to] / total;
                0.85 * (along + lost * start) + 0.15 * start
            })
            .collect();
    }
    ranks
}

fn fixed(turns: u64) -> PageRank {
    PageRank {
        tol: 0.0,
        max_iter: turns,
        ..PageRank::default()
    }
}

fn options(threads: u32, partitions: u32) -> RunOptions {
    RunOptions::new().threads(threads).grid(partitions)
}

fn assert_near(ours: &[f64], expected: &[f64], what: &str) {
    assert_eq!(ours.len(), expected.len());
    for (vertex, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        assert!(
            (ours - expected).abs() < 1e-12,
            "{what}, vertex {vertex}: {ours} {expected}"
        );
    }
}

fn check(vertices: u32, edges: &Edges, weighted: bool, starts: Option<Vec<f64>>, partitions: u32) {
    let what = format!(
        "{vertices} vertices, {} edges, weighted {weighted}, personal {}, {partitions} partitions",
        edges.len(),
        starts.is_some()
    );
    let how = PageRank {
        personalization: starts.clone().map(Foreign::owned),
        ..fixed(12)
    };
    let ranked = pagerank(
        &list(vertices, edges, weighted),
        &how,
        &options(2, partitions),
    )
    .unwrap();
    let starts = starts.unwrap_or_else(|| vec![1.0; vertices as usize]);
    let expected = dense(vertices, edges, weighted, &starts, 12);
    assert_near(&ranked.ranks, &expected, &what);
    assert!(
        (ranked.ranks.iter().sum::<f64>() - 1.0).abs() < 1e-12,
        "{what}"
    );
    assert_eq!((ranked.iterations, ranked.converged), (12, false));
}

#[test]
fn ranks_are_those_of_a_dense_matrix() {
    for (vertices, edges) in [
        (1, 0),
        (1, 3),
        (2, 1),
        (10, 0),
        (30, 200),
        (150, 40),
        (301, 3_000),
    ] {
        let edges = random(vertices, edges, u64::from(vertices));
        let starts = || {
            (0..vertices)
                .map(|v| f64::from(v % 4))
                .map(|v| v + f64::from(vertices == 1))
        };
        for partitions in [1, 2, 3, 6, 7, 16, 23] {
            for weighted in [false, true] {
                check(vertices, &edges, weighted, None, partitions);
                check(
                    vertices,
                    &edges,
                    weighted,
                    Some(starts().collect()),
                    partitions,
                );
            }
        }
    }
}

#[test]
fn weights_of_zero_lead_nowhere() {
    let edges = vec![(0, 1, 0.0), (1, 2, 2.0), (1, 0, 0.0), (2, 2, 1.0)];
    check(3, &edges, true, None, 4);
}

/// A target with 70,000 sources and one of each length around where rows change their form.
fn star() -> (usize, EdgeList) {
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for target in 1..40u64 {
        sources.extend(100..100 + target);
        targets.extend(std::iter::repeat_n(target, target as usize));
    }
    sources.extend(100..70_100);
    targets.extend(std::iter::repeat_n(0, 70_000));
    (70_100, EdgeList::new(70_100, sources, targets))
}

/// More sources than a block has, and rows of every length; one turn, counted by hand.
#[test]
fn rows_of_every_length_over_several_blocks() {
    let (vertices, edges) = star();
    let ranked = pagerank(&edges, &fixed(1), &options(2, 1)).unwrap();
    let n = vertices as f64;
    let degree = |source: u64| 1.0 + (1..40).filter(|target| source < 100 + target).count() as f64;
    let lost = 100.0 / n;
    for target in 0..40u64 {
        let last = if target == 0 { 70_100 } else { 100 + target };
        let along: f64 = (100..last).map(|source| 1.0 / n / degree(source)).sum();
        let expected = 0.85 * (along + lost / n) + 0.15 / n;
        let found = ranked.ranks[target as usize];
        assert!(
            (found - expected).abs() < 1e-12,
            "{target}: {found} {expected}"
        );
    }
}

#[test]
fn ids_of_either_width_give_the_same_bits() {
    let edges = random(301, 3_000, 5);
    let narrow = list(301, &edges, false);
    let ids = |of: fn(&(u32, u32, f64)) -> u32| -> Vec<u64> {
        edges.iter().map(of).map(u64::from).collect()
    };
    let wide = EdgeList::new(301, ids(|edge| edge.0), ids(|edge| edge.1));
    let rank = |edges| pagerank(edges, &fixed(5), &options(2, 4)).unwrap().ranks;
    assert_eq!(bits(rank(&narrow)), bits(rank(&wide)));
}

#[test]
fn same_bits_for_any_threads() {
    let edges = random(5_000, 60_000, 9);
    for partitions in [1, 6, 7, 36] {
        for weighted in [false, true] {
            let edges = list(5_000, &edges, weighted);
            let rank = |threads| {
                let how = PageRank {
                    tol: 1e-12,
                    ..PageRank::default()
                };
                pagerank(&edges, &how, &options(threads, partitions)).unwrap()
            };
            let found = |ranked: Ranked| (bits(ranked.ranks), ranked.iterations);
            let expected = found(rank(1));
            for threads in [2, 3, 8] {
                assert_eq!(
                    found(rank(threads)),
                    expected,
                    "{threads} {partitions} {weighted}"
                );
            }
        }
    }
}

#[test]
fn without_partitions_the_bits_are_the_same_for_any_threads() {
    let edges = list(40_000, &random(40_000, 1_300_000, 2), false);
    let rank = |threads| {
        let options = RunOptions::new().threads(threads);
        bits(pagerank(&edges, &fixed(3), &options).unwrap().ranks)
    };
    let expected = rank(1);
    assert!(rank(2) == expected && rank(3) == expected);
}

#[test]
fn a_search_ends_when_the_changes_are_small() {
    let edges = random(301, 3_000, 4);
    let list = list(301, &edges, false);
    let how = PageRank::default();
    let ranked = pagerank(&list, &how, &options(2, 4)).unwrap();
    let starts = vec![1.0; 301];
    let turn = |turns| dense(301, &edges, false, &starts, turns);
    let change = |turns: u64| -> f64 {
        let pairs = turn(turns).into_iter().zip(turn(turns - 1));
        pairs.map(|(new, old)| (new - old).abs()).sum()
    };
    let first = (1..100)
        .find(|&turns| change(turns) < 301.0 * how.tol)
        .unwrap();
    assert!(ranked.converged);
    assert_eq!(ranked.iterations, first);
    assert!((ranked.change - change(first)).abs() < 1e-12);
}

#[test]
fn what_cannot_be_ranked_is_refused() {
    let refused = |edges: EdgeList, how: PageRank| -> String {
        match pagerank(&edges, &how, &RunOptions::new()) {
            Err(AnalysisError::Graph(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let two = || EdgeList::new(2, vec![0u32, 1], vec![1u32, 0]);
    let beyond = EdgeList::new(2, vec![0u32, 1], vec![1u32, 2]);
    assert!(refused(beyond, fixed(1)).starts_with("edge 1 (counted from 0) has target 2"));
    let empty = EdgeList::new(0, vec![0u32; 0], vec![0u32; 0]);
    assert!(refused(empty, fixed(1)).contains("no vertices"));
    for damping in [-0.1, 1.5, f64::NAN] {
        let how = PageRank {
            damping,
            ..fixed(1)
        };
        let message = refused(two(), how);
        assert_eq!(
            message,
            format!("damping = {damping} cannot be used; give a number from 0 to 1; 0.85 is usual")
        );
    }
    let negative = PageRank {
        tol: -1.0,
        ..fixed(1)
    };
    assert!(refused(two(), negative).starts_with("tol = -1"));
    assert!(refused(two(), fixed(0)).starts_with("max_iter = 0"));
    let personal = |values: Vec<f64>| {
        let personalization = Some(Foreign::owned(values));
        refused(
            two(),
            PageRank {
                personalization,
                ..fixed(1)
            },
        )
    };
    assert!(personal(vec![1.0]).contains("1 values for 2 vertices"));
    assert!(personal(vec![1.0, f64::NAN]).contains("NaN at vertex 1"));
    assert!(personal(vec![0.0, 0.0]).contains("adds up to 0"));
    // Found only while the job runs.
    for weight in [f64::MAX, 5e-324] {
        let edges = EdgeList::new(2, vec![0u32, 0], vec![1u32, 1]).weighted(vec![weight; 2]);
        assert!(refused(edges, fixed(3)).contains("scale the weights first"));
    }
}

#[test]
fn ranks_of_32_bits_are_near_those_of_64_and_have_the_same_bits_on_any_threads() {
    let edges = random(5_000, 60_000, 11);
    for weighted in [false, true] {
        let edges = list(5_000, &edges, weighted);
        let rank = |precision, threads| {
            let how = PageRank {
                precision,
                ..fixed(20)
            };
            pagerank(&edges, &how, &options(threads, 6)).unwrap().ranks
        };
        let wide = rank(Precision::F64, 1);
        let narrow = rank(Precision::F32, 1);
        for (narrow, wide) in narrow.iter().zip(&wide) {
            assert!((narrow - wide).abs() < 1e-6 * wide, "{narrow} {wide}");
        }
        assert!((narrow.iter().sum::<f64>() - 1.0).abs() < 1e-6);
        assert_ne!(narrow, wide);
        assert_eq!(bits(narrow), bits(rank(Precision::F32, 3)));
    }
}

/// Hubs: single sums of so many shares would lose a ten-thousandth of a rank.
#[test]
fn hubs_have_their_ranks_in_32_bits_too() {
    let (vertices, star) = star();
    for partitions in [1, 9] {
        let rank = |precision| {
            let how = PageRank {
                precision,
                ..fixed(30)
            };
            pagerank(&star, &how, &options(2, partitions))
                .unwrap()
                .ranks
        };
        let (wide, narrow) = (rank(Precision::F64), rank(Precision::F32));
        for vertex in 0..vertices {
            let error = (narrow[vertex] - wide[vertex]).abs() / wide[vertex];
            assert!(error < 1e-6, "{vertex}: {error}");
        }
        assert!((narrow.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    }
}

/// The setting is for loaded data: a graph's grid follows the graph alone, or what a program gives.
#[test]
fn partitions_do_not_enter_ranks() {
    let edges = list(5_000, &random(5_000, 60_000, 9), false);
    let rank = |options: RunOptions| bits(pagerank(&edges, &fixed(5), &options).unwrap().ranks);
    let expected = rank(RunOptions::new());
    for partitions in [1, 4, 7, 64] {
        assert_eq!(rank(RunOptions::new().partitions(partitions)), expected);
    }
    assert_ne!(rank(RunOptions::new().grid(9)), expected);
    let refused = pagerank(&edges, &fixed(1), &RunOptions::new().grid(0)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "grid = 0 cannot be used; give at least 1"
    );
}
