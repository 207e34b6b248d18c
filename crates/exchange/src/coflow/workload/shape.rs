//! Gives coflows other shapes: waves, bursts, graphs of several exchanges, more load.

use super::{Coflow, CoflowPart, Workload};
use crate::coflow::sub_coflow_id;
use std::str::FromStr;

/// A job's graph of exchanges, each of which is a copy of the coflow (the choice of Stream's authors).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dag {
    /// Query 42 of TPC-DS: sort ← aggregate ← two that feed the second join ← two that feed the first.
    Tpcds42,
    /// Facebook's Tao: web servers ← two followers ← two leaders ← the database.
    Tao,
}

/// A name that no graph has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no graph {0:?}; give tpcds42 or tao")]
pub struct UnknownDag(pub String);

impl FromStr for Dag {
    type Err = UnknownDag;

    fn from_str(name: &str) -> Result<Dag, UnknownDag> {
        match name {
            "tpcds42" => Ok(Dag::Tpcds42),
            "tao" => Ok(Dag::Tao),
            _ => Err(UnknownDag(name.to_owned())),
        }
    }
}

impl Dag {
    /// Of each node its children, which are done before it begins. Parents stand before children.
    fn children(self) -> [&'static [u32]; 6] {
        match self {
            // Sort; aggregate; item to the second join, the first join to the second; dates and sales to the first join.
            Dag::Tpcds42 => [&[1], &[2, 3], &[], &[4, 5], &[], &[]],
            // Web; two followers; two leaders, of which one leads both; the database.
            Dag::Tao => [&[1, 2], &[3], &[3, 4], &[5], &[5], &[]],
        }
    }

    /// The nodes' numbers, by Algorithm 1: the first one's is 1.
    fn ids(self) -> [u32; 6] {
        let children = self.children();
        let mut ids = [1; 6];
        for node in 1..6 {
            let parents = (0..node).filter(|parent| children[*parent].contains(&(node as u32)));
            let offered: Vec<u32> = parents.map(|parent| ids[parent] + 1).collect();
            ids[node] = sub_coflow_id(&offered);
        }
        ids
    }
}

/// Which share of a coflow's flows come in each wave, in hundredths (Table 2 of Stream).
const WAVES: [&[u32]; 4] = [&[100], &[90, 10], &[81, 9, 10], &[81, 9, 4, 6]];

impl Workload {
    /// All coflows come at once.
    #[must_use]
    pub fn burst(mut self) -> Workload {
        self.coflows
            .iter_mut()
            .for_each(|coflow| coflow.arrival_s = 0.0);
        self
    }

    /// Coflows come so many times as fast.
    #[must_use]
    pub fn loaded(mut self, times: f64) -> Workload {
        self.coflows
            .iter_mut()
            .for_each(|coflow| coflow.arrival_s /= times);
        self
    }

    /// Of all coflows in the order of their size the middle one of each so many, and they come so many times as fast: the
    /// same share of them is large, and links are about as busy.
    #[must_use]
    pub fn sampled(self, every: u32) -> Workload {
        if every <= 1 {
            return self;
        }
        let mut order: Vec<usize> = (0..self.coflows.len()).collect();
        let sizes: Vec<f64> = self.coflows.iter().map(Coflow::bytes).collect();
        order.sort_by(|one, other| sizes[*one].total_cmp(&sizes[*other]).then(one.cmp(other)));
        // The middle one of each so many, or of all there are.
        let middle = (every as usize / 2).min(order.len() / 2);
        let taken = order.into_iter().skip(middle);
        let mut taken: Vec<usize> = taken.step_by(every as usize).collect();
        taken.sort_unstable();
        let coflows = taken.into_iter().map(|it| self.coflows[it].clone());
        Workload::of(self.ports, coflows.collect()).loaded(f64::from(every))
    }

    /// Each coflow comes in up to four waves. A wave begins when the one before it is done: the paper does not say when.
    /// Coflows of few flows come in fewer.
    #[must_use]
    pub fn in_waves(mut self, waves: usize) -> Workload {
        let shares = WAVES[waves.clamp(1, WAVES.len()) - 1];
        self.coflows
            .iter_mut()
            .for_each(|coflow| split(coflow, shares));
        self
    }

