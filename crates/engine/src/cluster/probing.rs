//! Probes between hosts: each of them listens, and one process, wherever it runs, orders flows from each to each.
//!
//! A [`ProbeListener`] takes orders of whoever knows its token, and of nobody else: a connection begins with the greeting of every connection
//! of a cluster. [`probe_hosts`] gives the orders. Flows go from listener to listener.
//!
//! # Rules
//! * What follows the greeting is not encrypted. Nothing goes over it but orders, figures and bytes that mean nothing; an order names no file:
//!   directories are those with which a listener was started.
//! * A flow ends after [`FLOW_MOST`], whatever was ordered, and starts only to somebody who knows the token.
//! * Nobody waits without end: a greeting has [`GREETING_TIME`], a listener is given up that says nothing for longer than it may take.

mod asking;
mod greeting;
mod listener;
mod messages;

pub use asking::probe_hosts;
pub use listener::ProbeListener;

use brambling_protocol::greeting::GreetingError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The port of a probe's listener when nobody names one.
pub const PROBE_PORT: u16 = 7078;

/// What a greeting may take.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// What a flow, or the disks, may be busy for.
const FLOW_MOST: Duration = Duration::from_secs(10);
/// What an answer may take beyond the time that was ordered: a disk may have much to sync.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// Why hosts could not be probed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The text names no address.
    #[error(
        "`{text}` is no address; give HOST:PORT of each host on which `brambling probe --listen` runs"
    )]
    Address {
        /// What was given.
        text: String,
    },
    /// There are no two.
    #[error(
        "a network is between two hosts at least; start `brambling probe --listen ADDR:PORT` on each, and give all of their addresses with --hosts"
    )]
    TooFew,
    /// One is given twice.
    #[error("{host} is given twice; give each host once")]
    Twice {
        /// Which.
        host: String,
    },
    /// Nobody can be dialed there.
    #[error(
        "nobody can be reached at {host}: {why}; start `brambling probe --listen {host}` there, or look at the network and its firewalls"
    )]
    Unreachable {
        /// Where.
        host: String,
        /// Why not.
        why: io::Error,
    },
    /// The two do not come together: another token, another version.
    #[error(
        "{host} does not take part: {why} (--token-file, BRAMBLING_TOKEN or BRAMBLING_TOKEN_FILE name the token)"
    )]
    Unwelcome {
        /// Who.
        host: String,
        /// Why.
        why: GreetingError,
    },
    /// It went away, or never was a probe's listener.
    #[error(
        "{host} is gone, or no probe listens there: {why}; start `brambling probe --listen {host}` there, and probe again"
    )]
    Gone {
        /// Who.
        host: String,
        /// What happened.
        why: String,
    },
    /// Two hosts do not reach each other, though both are reached from here.
    #[error(
        "{from} cannot send to {to}: {why}; give addresses by which the hosts reach each other, and look at the network between the two"
    )]
    CutOff {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
        /// As the sender says.
        why: String,
    },
    /// A host's disk cannot be measured.
    #[error("on {host}: {why}")]
    Disk {
        /// Whose.
        host: String,
        /// As it says.
        why: String,
    },
    /// It has another version.
    #[error(
        "{host} has version {theirs} of brambling, and this is {}; install the same on both",
        super::VERSION
    )]
    Version {
        /// Who.
        host: String,
        /// Its version.
        theirs: String,
    },
    /// The address cannot be listened at.
    #[error(
        "cannot listen at {at}: {source}; give another address, as --listen ADDR:PORT, such as 10.0.0.7:0 for any free port"
    )]
    Listen {
        /// Where.
        at: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The system gives no threads or random bytes.
    #[error("the system does not give what a probe needs: {source}")]
    System {
        /// Why not.
        source: io::Error,
    },
    /// Whoever watches has said so.
    #[error("interrupted")]
    Interrupted,
}
