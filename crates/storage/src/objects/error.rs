//! What goes wrong with a store, and what to do about it.

use std::fmt;
use std::io;

/// Why a store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct StoreError {
    /// The store.
    pub store: String,
    /// What was asked, with the key.
    pub doing: String,
    /// What is wrong.
    pub trouble: StoreTrouble,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreTrouble {
    /// There is an object of that key already.
    Exists,
    /// There is none.
    Absent,
    /// There is no room.
    Full,
    /// It may not be done.
    Denied,
    /// Who asks is not known there, or has said nothing of who it is.
    Credentials(String),
    /// Nobody answers, or not in time.
    Unreachable(String),
    /// An object is not what was written.
    Damaged(String),
    /// It does not keep what a store promises.
    Unsound(String),
    /// Another process has taken what this one had locked.
    Taken,
    /// Something else.
    Other(String),
}

impl StoreError {
    pub(super) fn new(store: &str, doing: String, trouble: StoreTrouble) -> StoreError {
        StoreError {
            store: store.to_owned(),
            doing,
            trouble,
        }
    }

    pub(super) fn of(store: &str, doing: String, error: &io::Error) -> StoreError {
        let trouble = match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::AlreadyExists, _) => StoreTrouble::Exists,
            (io::ErrorKind::NotFound, _) => StoreTrouble::Absent,
            (io::ErrorKind::PermissionDenied, _) | (_, Some(libc::EROFS)) => StoreTrouble::Denied,
            (_, Some(libc::ENOSPC | libc::EDQUOT)) => StoreTrouble::Full,
            _ => StoreTrouble::Other(error.to_string()),
        };
        StoreError::new(store, doing, trouble)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreError {
            store,
            doing,
            trouble,
        } = self;
        write!(f, "store {store}: {doing}: {trouble}")
    }
}

impl fmt::Display for StoreTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreTrouble::Exists => write!(f, "it exists already"),
            StoreTrouble::Absent => write!(f, "it is not there"),
            StoreTrouble::Full => write!(
                f,
                "no space is left; free some, or name another store with the setting `store`"
            ),
            StoreTrouble::Denied => write!(
                f,
                "permission denied; let this user write there, or name another store with the setting `store`"
            ),
            StoreTrouble::Credentials(why) => write!(
                f,
                "{why}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            ),
            StoreTrouble::Unreachable(why) => write!(
                f,
                "it cannot be reached: {why}; see that it runs and that AWS_ENDPOINT_URL and AWS_REGION name it, or name another store with the setting `store`"
            ),
            StoreTrouble::Damaged(how) => write!(f, "it is damaged: {how}"),
            StoreTrouble::Unsound(how) => write!(
                f,
                "it does not keep what it is given once: {how}; name another store with the setting `store`"
            ),
            StoreTrouble::Taken => write!(
                f,
                "another process has taken the place of this one, which was silent for long; what this one does now is not kept"
            ),
            StoreTrouble::Other(why) => write!(f, "{why}"),
        }
    }
}
