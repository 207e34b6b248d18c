//! What the processes share: greetings, epochs, and messages as frames.

use super::{Certificates, ClusterError};
use brambling_exchange::transports::switchboard::{PartyRefusal, Reception, Switchboard};
use brambling_exchange::transports::tcp::NetOptions;
use brambling_memory::Budget;
use brambling_protocol::frame::{Body, Frame};
use brambling_protocol::greeting::{Nonce, Token};
use brambling_protocol::message::Message;
use bytes::Bytes;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Random bytes of the system.
pub(super) fn random() -> std::io::Result<Nonce> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
    Ok(bytes)
}

fn nonce() -> Nonce {
    // The system gave random bytes when the process began; it does not take that back.
    random().expect("random bytes of the system")
}

/// Differs each time a process starts.
pub(super) fn epoch() -> Result<u64, ClusterError> {
    let random = random().map_err(|source| ClusterError::System { source })?;
    Ok(u64::from_le_bytes(*random.first_chunk().expect("32 bytes")))
}

pub(super) fn board(
    bind: Option<SocketAddr>,
    token: Token,
    certificates: Option<&Certificates>,
    epoch: u64,
    budget: &Budget,
    reception: Arc<dyn Reception>,
) -> std::io::Result<Switchboard> {
    let options = NetOptions {
        bind,
        token,
        nonce,
        tls: certificates.map(Certificates::tls),
        local: true,
        budget: budget.clone(),
    };
    Switchboard::receiving(options, epoch, reception)
}

/// A message as it goes.
pub(super) fn framed(message: Message<'_>) -> Bytes {
    Frame::message(message).to_bytes()
}

/// The message in a frame.
pub(super) fn message(frame: &[u8]) -> Result<Message<'_>, PartyRefusal> {
    match Frame::decode(frame)?.0.body {
        Body::Message(message) => Ok(message),
        other => Err(format!("a frame of the kind {:?} outside of a job", other.kind()).into()),
    }
}

/// The address that a text names.
///
/// # Errors
/// When it names none.
pub(super) fn address(text: &str) -> Result<SocketAddr, ClusterError> {
    let failed = |source| ClusterError::Address {
        text: text.to_owned(),
        source,
    };
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| failed(Some(error)))?;
    found.next().ok_or_else(|| failed(None))
}

/// Sets a flag when standard input ends. What comes there is of no interest.
///
/// # Errors
/// When the system gives no thread.
pub fn set_when_input_ends(flag: Arc<AtomicBool>) -> Result<(), ClusterError> {
    let watch = move || {
        // An error is an end as well.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        flag.store(true, Ordering::SeqCst);
    };
    let builder = std::thread::Builder::new().name("brambling-input".into());
    let started = builder.spawn(watch);
    started
        .map(drop)
        .map_err(|source| ClusterError::System { source })
}
