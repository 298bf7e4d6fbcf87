//! The head of an HTTP/1 request, read strictly (RFC 9112): what two parsers could understand in two ways is
//! refused, because the other parser may be the backend's.

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use httparse::Status;
use memchr::memchr;

/// More fields than this are not parsed, whatever the setting says.
const MAX_FIELDS: usize = 256;
/// Longest request target; HTTP itself has no limit, every proxy has one.
const MAX_TARGET: usize = 32 * 1024;

/// What a client asked, and how its body and connection go on.
#[derive(Debug)]
pub struct Head {
    pub method: Method,
    pub target: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    pub framing: Framing,
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// The client asks to change protocols.
    pub upgrade: bool,
}

/// Where the body of a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

/// Why a head was refused; the connection ends after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the head of the request is too large")]
    TooLarge,
    #[error("the request target is too long")]
    TargetTooLong,
    #[error("a line of the head ends in a bare line feed")]
    BareLineFeed,
    #[error("the request line is malformed")]
    RequestLine,
    #[error("a header field is malformed")]
    Field,
    #[error("this HTTP version is not spoken here")]
    Version,
    #[error("Content-Length is malformed, repeated or next to Transfer-Encoding")]
    ContentLength,
    #[error("Transfer-Encoding is not exactly \"chunked\"")]
    TransferEncoding,
    #[error("the request needs exactly one valid Host")]
    Host,
    #[error("Expect asks for something other than 100-continue")]
    Expect,
    #[error("the client did not end a request that it says has no body")]
    Unended,
}

impl HeadError {
    /// A word for the access log.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "head_too_large",
            Self::TargetTooLong => "target_too_long",
            Self::Version => "bad_version",
            Self::Expect => "bad_expectation",
            Self::BareLineFeed | Self::RequestLine | Self::Field => "malformed_head",
            Self::ContentLength | Self::TransferEncoding => "bad_framing",
            Self::Host => "bad_host",
            Self::Unended => "client_body",
        }
    }

    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Expect => StatusCode::EXPECTATION_FAILED,
            Self::Unended => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    pub bytes: usize,
    pub fields: usize,
}

/// Looks for a whole head at the start of `input`, from byte `scanned` on, which it moves: no byte is looked
/// at twice, however slowly a head comes in. Takes the head out of `input` when it is there.
pub fn take_head(
    input: &mut BytesMut,
    scanned: &mut usize,
    limits: HeadLimits,
) -> Result<Option<Head>, HeadError> {
    skip_empty_lines(input, scanned);
    let Some(end) = find_end(input, scanned)? else {
        return if input.len() > limits.bytes { Err(HeadError::TooLarge) } else { Ok(None) };
    };
    if end > limits.bytes {
        return Err(HeadError::TooLarge);
    }
    *scanned = 0;
    parse(input.split_to(end).freeze(), limits).map(Some)
}

/// RFC 9112, section 2.2: empty lines before a request line are ignored.
fn skip_empty_lines(input: &mut BytesMut, scanned: &mut usize) {
    while input.starts_with(b"\r\n") {
        let _ = input.split_to(2);
        *scanned = 0;
    }
}

fn find_end(input: &[u8], scanned: &mut usize) -> Result<Option<usize>, HeadError> {
    while let Some(offset) = input.get(*scanned..).and_then(|rest| memchr(b'\n', rest)) {
        let at = *scanned + offset;
        if at == 0 || input.get(at - 1) != Some(&b'\r') {
            return Err(HeadError::BareLineFeed);
        }
        match input.get(at + 1..at + 3) {
            Some(b"\r\n") => return Ok(Some(at + 3)),
            Some(_) => *scanned = at + 1,
            // What follows decides; look at this line feed again then. A bare one is refused at once.
            None if input.get(at + 1) == Some(&b'\n') => return Err(HeadError::BareLineFeed),
            None => {
                *scanned = at;
                return Ok(None);
            }
        }
    }
    *scanned = input.len();
    Ok(None)
}

