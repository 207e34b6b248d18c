//! What an error of a server means, in words without credentials.

use super::access::S3Access;
use super::client::Doubt;
use crate::objects::{S3Place, StoreTrouble};
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// Codes by which servers say that they have no room.
const FULL: [&str; 5] = [
    "InsufficientStorage",
    "InsufficientCapacity",
    "XMinioStorageFull",
    "StorageFull",
    "QuotaExceeded",
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
    // Not by words anywhere: addresses and keys stand there too.
    let code = between(&text, "Code").unwrap_or_default();
    if METADATA.iter().any(|host| text.contains(host)) {
        let why = "this process has no credentials".to_owned();
        return (StoreTrouble::Credentials(why), Doubt::Refused);
    }
    if UNKNOWN.contains(&code) {
        let why = format!("the server does not take this process's credentials ({code})");
        return (StoreTrouble::Credentials(why), Doubt::Refused);
    }
    if code == "NoSuchBucket" {
        let bucket = &place.bucket;
        let why = format!(
            "there is no bucket `{bucket}`; make it, or name another store with the setting `store`"
        );
        return (StoreTrouble::Other(why), Doubt::Refused);
    }
    let is_full = FULL.contains(&code) || text.contains("status code: 507 ");
    let refused = |trouble| (trouble, Doubt::Refused);
    match error {
        Error::NotFound { .. } => refused(StoreTrouble::Absent),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => refused(StoreTrouble::Exists),
        Error::PermissionDenied { .. } => refused(StoreTrouble::Denied),
        Error::Unauthenticated { .. } => {
            let why = "the server does not take this process's credentials".to_owned();
            refused(StoreTrouble::Credentials(why))
        }
        _ if is_full => refused(StoreTrouble::Full),
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
    match (between(text, "Code"), between(text, "Message")) {
        (Some(code), Some(message)) => format!("the server says {code}: {message}"),
        (Some(code), None) => format!("the server says {code}"),
        _ => text.to_owned(),
    }
}

fn between<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, behind) = text.split_once(&format!("<{name}>"))?;
    Some(behind.split_once("</")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// What the server at a port that looks like a status says, of a key that looks like a code.
    fn heard(body: &str) -> (StoreTrouble, Doubt) {
        let source = format!("http://127.0.0.1:50712/QuotaExceeded/NoSuchBucket: {body}");
        let error = Error::Generic {
            store: "S3",
            source: source.into(),
        };
        let place = S3Place {
            bucket: "b".into(),
            prefix: String::new(),
        };
        let variables: BTreeMap<String, String> = BTreeMap::new();
        of(&error, &place, &S3Access::of(&variables).ok().unwrap())
    }

    #[test]
    fn what_a_server_says_is_understood_by_its_code_alone() {
        let code = |code: &str| format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        assert_eq!(heard(&code("QuotaExceeded")).0, StoreTrouble::Full);
        let full = "Server returned non-2xx status code: 507 Insufficient Storage";
        assert_eq!(heard(full).0, StoreTrouble::Full);
        let (expired, doubt) = heard(&code("ExpiredToken"));
        assert!(matches!(expired, StoreTrouble::Credentials(_)), "{expired}");
        assert_eq!(doubt, Doubt::Refused);
        let gone = heard(&code("NoSuchBucket")).0.to_string();
        assert!(gone.starts_with("there is no bucket `b`"), "{gone}");
        // It may have been done: the server says no more than that it is not well.
        let (ill, doubt) = heard(&code("InternalError"));
        assert_eq!(ill.to_string(), "the server says InternalError: m");
        assert_eq!(doubt, Doubt::MayHaveArrived);
        assert!(matches!(heard("").0, StoreTrouble::Other(_)));
    }
}
