//! Why a link ended.

use crate::transports::tls::TlsError;
use brambling_protocol::frame::FrameError;
use brambling_protocol::greeting::GreetingError;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Why a link ended, or never opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The two do not talk to each other. Trying again does not help, unless one of them was busy.
    #[error("{0}")]
    Greeting(#[from] GreetingError),
    /// They do not come to speak TLS. Trying again does not help.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The other side said too little for too long while it should have proved that it knows the token.
    #[error("it does not answer as brambling does")]
    Silent,
    /// It had proved nothing yet when too many others came.
    #[error("too many others came before it had proved that it knows the token")]
    CrowdedOut,
    /// Nobody there has answered at all.
    #[error("nothing answers there")]
    Unreached,
    /// What was sent is not acknowledged by the other machine: it is cut off, or has no power.
    #[error("its machine has acknowledged nothing for {} s", .0.as_secs_f64())]
    Unacknowledged(Duration),
    /// It said what is no frame.
    #[error("it sent what cannot be read: {0}")]
    Frame(#[from] FrameError),
    /// The owner refused what it said.
    #[error("it sent what no worker sends: {0}")]
    Refused(Box<dyn Error + Send + Sync>),
    /// Whoever was handed a frame panicked.
    #[error("what it sent made this process panic, which is a bug here")]
    Panicked,
    /// The other side has ended the connection.
    #[error("the connection was closed at the other end")]
    Ended,
    /// This side has ended it.
    #[error("the connection was closed here")]
    Closed,
    /// The network, or nobody listens there.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Lost {
    /// Whether a link that never opened may open the next time although nobody does anything about it: where too many dial at
    /// once, whoever is greeted is put out, and not always told.
    pub fn may_pass(&self) -> bool {
        match self {
            Lost::Greeting(GreetingError::Busy) | Lost::Ended => true,
            Lost::Io(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
            ),
            _ => false,
        }
    }

    /// Whether the other machine does not answer: that says nothing of the process there.
    pub fn is_cut(&self) -> bool {
        match self {
            Lost::Unreached | Lost::Unacknowledged(_) => true,
            Lost::Io(error) => Lost::is_no_way(error),
            _ => false,
        }
    }

    /// Whether the system knows no way to another machine, or hears nothing from there.
    pub fn is_no_way(error: &io::Error) -> bool {
        matches!(
            error.kind(),
            ErrorKind::TimedOut
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
        )
    }

    /// Whether the other machine answers, and nobody listens at the address.
    pub fn is_nobody(&self) -> bool {
        matches!(self, Lost::Io(error) if error.kind() == ErrorKind::ConnectionRefused)
    }
}
