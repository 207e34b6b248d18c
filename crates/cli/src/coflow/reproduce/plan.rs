//! What is run for the figures: one policy, on one fat tree, with one workload.

use brambling::coflow::policy::{PolicyChoices, PolicyName};
use brambling::coflow::simulate::{Fabric, SimulateOptions};
use brambling::coflow::workload::{Dag, GenerateOptions, Tails, Workload};

/// Coflows that are made come so many times as fast, so links are as busy as under the public trace.
pub(super) const LOAD_OF_MADE: f64 = 4.0;

/// The pods of most figures.
const PODS_OF_MOST: u32 = 8;

/// A policy as a figure has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    Fair,
    Baraat,
    /// With four queues, as the paper has it.
    Aalo4,
    /// With ten, as its authors have it.
    Aalo10,
    Stream(u8),
    Ours,
}

impl Contender {
    /// Those of most figures.
    pub(super) const MOST: [Contender; 7] = [
        Contender::Fair,
        Contender::Baraat,
        Contender::Aalo4,
        Contender::Aalo10,
        Contender::Stream(4),
        Contender::Stream(8),
        Contender::Ours,
    ];

    pub(super) fn name(self) -> String {
        match self {
            Contender::Fair => "fair".to_owned(),
            Contender::Baraat => "baraat".to_owned(),
            Contender::Aalo4 => "aalo, 4 queues".to_owned(),
            Contender::Aalo10 => "aalo, 10 queues".to_owned(),
            Contender::Stream(queues) => format!("stream, {queues} queues"),
            Contender::Ours => "receiver-driven".to_owned(),
        }
    }

    fn policy(self) -> (PolicyName, Option<u8>) {
        match self {
            Contender::Fair => (PolicyName::Fair, None),
            Contender::Baraat => (PolicyName::Baraat, None),
            Contender::Aalo4 => (PolicyName::Aalo, Some(4)),
            Contender::Aalo10 => (PolicyName::Aalo, Some(10)),
            Contender::Stream(queues) => (PolicyName::Stream, Some(queues)),
            Contender::Ours => (PolicyName::ReceiverDriven, None),
        }
    }
}

/// How the coflows of a run come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoflowShape {
    AsTheyCome,
    Waves(u8),
    Burst,
    Graph(Dag),
}

/// Where coflows are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoflowSource {
    /// The trace that is given, or what is made in its place.
    Trace,
    /// So many are made.
    Made(u32),
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunPlan {
    pub(super) contender: Contender,
    pub(super) pods: u32,
    pub(super) gbps: u32,
    pub(super) shape: CoflowShape,
    pub(super) source: CoflowSource,
    pub(super) threshold_mb: u32,
}

/// What all runs have in common.
pub(super) struct FigureSource {
    pub(super) trace: Workload,
    /// Of all coflows every so many-th by size is taken, and they come so many times as fast.
    pub(super) every: u32,
    /// The same on more than 8 pods, and where each becomes a graph of six or all come at once.
    pub(super) every_of_large: u32,
    /// At 1 Gbit/s; flows are as much shorter as links are faster.
    pub(super) resolution_s: f64,
    pub(super) seed: u64,
}

impl RunPlan {
    /// As they come, on 8 pods at 1 Gbit/s.
    pub(super) fn of(contender: Contender) -> RunPlan {
        RunPlan {
            contender,
            pods: PODS_OF_MOST,
            gbps: 1,
            shape: CoflowShape::AsTheyCome,
            source: CoflowSource::Trace,
            threshold_mb: 10,
        }
    }

