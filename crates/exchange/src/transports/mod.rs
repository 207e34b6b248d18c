//! What carries frames between processes.
//!
//! A [`Net`](tcp::Net) has links: connections on which both sides have proved that they know the cluster's token, and which
//! carry whole frames in order, under [TLS](tls) if they are to. A [`Switchboard`](switchboard::Switchboard) knows which job and which peer each belongs to, and
//! makes it again when it is lost.

pub mod forks;
pub mod switchboard;
pub mod tcp;
pub mod tls;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address of this machine by which it reaches another. Nothing is sent.
///
/// # Errors
/// When there is no way there.
pub fn local_address_towards(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}
