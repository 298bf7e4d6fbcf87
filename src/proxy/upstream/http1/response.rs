//! Reads response heads and decides how the body is delimited (RFC 9112, section 6.3).
//!
//! Pure functions over the read buffer. Strict where two readers could disagree: a response that one of them
//! might end elsewhere is refused, not repaired.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use super::{MAX_FIELDS, MAX_HEAD};
use crate::proxy::upstream::error::Reason;

/// A response head, without the fields that were for us alone.
#[derive(Debug, PartialEq)]
pub struct ResponseHead {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub framing: Framing,
    /// The backend keeps the connection open for another request.
    pub keep_alive: bool,
}

/// How the body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Empty,
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    Close,
}

/// Looks for the end of a head in a buffer that fills bit by bit, without reading anything twice.
#[derive(Debug, Default)]
pub struct HeadReader {
    scanned: usize,
}

impl HeadReader {
    /// The head at the front of `input`, taken out of it, or `None` until there is more.
    pub fn read(&mut self, input: &mut BytesMut, method: &Method) -> Result<Option<ResponseHead>, Reason> {
        if self.scanned > 0 && !self.found_end(input) {
            return self.wait(input);
        }
        match parse(input, method)? {
            Some(head) => {
                self.scanned = 0;
                Ok(Some(head))
            }
            None => self.wait(input),
        }
    }

    fn wait(&mut self, input: &BytesMut) -> Result<Option<ResponseHead>, Reason> {
        self.scanned = input.len();
        if input.len() > MAX_HEAD { Err(Reason::ResponseHeadTooLarge) } else { Ok(None) }
    }

    fn found_end(&self, input: &BytesMut) -> bool {
        let unseen = input.get(self.scanned.saturating_sub(3)..).unwrap_or_default();
        unseen.windows(2).any(|pair| pair == b"\n\n") || unseen.windows(3).any(|three| three == b"\n\r\n")
    }
}

fn parse(input: &mut BytesMut, method: &Method) -> Result<Option<ResponseHead>, Reason> {
    let mut fields = [MaybeUninit::uninit(); MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        input,
        &mut fields,
    );
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length > MAX_HEAD => {
            return Err(Reason::ResponseHeadTooLarge);
        }
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Reason::ResponseHeadTooLarge),
        Err(_) => return Err(Reason::InvalidResponse("malformed response head")),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Reason::InvalidResponse("bad status code"))?;
    let http11 = response.version == Some(1);

    // The head gets a small buffer of its own: header values that live on must not keep a whole read buffer.
    let base = input.as_ptr() as usize;
    let head = Bytes::copy_from_slice(input.get(..length).unwrap_or_default());
    let mut fields = Fields::default();
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let start = field.value.as_ptr() as usize - base;
        let value = HeaderValue::from_maybe_shared(head.slice(start..start + field.value.len()));
        match (name, value) {
            (Ok(name), Ok(value)) => fields.add(name, value, status)?,
            _ => return Err(Reason::InvalidResponse("malformed header field")),
        }
    }
    input.advance(length);
    fields.conclude(status, http11, method).map(Some)
}

/// The fields of a head, sorted into those that pass on and those that frame.
#[derive(Default)]
struct Fields {
    passed: HeaderMap,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    /// What `Connection` names: fields that were meant for us.
    hop_by_hop: Vec<HeaderName>,
}

impl Fields {
    fn add(&mut self, name: HeaderName, value: HeaderValue, status: StatusCode) -> Result<(), Reason> {
        if name == header::CONTENT_LENGTH {
            let length = parse_length(&value).ok_or(Reason::InvalidResponse("bad content-length"))?;
            if self.length.is_some_and(|other| other != length) {
                return Err(Reason::InvalidResponse("two different content-lengths"));
            }
            self.length = Some(length);
            self.passed.insert(name, value);
        } else if name == header::TRANSFER_ENCODING {
            if self.chunked || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(Reason::InvalidResponse("unknown transfer-encoding"));
            }
            self.chunked = true;
        } else if name == header::CONNECTION {
            self.add_connection(&value, status);
        } else if name == header::UPGRADE && status != StatusCode::SWITCHING_PROTOCOLS {
            // `Upgrade: h2c` on an ordinary response is an offer to us.
        } else if !matches!(name.as_str(), "keep-alive" | "proxy-connection") {
            self.passed.append(name, value);
        }
        Ok(())
    }

    fn add_connection(&mut self, value: &HeaderValue, status: StatusCode) {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.passed.append(header::CONNECTION, value.clone());
            return;
        }
        for token in value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if let Ok(name) = HeaderName::from_bytes(token) {
                self.hop_by_hop.push(name);
            }
        }
    }

    fn conclude(mut self, status: StatusCode, http11: bool, method: &Method) -> Result<ResponseHead, Reason> {
        if self.chunked && self.length.is_some() {
            return Err(Reason::InvalidResponse("both content-length and transfer-encoding"));
        }
        if self.chunked && !http11 {
            return Err(Reason::InvalidResponse("transfer-encoding in HTTP/1.0"));
        }
        for name in &self.hop_by_hop {
            self.passed.remove(name);
        }
        let never_has_body = status.is_informational() || status == StatusCode::NO_CONTENT;
        let framing = match self.length {
            _ if never_has_body || status == StatusCode::NOT_MODIFIED || method == Method::HEAD => {
                Framing::Empty
            }
            Some(0) => Framing::Empty,
            Some(length) => Framing::Length(length),
            None if self.chunked => Framing::Chunked,
            None => Framing::Close,
        };
        // A body was announced where none can be: it may still come, and would be taken for the next response.
        let contradicts = never_has_body && (self.chunked || self.length.is_some_and(|length| length > 0));
        if never_has_body {
            self.passed.remove(header::CONTENT_LENGTH);
        }
        let keep_alive = if http11 { !self.close } else { self.keep_alive && !self.close };
        Ok(ResponseHead { status, headers: self.passed, framing, keep_alive: keep_alive && !contradicts })
    }
}

/// Digits only: no sign, no list, nothing that does not fit.
fn parse_length(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
