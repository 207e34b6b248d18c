//! The tests of links: over TCP in `tcp.rs`, and once more over Unix sockets in `local.rs`.

mod greeted;
mod places;
mod strangers;
mod switchboard;