    /// The name under which what it came to is kept.
    pub(super) fn key(&self) -> String {
        let (policy, queues) = self.contender.policy();
        let queues = queues.map_or(String::new(), |it| format!("-{it}"));
        let shape = match self.shape {
            CoflowShape::AsTheyCome => String::new(),
            CoflowShape::Waves(waves) => format!("-waves-{waves}"),
            CoflowShape::Burst => "-burst".to_owned(),
            CoflowShape::Graph(Dag::Tpcds42) => "-tpcds42".to_owned(),
            CoflowShape::Graph(Dag::Tao) => "-tao".to_owned(),
        };
        let source = match self.source {
            CoflowSource::Trace => String::new(),
            CoflowSource::Made(count) => format!("-made-{count}"),
        };
        let threshold = match self.threshold_mb {
            10 => String::new(),
            megabytes => format!("-{megabytes}MB"),
        };
        let (pods, gbps) = (self.pods, self.gbps);
        format!("{policy}{queues}-fattree-{pods}-{gbps}g{shape}{source}{threshold}")
    }

    /// Whether it takes so long that fewer coflows are taken.
    fn is_large(&self) -> bool {
        self.pods > PODS_OF_MOST || matches!(self.shape, CoflowShape::Graph(_) | CoflowShape::Burst)
    }

    pub(super) fn workload(&self, common: &FigureSource) -> Workload {
        let all = match self.source {
            CoflowSource::Trace => common.trace.clone(),
            CoflowSource::Made(coflows) => {
                let made = GenerateOptions {
                    coflows,
                    ports: common.trace.ports,
                    tails: Tails::Facebook,
                    seed: common.seed,
                };
                Workload::generate(&made).loaded(LOAD_OF_MADE)
            }
        };
        let every = match self.is_large() {
            true => common.every_of_large,
            false => common.every,
        };
        let some = all.sampled(every);
        match self.shape {
            CoflowShape::AsTheyCome => some,
            CoflowShape::Waves(waves) => some.in_waves(usize::from(waves)),
            CoflowShape::Burst => some.burst(),
            CoflowShape::Graph(dag) => some.as_dag(dag),
        }
    }

    pub(super) fn choices(&self) -> (PolicyName, PolicyChoices) {
        let (policy, queues) = self.contender.policy();
        let choices = PolicyChoices {
            queues,
            threshold: f64::from(self.threshold_mb) * 1e6,
            ..PolicyChoices::default()
        };
        (policy, choices)
    }

    pub(super) fn options(&self, common: &FigureSource) -> SimulateOptions {
        SimulateOptions {
            fabric: Fabric::FatTree(self.pods),
            gbps: f64::from(self.gbps),
            resolution_s: Some(common.resolution_s / f64::from(self.gbps)),
            seed: common.seed,
            ..SimulateOptions::default()
        }
    }

    /// How long it takes beside others, for the time left.
    pub(super) fn weight(&self, common: &FigureSource) -> f64 {
        let of_shape = match self.shape {
            // Six times the flows, and queues that grow.
            CoflowShape::Graph(_) => 20.0,
            CoflowShape::Burst => 6.0,
            CoflowShape::AsTheyCome | CoflowShape::Waves(_) => 1.0,
        };
        let of_gbps = if self.gbps > 1 { 0.5 } else { 1.0 };
        // Of twice the coflows each moment looks at twice the flows, and there are twice as many moments.
        let fewer = match self.is_large() {
            true => f64::from(common.every) / f64::from(common.every_of_large),
            false => 1.0,
        };
        of_shape * of_gbps * fewer * fewer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_differ_have_different_names() {
        let run = RunPlan::of(Contender::Stream(4));
        let others = [
            RunPlan {
                contender: Contender::Stream(8),
                ..run
            },
            RunPlan { pods: 16, ..run },
            RunPlan { gbps: 10, ..run },
            RunPlan {
                shape: CoflowShape::Waves(2),
                ..run
            },
            RunPlan {
                shape: CoflowShape::Burst,
                ..run
            },
            RunPlan {
                shape: CoflowShape::Graph(Dag::Tao),
                ..run
            },
            RunPlan {
                source: CoflowSource::Made(1000),
                ..run
            },
            RunPlan {
                threshold_mb: 1,
                ..run
            },
        ];
        let mut keys: Vec<String> = others.iter().map(RunPlan::key).chain([run.key()]).collect();
        assert_eq!(run.key(), "stream-4-fattree-8-1g");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), others.len() + 1);
    }
}
