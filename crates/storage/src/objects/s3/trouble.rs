//! What an error of a server means, in words without credentials.

use super::access::S3Access;
use super::client::Doubt;
use crate::objects::{S3Place, StoreTrouble};
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// Codes by which servers say that they have no room.
const FULL: [&str; 6] = [
    "InsufficientStorage",
    "InsufficientCapacity",
    "StorageFull",
    "QuotaExceeded",
    "507",
    "no space left",
];
/// Codes by which they say that they do not know who asks.
const UNKNOWN: [&str; 7] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "InvalidSecurity",
    "AuthorizationHeaderMalformed",
];
/// Who answers these is a host of Amazon's, for processes that have been given no credentials.
const METADATA: [&str; 3] = ["169.254.169.254", "169.254.170.2", "instance metadata"];

/// What an error means, and what the request may have done.
pub(super) fn of(error: &Error, place: &S3Place, access: &S3Access) -> (StoreTrouble, Doubt) {
    let text = access.scrubbed(&error.to_string());
    let has = |codes: &[&'static str]| codes.iter().find(|code| text.contains(**code)).copied();
    if has(&METADATA).is_some() {
        let why = "this process has no credentials".to_owned();
        return (StoreTrouble::Credentials(why), Doubt::Refused);
    }
    if let Some(code) = has(&UNKNOWN) {
        let why = format!("the server does not take this process's credentials ({code})");
        return (StoreTrouble::Credentials(why), Doubt::Refused);
    }
    if has(&["NoSuchBucket"]).is_some() {
        let why = format!(
            "there is no bucket `{}`; make it, or name another store with the setting `store`",
            place.bucket
        );
        return (StoreTrouble::Other(why), Doubt::Refused);
    }
    let refused = |trouble| (trouble, Doubt::Refused);
    match error {
        Error::NotFound { .. } => refused(StoreTrouble::Absent),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => refused(StoreTrouble::Exists),
        Error::PermissionDenied { .. } => refused(StoreTrouble::Denied),
        Error::Unauthenticated { .. } => {
            let why = "the server does not take this process's credentials".to_owned();
            refused(StoreTrouble::Credentials(why))
        }
        _ if has(&FULL).is_some() => refused(StoreTrouble::Full),
        _ => match carried(error) {
            Some(carrier) => unreachable(carrier, access),
            // An answer that says that something went wrong there, or one that nobody understands.
            None => (StoreTrouble::Other(said(&text)), Doubt::MayHaveArrived),
        },
    }
}

/// The error of the connection, if it is one.
fn carried(error: &Error) -> Option<&HttpError> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(carrier) = error.downcast_ref() {
            return Some(carrier);
        }
        source = error.source();
    }
    None
}

fn unreachable(error: &HttpError, access: &S3Access) -> (StoreTrouble, Doubt) {
    // The innermost has the system's words.
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let why = match error.kind() {
        HttpErrorKind::Timeout => "no answer in time".to_owned(),
        _ => access.scrubbed(&innermost.to_string()),
    };
    let doubt = match error.kind() {
        HttpErrorKind::Connect => Doubt::NotSent,
        _ => Doubt::MayHaveArrived,
    };
    (StoreTrouble::Unreachable(why), doubt)
}

/// What a server has said: its code and message, without the rest of the document.
fn said(text: &str) -> String {
    let between = |name: &str| {
        let (_, behind) = text.split_once(&format!("<{name}>"))?;
        Some(behind.split_once("</")?.0)
    };
    match (between("Code"), between("Message")) {
        (Some(code), Some(message)) => format!("the server says {code}: {message}"),
        (Some(code), None) => format!("the server says {code}"),
        _ => text.to_owned(),
    }
}
