//! How long coflows take under a policy: a simulation of flows that share links.
//!
//! Flows are fluid: each has a rate, which stays as it is until something happens: a coflow comes, a flow ends, the
//! policy changes an order. Then rates are worked out anew ([`share`]), for those groups of flows ([`group`]) that
//! are served no sooner than the one in which it happened. Nothing is lost, and no packet waits.
//!
//! On a big switch all that is exact. On a fat tree rates are looked at at ticks of [`SimulateOptions::resolution_s`]:
//! what a flow that ends leaves is idle until the next tick.

#[cfg(test)]
mod checks;
mod engine;
mod fabric;
mod group;
mod knowledge;
mod levels;
mod outcome;
mod share;
mod summary;
mod units;

pub use fabric::{Fabric, UnknownFabric};
pub use outcome::{Outcome, Took};
pub use summary::{Averages, CATEGORIES, SIZES_A, SIZES_B, Summary, category};

use super::policy::{PolicyChoices, PolicyName};
use super::workload::Workload;

/// How receivers of a coflow hear what others have received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerRelay {
    /// At once.
    #[default]
    Perfect,
    /// Through the senders they share, a round trip later.
    RoundTrip,
    /// Never.
    None,
}

/// How a simulation runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulateOptions {
    /// The network.
    pub fabric: Fabric,
    /// What a link carries, in gigabits a second.
    pub gbps: f64,
    /// How receivers hear of each other.
    pub relay: PeerRelay,
    /// How long a packet and its answer take, in seconds.
    pub rtt_s: f64,
    /// How far apart the moments are at which rates are looked at; none: whenever something happens.
    pub resolution_s: Option<f64>,
    /// Where ports are on a fat tree, and which paths flows take.
    pub seed: u64,
}

impl Default for SimulateOptions {
    fn default() -> SimulateOptions {
        SimulateOptions {
            fabric: Fabric::BigSwitch,
            gbps: 1.0,
            relay: PeerRelay::Perfect,
            rtt_s: 100e-6,
            resolution_s: None,
            seed: 1,
        }
    }
}

/// Simulates a workload under a policy.
///
/// # Examples
/// ```
/// use brambling_exchange::coflow::policy::{PolicyChoices, PolicyName};
/// use brambling_exchange::coflow::simulate::{SimulateOptions, simulate};
/// use brambling_exchange::coflow::workload::Workload;
///
/// // 250 MB and 125 MB into one port of 1 Gbit/s.
/// let trace = Workload::from_trace("3 2\n1 0 1 0 1 2:250\n2 0 1 1 1 2:125\n")?;
/// let options = SimulateOptions::default();
/// let of = |policy| simulate(&trace, policy, &PolicyChoices::default(), &options);
/// let fair: Vec<f64> = of(PolicyName::Fair).coflows.iter().map(|it| it.cct_s).collect();
/// assert_eq!(fair, [3.0, 2.0]);
/// let varys: Vec<f64> = of(PolicyName::Varys).coflows.iter().map(|it| it.cct_s).collect();
/// assert_eq!(varys, [3.0, 1.0]);
/// # Ok::<(), brambling_exchange::coflow::workload::TraceError>(())
/// ```
pub fn simulate(
    workload: &Workload,
    policy: PolicyName,
    choices: &PolicyChoices,
    options: &SimulateOptions,
) -> Outcome {
    engine::Engine::new(workload, policy.build(choices), options).run()
}

#[cfg(test)]
mod tests;
