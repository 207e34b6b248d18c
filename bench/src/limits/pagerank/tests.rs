use super::*;
use brambling_machine::cpu;

/// A few hubs, vertices without any edge, rows of all lengths around those where a loop changes.
fn edges() -> (usize, Vec<u32>, Vec<u32>) {
    let vertices = 300;
    let mut edges = Vec::new();
    for target in 0..120u32 {
        for step in 0..target {
            edges.push(((step * 7 + target) % 250, target));
        }
    }
    (0..250).for_each(|source| edges.push((source, 280)));
    // No order.
    edges.sort_by_key(|(source, target)| (source * 31 + target * 17) % 101);
    let (sources, targets) = edges.into_iter().unzip();
    (vertices, sources, targets)
}

fn dense(vertices: usize, sources: &[u32], targets: &[u32], iterations: usize) -> Vec<f64> {
    let mut degrees = vec![0.0; vertices];
    sources.iter().for_each(|&s| degrees[s as usize] += 1.0);
    let mut ranks = vec![1.0 / vertices as f64; vertices];
    for _ in 0..iterations {
        let lost: f64 = (0..vertices)
            .filter(|&v| degrees[v] == 0.0)
            .map(|v| ranks[v])
            .sum();
        let mut next = vec![(0.15 + 0.85 * lost) / vertices as f64; vertices];
        for (&source, &target) in sources.iter().zip(targets) {
            next[target as usize] += 0.85 * ranks[source as usize] / degrees[source as usize];
        }
        ranks = next;
    }
    ranks
}

fn check<R: Real>(tolerance: f64) {
    let (vertices, sources, targets) = edges();
    let expected = dense(vertices, &sources, &targets, 5);
    let in_edges = InEdges::new(vertices, &sources, &targets);
    assert_eq!(in_edges.starts[vertices], sources.len());
    let near = |ranks: &[R], name: &str| {
        for (vertex, (&ours, expected)) in ranks.iter().zip(&expected).enumerate() {
            let ours: f64 = ours.into();
            let error = (ours - expected).abs();
            assert!(
                error <= tolerance * expected,
                "{name} {vertex}: {ours} {expected}"
            );
        }
    };
    near(&plain_loop::<R>(&in_edges, 5), "plain");
    let last = dense(vertices, &sources, &targets, 4);
    let change: f64 = expected.iter().zip(&last).map(|(a, b)| (a - b).abs()).sum();
    for bare in BareLoop::<R>::available() {
        for threads in [1, 3] {
            let places = cpu::places(threads).unwrap();
            let found = bare.iterate(&in_edges, &places, 5);
            near(&found.ranks, bare.name);
            assert!((found.change - change).abs() < tolerance * vertices as f64);
            assert_eq!(found.seconds.len(), 5);
        }
    }
}

#[test]
fn every_loop_ranks_as_a_dense_one() {
    check::<f64>(1e-13);
    check::<f32>(1e-5);
}

#[test]
fn every_gather_reads_every_place_once() {
    let table: Vec<f64> = (0..1_000).map(f64::from).collect();
    for count in [0, 1, 31, 65_536, 200_001] {
        let at = Gathers::new(1_000, (0..count).map(|at| at * 37 % 1_000).collect());
        let expected: f64 = (0..count).map(|at| f64::from(at * 37 % 1_000)).sum();
        for (name, bare) in BareLoop::cached() {
            let (seconds, sum) = bare.gather(&table, &at, &cpu::places(2).unwrap());
            assert_eq!(sum, expected, "{name}");
            assert!(seconds > 0.0);
        }
    }
}