    /// Each coflow becomes a graph of copies of it.
    #[must_use]
    pub fn as_dag(mut self, dag: Dag) -> Workload {
        for coflow in &mut self.coflows {
            let flows: Vec<_> = coflow.flows().copied().collect();
            let parts = dag.ids().into_iter().zip(dag.children());
            let part = |(sub_coflow, after): (u32, &[u32])| CoflowPart {
                sub_coflow,
                flows: flows.clone(),
                after: after.to_vec(),
                is_wave: false,
            };
            coflow.parts = parts.map(part).collect();
        }
        self
    }
}

fn split(coflow: &mut Coflow, shares: &[u32]) {
    let flows: Vec<_> = coflow.flows().copied().collect();
    let count = flows.len() as u32;
    let mut parts: Vec<CoflowPart> = Vec::new();
    let (mut begin, mut told) = (0, 0);
    for share in shares {
        told += share;
        // Every wave has a flow while there are any.
        let end = (count * told).div_ceil(100).max(begin + 1).min(count);
        if begin < end {
            let place = parts.len() as u32;
            parts.push(CoflowPart {
                sub_coflow: 1,
                flows: flows[begin as usize..end as usize].to_vec(),
                after: place.checked_sub(1).into_iter().collect(),
                is_wave: place > 0,
            });
        }
        begin = end.max(begin);
    }
    coflow.parts = parts;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coflow::workload::FlowSpec;

    fn coflow(flows: u32) -> Workload {
        let flow = |source| FlowSpec {
            source,
            destination: 200,
            bytes: 1e6,
        };
        Workload::of(
            201,
            vec![Coflow::of(1, 4.0, (0..flows).map(flow).collect())],
        )
    }

    fn counts(workload: &Workload) -> Vec<usize> {
        workload.coflows[0]
            .parts
            .iter()
            .map(|part| part.flows.len())
            .collect()
    }

    #[test]
    fn waves_have_the_shares_of_table_2() {
        let of = |waves| counts(&coflow(100).in_waves(waves));
        assert_eq!(
            [of(1), of(2), of(3), of(4)],
            [vec![100], vec![90, 10], vec![81, 9, 10], vec![81, 9, 4, 6]]
        );
        assert_eq!(counts(&coflow(3).in_waves(4)), [3]);
        assert_eq!(coflow(100).in_waves(3).bytes(), 100e6);
    }

    #[test]
    fn a_sample_has_the_sizes_of_the_whole() {
        let of = |bytes: u64| {
            Coflow::of(
                bytes,
                bytes as f64,
                vec![FlowSpec {
                    source: 0,
                    destination: 1,
                    bytes: bytes as f64,
                }],
            )
        };
        let all = Workload::of(2, (0..100).rev().map(of).collect());
        let some = all.clone().sampled(10);
        let names: Vec<u64> = some.coflows.iter().map(|it| it.name).collect();
        assert_eq!(names, [5, 15, 25, 35, 45, 55, 65, 75, 85, 95]);
        assert_eq!(some.coflows[3].arrival_s, 3.5);
        assert_eq!(all.clone().sampled(1), all);
        assert_eq!(all.clone().sampled(1000).coflows.len(), 1);
    }

    #[test]
    fn nodes_have_the_numbers_of_figure_4() {
        assert_eq!(Dag::Tpcds42.ids(), [1, 2, 3, 3, 4, 4]);
        // The leader of both followers is the paper's C 8,4.
        assert_eq!(Dag::Tao.ids(), [1, 2, 2, 4, 3, 5]);
        let graph = coflow(2).as_dag(Dag::Tao);
        assert_eq!((graph.flows(), graph.bytes()), (12, 12e6));
        assert_eq!("tao".parse(), Ok(Dag::Tao));
        assert!(
            "web"
                .parse::<Dag>()
                .unwrap_err()
                .to_string()
                .ends_with("give tpcds42 or tao")
        );
    }

    #[test]
    fn a_burst_comes_at_once_and_load_makes_coflows_come_faster() {
        assert_eq!(coflow(1).burst().coflows[0].arrival_s, 0.0);
        assert_eq!(coflow(1).loaded(2.0).coflows[0].arrival_s, 2.0);
    }
}