fn parse(head: Bytes, limits: HeadLimits) -> Result<Head, HeadError> {
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let fields = fields.get_mut(..limits.fields.min(MAX_FIELDS)).unwrap_or_default();
    match httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut request, &head, fields) {
        Ok(Status::Complete(_)) => {}
        // The end of the head was found, so nothing can be missing.
        Ok(Status::Partial) => return Err(HeadError::Field),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(httparse::Error::Version) if names_http(&head) => return Err(HeadError::Version),
        Err(httparse::Error::Version) => return Err(HeadError::RequestLine),
        Err(httparse::Error::Token | httparse::Error::NewLine) => return Err(HeadError::RequestLine),
        Err(_) => return Err(HeadError::Field),
    }
    let version = if request.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let method = request.method.unwrap_or_default();
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::RequestLine)?;
    let target = target(&head, request.path.unwrap_or_default())?;
    let mut headers = HeaderMap::with_capacity(request.headers.len() + 8);
    for field in request.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::Field)?;
        let value =
            HeaderValue::from_maybe_shared(head.slice_ref(field.value)).map_err(|_| HeadError::Field)?;
        headers.append(name, value);
    }
    finish(method, target, version, headers)
}

/// Whether the request line ends in a version of HTTP at all, if not in one that is spoken here.
fn names_http(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    line.rsplit(|byte| *byte == b' ').next().is_some_and(|version| version.starts_with(b"HTTP/"))
}

/// The request target as it was sent. A fragment has no place in one, and `Uri` would drop it silently.
fn target(head: &Bytes, target: &str) -> Result<Uri, HeadError> {
    if target.len() > MAX_TARGET {
        return Err(HeadError::TargetTooLong);
    }
    if memchr(b'#', target.as_bytes()).is_some() {
        return Err(HeadError::RequestLine);
    }
    Uri::from_maybe_shared(head.slice_ref(target.as_bytes())).map_err(|_| HeadError::RequestLine)
}

fn finish(method: Method, target: Uri, version: Version, headers: HeaderMap) -> Result<Head, HeadError> {
    let http11 = version == Version::HTTP_11;
    if headers.get_all(HOST).iter().count() != usize::from(http11)
        && (http11 || headers.get_all(HOST).iter().count() > 1)
    {
        return Err(HeadError::Host);
    }
    let framing = framing(&headers, http11)?;
    let (close, keep) = connection_options(&headers);
    let expect_continue = match headers.get(EXPECT) {
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => http11,
        Some(_) => return Err(HeadError::Expect),
        None => false,
    };
    let upgrade = http11 && headers.contains_key(UPGRADE);
    let keep_alive = !close && (http11 || keep);
    Ok(Head { method, target, version, headers, framing, keep_alive, expect_continue, upgrade })
}

/// RFC 9112, section 6.3, without its tolerance: both fields, a repeated one or an odd value are refused.
fn framing(headers: &HeaderMap, http11: bool) -> Result<Framing, HeadError> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (encodings.next(), lengths.next()) {
        (None, None) => Ok(Framing::Length(0)),
        (Some(_), Some(_)) => Err(HeadError::ContentLength),
        (Some(encoding), None) => {
            let chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
            match chunked && http11 && encodings.next().is_none() {
                true => Ok(Framing::Chunked),
                false => Err(HeadError::TransferEncoding),
            }
        }
        (None, Some(length)) => match parse_length(length.as_bytes()) {
            Some(length) if lengths.next().is_none() => Ok(Framing::Length(length)),
            _ => Err(HeadError::ContentLength),
        },
    }
}

/// Decimal digits without sign, spaces or needless zeros, below 2^63.
fn parse_length(value: &[u8]) -> Option<u64> {
    let canonical = !value.is_empty()
        && value.len() <= 18
        && value.iter().all(u8::is_ascii_digit)
        && (value.len() == 1 || value.first() != Some(&b'0'));
    if !canonical {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Whether `Connection` lists `close` and `keep-alive`.
fn connection_options(headers: &HeaderMap) -> (bool, bool) {
    let mut found = (false, false);
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|b| *b == b',') {
            let option = option.trim_ascii();
            found.0 |= option.eq_ignore_ascii_case(b"close");
            found.1 |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    found
}

#[cfg(test)]
mod tests;
