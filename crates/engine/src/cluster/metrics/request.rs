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
pub(super) enum RequestTarget {
    /// Nobody knows yet: the head goes on.
    Unclear,
    /// The metrics, or what they would come with.
    Metrics(AnswerContent),
    /// What is not given.
    Other(RequestRefusal, AnswerContent),
}

/// What an answer has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AnswerContent {
    Body,
    HeadAlone,
}

/// Why there are no metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestRefusal {
    Malformed,
    NotFound,
    Method,
    TooLarge,
    /// Who was measured is no more.
    Over,
}

impl RequestRefusal {
    fn status(self) -> &'static str {
        match self {
            RequestRefusal::Malformed => "400 Bad Request",
            RequestRefusal::NotFound => "404 Not Found",
            RequestRefusal::Method => "405 Method Not Allowed\r\nAllow: GET, HEAD",
            RequestRefusal::TooLarge => "431 Request Header Fields Too Large",
            RequestRefusal::Over => "503 Service Unavailable",
        }
    }

    fn text(self) -> &'static str {
        match self {
            RequestRefusal::Malformed => "this is no request of HTTP/1.0 or 1.1\n",
            RequestRefusal::NotFound => "there is nothing here but /metrics\n",
            RequestRefusal::Method => "/metrics answers GET and HEAD\n",
            RequestRefusal::TooLarge => "a request's head may have 4096 bytes and 64 headers\n",
            RequestRefusal::Over => "the process ends\n",
        }
    }
}

/// What is asked for by what has come, which may be the beginning of it or go on behind it.
pub(super) fn asked(come: &[u8]) -> RequestTarget {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    // Whatever is behind the limit is not looked at.
    let within = &come[..come.len().min(HEAD_BYTES_MAX)];
    match request.parse(within) {
        Ok(Status::Complete(_)) => of(&request),
        Ok(Status::Partial) if come.len() < HEAD_BYTES_MAX => RequestTarget::Unclear,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => {
            RequestTarget::Other(RequestRefusal::TooLarge, AnswerContent::Body)
        }
        Err(_) => RequestTarget::Other(RequestRefusal::Malformed, AnswerContent::Body),
    }
}

fn of(request: &Request<'_, '_>) -> RequestTarget {
    let method = request.method.unwrap_or_default();
    let with = match method {
        "HEAD" => AnswerContent::HeadAlone,
        _ => AnswerContent::Body,
    };
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match (path, method) {
        ("/metrics", "GET" | "HEAD") => RequestTarget::Metrics(with),
        ("/metrics", _) => RequestTarget::Other(RequestRefusal::Method, with),
        _ => RequestTarget::Other(RequestRefusal::NotFound, with),
    }
}

/// The metrics as they are sent: a head, and a body that others are sent too.
pub(super) fn metrics(body: &Bytes, with: AnswerContent) -> [Bytes; 2] {
    answer("200 OK", CONTENT_TYPE, body, with)
}

/// A refusal as it is sent.
pub(super) fn refusal(refusal: RequestRefusal, with: AnswerContent) -> [Bytes; 2] {
    let body = Bytes::from_static(refusal.text().as_bytes());
    answer(refusal.status(), "text/plain; charset=utf-8", &body, with)
}

fn answer(status: &str, content_type: &str, body: &Bytes, with: AnswerContent) -> [Bytes; 2] {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = match with {
        AnswerContent::Body => body.clone(),
        AnswerContent::HeadAlone => Bytes::new(),
    };
    [head.into(), body]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_what_can_be_had() {
        let refused = |why| RequestTarget::Other(why, AnswerContent::Body);
        for (head, expected) in [
            (
                "GET /metrics HTTP/1.1\r\n\r\n",
                RequestTarget::Metrics(AnswerContent::Body),
            ),
            (
                "GET /metrics?name%5B%5D=x HTTP/1.0\r\nHost: a\r\n\r\n",
                RequestTarget::Metrics(AnswerContent::Body),
            ),
            (
                "HEAD /metrics HTTP/1.1\r\n\r\nand what follows",
                RequestTarget::Metrics(AnswerContent::HeadAlone),
            ),
            (
                "POST /metrics HTTP/1.1\r\n\r\n",
                refused(RequestRefusal::Method),
            ),
            (
                "get /metrics HTTP/1.1\r\n\r\n",
                refused(RequestRefusal::Method),
            ),
            ("GET / HTTP/1.1\r\n\r\n", refused(RequestRefusal::NotFound)),
            (
                "GET /metrics/ HTTP/1.1\r\n\r\n",
                refused(RequestRefusal::NotFound),
            ),
            (
                "DELETE /x HTTP/1.1\r\n\r\n",
                refused(RequestRefusal::NotFound),
            ),
            (
                "HEAD /x HTTP/1.1\r\n\r\n",
                RequestTarget::Other(RequestRefusal::NotFound, AnswerContent::HeadAlone),
            ),
            ("GET /metrics\r\n\r\n", refused(RequestRefusal::Malformed)),
            (
                "GET /metrics HTTP/2.0\r\n\r\n",
                refused(RequestRefusal::Malformed),
            ),
            ("\u{16}\u{3}\u{1}", refused(RequestRefusal::Malformed)),
        ] {
            assert_eq!(asked(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[test]
    fn a_head_is_read_to_its_end_and_no_further_than_the_limit() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(asked(&whole[..end]), RequestTarget::Unclear, "{end}");
        }
        let mut long = b"GET /metrics HTTP/1.1\r\nx: ".to_vec();
        long.resize(HEAD_BYTES_MAX - 1, b'x');
        assert_eq!(asked(&long), RequestTarget::Unclear);
        long.push(b'x');
        let too_large = RequestTarget::Other(RequestRefusal::TooLarge, AnswerContent::Body);
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
        let [head, sent] = metrics(&body, AnswerContent::Body);
        let [same, nothing] = metrics(&body, AnswerContent::HeadAlone);
        assert_eq!((&sent, &same, nothing.len()), (&body, &head, 0));
        let head = String::from_utf8(head.to_vec()).unwrap();
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: 4\r\nConnection: close\r\n\r\n";
        assert_eq!(head, expected);
        let [head, _] = refusal(RequestRefusal::Method, AnswerContent::Body);
        assert!(head.starts_with(b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"));
    }
}
