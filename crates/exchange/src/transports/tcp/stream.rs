//! A link's socket: TCP's, or what the system has for two processes of one machine.
//!
//! # On one machine
//! Who listens at an address with TCP listens also at a Unix socket that is named after it, in the abstract namespace of the
//! machine (unix(7)): there are no segments, acknowledgements and checksums to make, and pieces of a megabyte go twice as fast. Who dials an
//! address tries that name first. The name belongs to a network namespace, as the address does: on another host nobody has it, and TCP is used.
//!
//! Anybody on the machine may take such a name while it is free. So who dials goes on only where a process of the same user listens, as
//! the system says; TCP is used otherwise. Who listens takes nobody of another user there. The greeting is the same on both.

use brambling_protocol::patience::{KEEPALIVE, KEEPALIVE_EACH, KEEPALIVE_TRIES};
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as Name;

/// What a process of the same machine may leave unread before who writes has to come again: a piece of some size, so that a thread hands it
/// over with one call and turns to other work, and the one that reads is not woken for every part of it.
const LOCAL_SEND_BYTES: usize = 4 << 20;

/// A nonblocking connection.
pub(super) enum SocketStream {
    Tcp(TcpStream),
    /// Between processes of one machine.
    Local(UnixStream),
}

impl SocketStream {
    /// Begins to connect; `local` says whether somebody on this machine is looked for first.
    ///
    /// # Errors
    /// When the system has no socket to give.
    pub(super) fn dial(to: SocketAddr, local: bool) -> io::Result<SocketStream> {
        match local.then(|| dial_local(to)).flatten() {
            Some(stream) => Ok(SocketStream::Local(stream)),
            None => Ok(SocketStream::Tcp(TcpStream::connect(to)?)),
        }
    }

    /// What frames want of a connection.
    pub(super) fn tune(&self) {
        match self {
            SocketStream::Tcp(stream) => {
                // A frame is a whole message: waiting for more gains nothing. Where the option is
                // refused, the connection is only slower.
                let _ = stream.set_nodelay(true);
                // Where keepalive is refused, a connection that dies silently is noticed when
                // something is sent.
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
                let keepalive = keepalive.with_interval(KEEPALIVE_EACH);
                let keepalive = keepalive.with_retries(KEEPALIVE_TRIES);
                let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
            }
            // The system grants as large a buffer as it grants anybody. TCP's buffers grow by
            // themselves.
            SocketStream::Local(stream) => {
                let _ = SockRef::from(stream).set_send_buffer_size(LOCAL_SEND_BYTES);
            }
        }
    }

    /// Whether the other side has been reached.
    pub(super) fn is_connected(&self) -> bool {
        match self {
            SocketStream::Tcp(stream) => stream.peer_addr().is_ok(),
            SocketStream::Local(stream) => stream.peer_addr().is_ok(),
        }
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            SocketStream::Tcp(stream) => stream.take_error(),
            SocketStream::Local(stream) => stream.take_error(),
        }
    }

    pub(super) fn shut(&self) -> io::Result<()> {
        match self {
            SocketStream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            SocketStream::Local(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Whether the other end is a process of this machine and user.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, SocketStream::Local(_))
    }
}

impl AsFd for SocketStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            SocketStream::Tcp(stream) => stream.as_fd(),
            SocketStream::Local(stream) => stream.as_fd(),
        }
    }
}

impl AsRawFd for SocketStream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            SocketStream::Tcp(stream) => stream.as_raw_fd(),
            SocketStream::Local(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for &SocketStream {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        match self {
            SocketStream::Tcp(stream) => { stream }.read(place),
            SocketStream::Local(stream) => { stream }.read(place),
        }
    }
}

impl Write for &SocketStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            SocketStream::Tcp(stream) => { stream }.write(bytes),
            SocketStream::Local(stream) => { stream }.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            SocketStream::Tcp(stream) => { stream }.write_vectored(slices),
            SocketStream::Local(stream) => { stream }.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where others connect.
pub(super) enum SocketListener {
    Tcp(TcpListener),
    /// Of processes of this machine, which mean this address.
    Local(UnixListener, SocketAddr),
}

impl SocketListener {
    /// Listens at an address, and where `local` says so at the name of it.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub(super) fn bind(
        at: SocketAddr,
        local: bool,
    ) -> io::Result<(Vec<SocketListener>, SocketAddr)> {
        let listener = TcpListener::bind(at)?;
        let at = listener.local_addr()?;
        let mut listeners = vec![SocketListener::Tcp(listener)];
        // Nobody dials an address that stands for all of them, so it gets no name. Where somebody
        // else has the name, dialers use TCP.
        if local
            && !at.ip().is_unspecified()
            && let Ok(listener) = name(at).and_then(|name| UnixListener::bind_addr(&name))
        {
            listeners.push(SocketListener::Local(listener, at));
        }
        Ok((listeners, at))
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            SocketListener::Tcp(it) => registry.register(it, token, Interest::READABLE),
            SocketListener::Local(it, _) => registry.register(it, token, Interest::READABLE),
        }
    }

    /// Who has dialed, and from where; none where it came by the name, and is of another user.
    pub(super) fn accept(&self) -> io::Result<Option<(SocketStream, SocketAddr)>> {
        match self {
            SocketListener::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                Ok(Some((SocketStream::Tcp(stream), from)))
            }
            SocketListener::Local(listener, at) => {
                let (stream, _) = listener.accept()?;
                // The dialer is on this machine, and has no port.
                let from = SocketAddr::new(at.ip(), 0);
                // A dialer whose user is unknown is refused.
                let is_ours = is_of_our_user(&stream).unwrap_or(false);
                Ok(is_ours.then_some((SocketStream::Local(stream), from)))
            }
        }
    }
}

impl AsRawFd for SocketListener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            SocketListener::Tcp(listener) => listener.as_raw_fd(),
            SocketListener::Local(listener, _) => listener.as_raw_fd(),
        }
    }
}

/// An address's name for processes of this machine.
fn name(of: SocketAddr) -> io::Result<Name> {
    Name::from_abstract_name(format!("brambling/{of}"))
}

/// Whether the system says that the other end is a process of this one's user.
fn is_of_our_user(stream: &UnixStream) -> io::Result<bool> {
    Ok(socket_peercred(stream)?.uid == geteuid())
}

/// A connection to who listens at an address on this machine; none where no process of this user does.
fn dial_local(to: SocketAddr) -> Option<UnixStream> {
    let connect = || {
        let stream = UnixStream::connect_addr(&name(to)?)?;
        match is_of_our_user(&stream)? {
            // Anybody may have taken the name while it was free.
            true => Ok(stream),
            false => Err(io::Error::from(ErrorKind::PermissionDenied)),
        }
    };
    // Whatever is wrong with the Unix socket: dialing TCP shows whether anybody is there.
    connect().ok()
}
