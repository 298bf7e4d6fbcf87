//! Writes a request head. Of all that frames a message, only what is computed here goes out: whatever the caller
//! left in the header about lengths, codings or the connection is skipped.

use http::header::{self, HeaderName};
use http::{HeaderMap, Method, Uri};
use http_body::Body as _;

use crate::proxy::body::Body;
use crate::proxy::upstream::Head;

/// How the body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    Length(u64),
    Chunked,
}

impl Framing {
    pub fn of(body: &Body) -> Self {
        if body.is_end_stream() {
            return Self::None;
        }
        body.size_hint().exact().map_or(Self::Chunked, Self::Length)
    }
}

/// Appends `head` to `out`, with `framing`.
pub fn encode(head: Head<'_>, framing: Framing, out: &mut Vec<u8>) {
    let Head { parts, about } = head;
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target(&parts.uri).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if !parts.headers.contains_key(header::HOST) {
        let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
        field(out, "host", authority.as_bytes());
    }
    for (name, value) in &parts.headers {
        if !is_framing(name) {
            field(out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(about.lines());
    if asks_for_upgrade(&parts.headers) {
        out.extend_from_slice(b"connection: upgrade\r\n");
    }
    match framing {
        // Methods that usually have a body say that they have none (RFC 9110, section 8.6).
        Framing::None if [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method) => {
            out.extend_from_slice(b"content-length: 0\r\n");
        }
        Framing::None => {}
        Framing::Length(length) => {
            field(out, "content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether the caller let an `Upgrade` stand, and so is ready for a 101.
pub fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}

/// Appends one field line.
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The origin form (RFC 9112, section 3.2.1), or `*`.
fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}

/// What is ours to write. `Expect` was answered by us already, when the body was first asked for.
fn is_framing(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH
        || *name == header::TRANSFER_ENCODING
        || *name == header::CONNECTION
        || *name == header::EXPECT
        || matches!(name.as_str(), "keep-alive" | "proxy-connection" | "http2-settings")
}
