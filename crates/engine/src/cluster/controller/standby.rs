//! A controller that waits for another one to be gone, and then takes its cluster over.

use super::log::{ClusterLog, FoundLog};
use crate::cluster::{ClusterError, Token};
use brambling_storage::{StoreError, StoreTrouble};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How often it looks whether the other is there.
const LOOKS: Duration = Duration::from_millis(500);
/// How long the other may take to answer.
const ANSWERS: Duration = Duration::from_secs(1);
/// So often in a row it did not. With the above that is less than the 3 s after which somebody has to have taken over.
const MISSES: u32 = 2;

/// Waits until the controller of a state is gone. False: `goes_on` has said no before.
///
/// # Errors
/// When the state cannot be read.
pub fn stand_by(state: &str, mut goes_on: impl FnMut() -> bool) -> Result<bool, ClusterError> {
    let mut missed = 0;
    let mut last = None;
    while goes_on() {
        let FoundLog { address, term, .. } = ClusterLog::read(state)?;
        // Nobody has been in office, or somebody else is since.
        if last.replace(term) != Some(term) {
            missed = 0;
        }
        let is_there = address.is_some_and(|at| TcpStream::connect_timeout(&at, ANSWERS).is_ok());
        missed = if is_there { 0 } else { missed + 1 };
        if missed >= MISSES {
            return Ok(true);
        }
        std::thread::sleep(LOOKS);
    }
    Ok(false)
}

/// The token of a cluster that outlives its controllers: made once, and kept beside its log for whoever may read that.
///
/// # Errors
/// When it can be neither read nor made.
pub fn token_of(
    state: &str,
    new: impl FnOnce() -> Result<Token, ClusterError>,
) -> Result<Token, ClusterError> {
    let store = crate::cluster::snapshots::open(state)?;
    let at = crate::cluster::snapshots::key("token");
    let unreadable = |why: &str| StoreError {
        store: store.name().to_owned(),
        doing: "reading the cluster's token".into(),
        trouble: StoreTrouble::Other(why.to_owned()),
    };
    match store.read(&at, None) {
        Ok(_) => {}
        Err(error) if error.trouble == StoreTrouble::Absent => {
            let token = new()?;
            match store.create(&at, token.to_hex().as_bytes()) {
                Err(error) if error.trouble != StoreTrouble::Exists => return Err(error.into()),
                _ => {}
            }
        }
        Err(error) => return Err(error.into()),
    }
    // Read back: of two that make it at once, one did.
    let bytes = store.read(&at, None)?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is no text"))?;
    let token = Token::from_hex(text.trim()).map_err(|why| unreadable(&why.to_string()))?;
    Ok(token)
}

/// An address as a log has it.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok()
}
