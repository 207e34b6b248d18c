//! Links over TCP.

mod links;
mod support;
