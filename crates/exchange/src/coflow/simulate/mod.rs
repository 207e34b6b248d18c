//! How long coflows take under a policy: a simulation of flows that share links.
//!
//! Flows are fluid: each has a rate, which stays as it is until something happens: a coflow comes, a flow ends, the
//! policy changes an order. Then rates are worked out anew ([`share`]), for those groups of flows ([`group`]) that
//! are served no sooner than the one in which it happened ([`serving`]). Nothing is lost, and no packet waits.
//!
//! On a big switch all that is exact, but that a unit of many flows is seen to have what its policy waits for by up to a
//! five-thousandth of its age too late. On a fat tree flows that end are looked at at ticks of
//! [`SimulateOptions::resolution_s`]: what one leaves is idle until the next tick. When it ended is exact.

#[cfg(test)]
mod checks;
mod engine;
mod fabric;
mod group;
mod knowledge;
mod levels;
mod messages;
mod outcome;
mod serving;
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
    /// How far apart the moments are at which flows that have ended are looked at; none: each when it ends.
    pub resolution_s: Option<f64>,
    /// By up to which share of themselves announced sizes are off: those of one coflow all by the same.
    pub sizes_off: f64,
    /// Which share of hosts tells nobody anything: neither what they send, nor what they still have to receive.
    pub silent: f64,
    /// Where ports are on a fat tree, which paths flows take, which sizes are off by how much, and who is silent.
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
            sizes_off: 0.0,
            silent: 0.0,
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
    let done = simulate_watched(workload, policy, choices, options, &mut |_| true);
    done.expect("nobody stops it")
}

/// As [`simulate`]; `goes_on` is told from time to time which share of all flows has ended, and says whether to go on.
/// None: it said no.
pub fn simulate_watched(
    workload: &Workload,
    policy: PolicyName,
    choices: &PolicyChoices,
    options: &SimulateOptions,
    goes_on: &mut dyn FnMut(f64) -> bool,
) -> Option<Outcome> {
    engine::Engine::new(workload, policy.build(choices), options).run(goes_on)
}

#[cfg(test)]
mod tests;
