//! What is said after the greeting: JSON behind its length.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};

/// The longest message.
const BYTES_MOST: usize = 1 << 16;

/// What a listener is asked for.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum ProbeOrder {
    /// Who it is.
    Hello,
    /// Bytes follow, until their sender has no more: count them.
    Receive,
    /// Flows to these addresses, all at once.
    Send { to: Vec<String>, millis: u64 },
    /// Write to the directories with which it was started.
    WriteDisks { millis: u64 },
    /// Read what was written.
    ReadDisks { millis: u64 },
}

/// What it answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum ProbeReply {
    Hello {
        version: String,
        dirs: Vec<String>,
    },
    /// What has come of a flow.
    Received {
        bytes_per_s: Option<f64>,
    },
    /// For each address what came there, or why nothing did.
    Sent {
        flows: Vec<Result<f64, String>>,
        congestion: String,
    },
    /// Of each directory.
    Disks {
        bytes_per_s: Vec<f64>,
    },
    Failed {
        why: String,
    },
}

/// Sends a message.
pub(super) fn say(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let bytes = u32::try_from(text.len()).map_err(|_| ErrorKind::InvalidInput)?;
    stream.write_all(&[&bytes.to_le_bytes(), &text[..]].concat())
}

/// Takes the next message; none: there will be no more.
pub(super) fn hear<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    match stream.read_exact(&mut head) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let bytes = u32::from_le_bytes(head) as usize;
    if bytes > BYTES_MOST {
        let why = format!("a message of {bytes} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    let mut text = vec![0; bytes];
    stream.read_exact(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_were_said() {
        let order = ProbeOrder::Send {
            to: vec!["10.0.0.7:7078".into()],
            millis: 500,
        };
        let mut wire = Vec::new();
        say(&mut wire, &order).unwrap();
        say(&mut wire, &ProbeOrder::Hello).unwrap();
        let mut wire = &wire[..];
        assert_eq!(hear(&mut wire).unwrap(), Some(order));
        assert_eq!(hear(&mut wire).unwrap(), Some(ProbeOrder::Hello));
        assert_eq!(hear::<ProbeOrder>(&mut wire).unwrap(), None);
    }

    #[test]
    fn what_is_too_long_or_no_message_is_refused_before_it_takes_memory() {
        let too_long = hear::<ProbeOrder>(&mut &u32::MAX.to_le_bytes()[..]).unwrap_err();
        assert_eq!(too_long.kind(), ErrorKind::InvalidData);
        assert!(hear::<ProbeOrder>(&mut &[3, 0, 0, 0, b'x', b'y', b'z'][..]).is_err());
        assert!(hear::<ProbeOrder>(&mut &[3, 0, 0, 0, b'x'][..]).is_err());
    }
}
