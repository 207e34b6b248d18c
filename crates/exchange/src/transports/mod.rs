//! What carries frames between processes.
//!
//! A [`Net`](tcp::Net) has links: connections on which both sides have proved that they know the cluster's token, and which
//! carry whole frames in order. Which worker and which job a link belongs to, and what to do when it is lost, its
//! owner knows.

pub mod tcp;
