//! Policies by their names, as the command line has them.

use super::{
    Aalo, Baraat, Fair, Fifo, Policy, ReceiverDriven, ReceiverDrivenSettings, StreamPolicy,
    StreamRule, StreamSettings, Varys,
};
use std::fmt;
use std::str::FromStr;

/// A policy that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyName {
    /// [`Fair`].
    Fair,
    /// [`Fifo`].
    Fifo,
    /// [`Baraat`].
    Baraat,
    /// [`Aalo`].
    Aalo,
    /// [`StreamPolicy`].
    Stream,
    /// [`Varys`].
    Varys,
    /// [`ReceiverDriven`].
    ReceiverDriven,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [PolicyName; 7] = [
        PolicyName::Fair,
        PolicyName::Fifo,
        PolicyName::Baraat,
        PolicyName::Aalo,
        PolicyName::Stream,
        PolicyName::Varys,
        PolicyName::ReceiverDriven,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            PolicyName::Fair => "fair",
            PolicyName::Fifo => "fifo",
            PolicyName::Baraat => "baraat",
            PolicyName::Aalo => "aalo",
            PolicyName::Stream => "stream",
            PolicyName::Varys => "varys",
            PolicyName::ReceiverDriven => "receiver-driven",
        }
    }

    /// How many queues it has unless told.
    pub fn queues(self) -> u8 {
        match self {
            PolicyName::Aalo => 10,
            _ => 8,
        }
    }

    /// The policy, as the choices have it.
    pub fn build(self, choices: &PolicyChoices) -> Box<dyn Policy> {
        let queues = choices.queues.unwrap_or(self.queues());
        match self {
            PolicyName::Fair => Box::new(Fair),
            PolicyName::Fifo => Box::new(Fifo),
            PolicyName::Baraat => Box::new(Baraat::new(choices.heavy_bytes)),
            PolicyName::Aalo => Box::new(Aalo::new(queues, choices.threshold, choices.factor)),
            PolicyName::Stream => Box::new(StreamPolicy::new(StreamSettings {
                queues,
                threshold: choices.threshold,
                factor: choices.factor,
                rule: choices.rule,
                ..choices.stream
            })),
            PolicyName::Varys => Box::new(Varys),
            PolicyName::ReceiverDriven => Box::new(ReceiverDriven::new(ReceiverDrivenSettings {
                queues,
                threshold_of_bytes: choices.threshold,
                factor_of_bytes: choices.factor,
                ..choices.receiver_driven
            })),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no policy of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no policy {0:?}; there are fair, fifo, baraat, aalo, stream, varys and receiver-driven"
)]
pub struct UnknownPolicy(pub String);

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<PolicyName, UnknownPolicy> {
        if name == "ours" {
            return Ok(PolicyName::ReceiverDriven);
        }
        let found = PolicyName::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

/// What policies are built with.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChoices {
    /// How many queues; none: as many as the policy has unless told.
    pub queues: Option<u8>,
    /// Where the first queue ends, in bytes.
    pub threshold: f64,
    /// How many times the threshold before the next one is.
    pub factor: f64,
    /// How [`StreamPolicy`] reads equation 2.
    pub rule: StreamRule,
    /// Beyond how many bytes a coflow is heavy to [`Baraat`].
    pub heavy_bytes: f64,
    /// What else [`StreamPolicy`] is built with.
    pub stream: StreamSettings,
    /// What [`ReceiverDriven`] is built with.
    pub receiver_driven: ReceiverDrivenSettings,
}

impl Default for PolicyChoices {
    fn default() -> PolicyChoices {
        PolicyChoices {
            queues: None,
            threshold: 10e6,
            factor: 10.0,
            rule: StreamRule::default(),
            heavy_bytes: Baraat::HEAVY_BYTES,
            stream: StreamSettings::default(),
            receiver_driven: ReceiverDrivenSettings::default(),
        }
    }
}
