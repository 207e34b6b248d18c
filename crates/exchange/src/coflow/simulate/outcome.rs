//! What a simulation found.

/// How long a coflow took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Took {
    /// As the workload names it.
    pub name: u64,
    /// When it came.
    pub arrival_s: f64,
    /// From its arrival to the end of its last flow.
    pub cct_s: f64,
    /// What it would take alone: its busiest link, or the longest chain of those of its parts.
    pub isolated_s: f64,
    /// How long its flows are together.
    pub bytes: f64,
    /// How many flows it has.
    pub flows: u32,
    /// The bytes of its longest flow.
    pub longest_bytes: f64,
}

impl Took {
    /// How many times as long as alone.
    pub fn slowdown(&self) -> f64 {
        match self.isolated_s > 0.0 {
            true => self.cct_s / self.isolated_s,
            false => 1.0,
        }
    }
}

/// What a simulation found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Each coflow, in the order of arrival.
    pub coflows: Vec<Took>,
    /// Messages that the policy needed: one for each order that is told to a sender, and for each size that is.
    pub messages: u64,
    /// How often rates were worked out.
    pub rounds: u64,
}

impl Outcome {
    /// The mean of completion times.
    pub fn average_s(&self) -> f64 {
        let sum: f64 = self.coflows.iter().map(|it| it.cct_s).sum();
        sum / self.coflows.len().max(1) as f64
    }

    /// The completion time at such a share of their sorted list: of 526 the 499th for 0.95.
    pub fn percentile_s(&self, share: f64) -> f64 {
        let mut sorted: Vec<f64> = self.coflows.iter().map(|it| it.cct_s).collect();
        sorted.sort_by(f64::total_cmp);
        let place = (share * sorted.len() as f64).floor() as usize;
        sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    /// The mean of slowdowns.
    pub fn slowdown(&self) -> f64 {
        let sum: f64 = self.coflows.iter().map(Took::slowdown).sum();
        sum / self.coflows.len().max(1) as f64
    }
}
