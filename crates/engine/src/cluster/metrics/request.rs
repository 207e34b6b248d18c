//! What somebody wants who connects, judged by the head of their request alone: what follows it is not looked at.

use super::text::CONTENT_TYPE;
use bytes::Bytes;
use httparse::{EMPTY_HEADER, Error, Request, Status};

/// The most bytes of a request's head.
pub(super) const HEAD_BYTES_MAX: usize = 1 << 12;
/// The most headers in it.
const HEADERS_MAX: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// Nobody knows yet: the head goes on.
    Unclear,
    /// The metrics, or what they would come with.
    Metrics(With),
    /// What is not given.
    Other(Refusal, With),
}

/// What an answer has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum With {
    Body,
    HeadAlone,
}

/// Why there are no metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Malformed,
    NotFound,
    Method,
    TooLarge,
    /// Who was measured is no more.
    Over,
}

impl Refusal {
    fn status(self) -> &'static str {
        match self {
            Refusal::Malformed => "400 Bad Request",
            Refusal::NotFound => "404 Not Found",
            Refusal::Method => "405 Method Not Allowed\r\nAllow: GET, HEAD",
            Refusal::TooLarge => "431 Request Header Fields Too Large",
            Refusal::Over => "503 Service Unavailable",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Refusal::Malformed => "this is no request of HTTP/1.0 or 1.1\n",
            Refusal::NotFound => "there is nothing here but /metrics\n",
            Refusal::Method => "/metrics answers GET and HEAD\n",
            Refusal::TooLarge => "a request's head may have 4096 bytes and 64 headers\n",
            Refusal::Over => "the process ends\n",
        }
    }
}

/// What is asked for by what has come, which may be the beginning of it or go on behind it.
pub(super) fn asked(come: &[u8]) -> Asked {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    // Whatever is behind the limit is not looked at.
    let within = &come[..come.len().min(HEAD_BYTES_MAX)];
    match request.parse(within) {
        Ok(Status::Complete(_)) => of(&request),
        Ok(Status::Partial) if come.len() < HEAD_BYTES_MAX => Asked::Unclear,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => {
            Asked::Other(Refusal::TooLarge, With::Body)
        }
        Err(_) => Asked::Other(Refusal::Malformed, With::Body),
    }
}

fn of(request: &Request<'_, '_>) -> Asked {
    let method = request.method.unwrap_or_default();
    let with = match method {
        "HEAD" => With::HeadAlone,
        _ => With::Body,
    };
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match (path, method) {
        ("/metrics", "GET" | "HEAD") => Asked::Metrics(with),
        ("/metrics", _) => Asked::Other(Refusal::Method, with),
        _ => Asked::Other(Refusal::NotFound, with),
    }
}

/// The metrics as they are sent: a head, and a body that others are sent too.
pub(super) fn metrics(body: &Bytes, with: With) -> [Bytes; 2] {
    answer("200 OK", CONTENT_TYPE, body, with)
}

/// A refusal as it is sent.
pub(super) fn refusal(refusal: Refusal, with: With) -> [Bytes; 2] {
    let body = Bytes::from_static(refusal.text().as_bytes());
    answer(refusal.status(), "text/plain; charset=utf-8", &body, with)
}

fn answer(status: &str, content_type: &str, body: &Bytes, with: With) -> [Bytes; 2] {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = match with {
        With::Body => body.clone(),
        With::HeadAlone => Bytes::new(),
    };
    [head.into(), body]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_what_can_be_had() {
        let refused = |why| Asked::Other(why, With::Body);
        for (head, expected) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", Asked::Metrics(With::Body)),
            (
                "GET /metrics?name%5B%5D=x HTTP/1.0\r\nHost: a\r\n\r\n",
                Asked::Metrics(With::Body),
            ),
            (
                "HEAD /metrics HTTP/1.1\r\n\r\nand what follows",
                Asked::Metrics(With::HeadAlone),
            ),
            ("POST /metrics HTTP/1.1\r\n\r\n", refused(Refusal::Method)),
            ("get /metrics HTTP/1.1\r\n\r\n", refused(Refusal::Method)),
            ("GET / HTTP/1.1\r\n\r\n", refused(Refusal::NotFound)),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", refused(Refusal::NotFound)),
            ("DELETE /x HTTP/1.1\r\n\r\n", refused(Refusal::NotFound)),
            (
                "HEAD /x HTTP/1.1\r\n\r\n",
                Asked::Other(Refusal::NotFound, With::HeadAlone),
            ),
            ("GET /metrics\r\n\r\n", refused(Refusal::Malformed)),
            ("GET /metrics HTTP/2.0\r\n\r\n", refused(Refusal::Malformed)),
            ("\u{16}\u{3}\u{1}", refused(Refusal::Malformed)),
        ] {
            assert_eq!(asked(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[test]
    fn a_head_is_read_to_its_end_and_no_further_than_the_limit() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(asked(&whole[..end]), Asked::Unclear, "{end}");
        }
        let mut long = b"GET /metrics HTTP/1.1\r\nx: ".to_vec();
        long.resize(HEAD_BYTES_MAX - 1, b'x');
        assert_eq!(asked(&long), Asked::Unclear);
        long.push(b'x');
        let too_large = Asked::Other(Refusal::TooLarge, With::Body);
        assert_eq!(asked(&long), too_large);
        // Its end comes behind the limit.
        long.extend(b"\r\n\r\n");
        assert_eq!(asked(&long), too_large);
        let headers = "a: b\r\n".repeat(HEADERS_MAX + 1);
        let many = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        assert_eq!(asked(many.as_bytes()), too_large);
    }

    #[test]
    fn an_answer_says_how_long_it_is_and_a_head_alone_the_same() {
        let body = Bytes::from_static(b"a 1\n");
        let [head, sent] = metrics(&body, With::Body);
        let [same, nothing] = metrics(&body, With::HeadAlone);
        assert_eq!((&sent, &same, nothing.len()), (&body, &head, 0));
        let head = String::from_utf8(head.to_vec()).unwrap();
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: 4\r\nConnection: close\r\n\r\n";
        assert_eq!(head, expected);
        let [head, _] = refusal(Refusal::Method, With::Body);
        assert!(head.starts_with(b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"));
    }
}
