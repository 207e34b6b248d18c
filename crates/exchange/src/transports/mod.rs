//! What carries frames between processes.
//!
//! A [`Net`](tcp::Net) has links: connections on which both sides have proved that they know the cluster's token, and which
//! carry whole frames in order. A [`Switchboard`](switchboard::Switchboard) knows which job and which peer each belongs to, and
//! makes it again when it is lost.

pub mod switchboard;
pub mod tcp;
