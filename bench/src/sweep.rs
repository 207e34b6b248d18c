//! How much work a task must do for the overhead to be a given share of its time.

use crate::BenchError;

/// A length of work, what a task of it took of one core, and which share of that was not work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    work: u64,
    core_ns: f64,
    overhead: f64,
}

impl Point {
    /// A task of `work` took `core_ns`, of which the work alone takes `busy_ns`.
    pub(crate) fn new(work: u64, core_ns: f64, busy_ns: f64) -> Point {
        Point {
            work,
            core_ns,
            overhead: (1.0 - busy_ns / core_ns).max(0.0),
        }
    }
}

/// No length of work beyond this is tried: only a machine that does something else needs as much.
const WORK_MAX: u64 = 100_000;

/// What was measured so far.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    points: Vec<Point>,
}

impl Sweep {
    /// Measures `steps` lengths of work, steered towards the given share of overhead; the first is
    /// `first`, unless something has been measured before.
    pub(crate) fn seek(
        &mut self,
        share: f64,
        first: u64,
        steps: usize,
        mut measure: impl FnMut(u64) -> Result<Point, BenchError>,
    ) -> Result<(), BenchError> {
        for _ in 0..steps {
            let work = self.aim(share).unwrap_or(first);
            self.points.push(measure(work)?);
        }
        Ok(())
    }

    /// The work that should give the share, from the measurement nearest to it.
    fn aim(&self, share: f64) -> Option<u64> {
        let distance = |point: &&Point| (point.overhead - share).abs();
        let nearest = self
            .points
            .iter()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        // Overhead per task hardly depends on the work.
        let overhead_ns = (nearest.core_ns * nearest.overhead).max(1.0);
        let work_ns = nearest.core_ns * (1.0 - nearest.overhead) / nearest.work as f64;
        let aimed = overhead_ns * (1.0 - share) / share / work_ns.max(1e-3);
        // Past the aim by a little, so that the measurements come to lie on both sides.
        let past = if nearest.overhead > share { 1.1 } else { 0.9 };
        Some(((aimed * past) as u64).clamp(1, WORK_MAX))
    }

    /// The core time of a task at which the overhead has that share: between the measurements on either
    /// side of it, or, where all lie on one side, from the overhead of the nearest.
    pub(crate) fn core_ns_at(&self, share: f64) -> f64 {
        let below = self
            .points
            .iter()
            .filter(|point| point.overhead <= share)
            .max_by(|a, b| a.overhead.total_cmp(&b.overhead));
        let above = self
            .points
            .iter()
            .filter(|point| point.overhead > share)
            .min_by(|a, b| a.overhead.total_cmp(&b.overhead));
        match (below, above) {
            (Some(below), Some(above)) => {
                let at = (share - below.overhead) / (above.overhead - below.overhead);
                below.core_ns + at * (above.core_ns - below.core_ns)
            }
            (Some(point), None) | (None, Some(point)) => {
                // No overhead was seen at all: a thousandth of the time is what cannot be seen.
                point.core_ns * point.overhead.max(1e-3) / share
            }
            (None, None) => unreachable!("one point at least was measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task of 30 ns overhead and 2 ns per unit of work.
    fn measure(work: u64) -> Result<Point, BenchError> {
        let busy_ns = 2.0 * work as f64;
        Ok(Point::new(work, 30.0 + busy_ns, busy_ns))
    }

    #[test]
    fn the_sweep_finds_the_share() {
        let mut sweep = Sweep::default();
        sweep.seek(0.1, 7, 6, measure).unwrap();
        assert!(
            (sweep.core_ns_at(0.1) - 300.0).abs() < 3.0,
            "{:?}",
            sweep.points
        );
        // Goes on from what is known.
        sweep.seek(0.5, 7, 4, measure).unwrap();
        assert!(
            (sweep.core_ns_at(0.5) - 60.0).abs() < 1.0,
            "{:?}",
            sweep.points
        );
    }

    #[test]
    fn one_sided_measurements_are_extended() {
        let mut sweep = Sweep::default();
        sweep.seek(0.1, 15, 1, measure).unwrap();
        assert!((sweep.core_ns_at(0.1) - 300.0).abs() < 1e-9);
    }
}
