//! Reads the chunked coding (RFC 9112, section 7.1), strictly, from a buffer that fills bit by bit.
//!
//! Data comes out as slices of the buffer. Whatever is not exactly as the grammar has it ends the connection: a
//! peer that reads a chunk size differently than we do is how responses are smuggled.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::MAX_FIELDS;
use crate::proxy::headers::{dashed, is_managed, stays_here};
use crate::proxy::upstream::error::Reason;

/// The line of a chunk size with its extensions, which nobody uses.
const MAX_SIZE_LINE: usize = 1024;
/// All extensions of a body together; a peer that sends more wants to keep us busy.
const MAX_EXTENSIONS: usize = 16 * 1024;
const MAX_TRAILERS: usize = 16 * 1024;

/// A part of a body.
#[derive(Debug, PartialEq)]
pub enum Decoded {
    Data(Bytes),
    /// The body is complete.
    End(Option<HeaderMap>),
}

/// Where in the coding we are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

#[derive(Debug, Default)]
pub struct ChunkDecoder {
    state: State,
    extensions: usize,
    /// Bytes of trailers that were looked at before, without finding their end.
    scanned: usize,
}

impl ChunkDecoder {
    /// The next part, or `None` until `input` has more.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Decoded>, Reason> {
        if let Some(trailers) = self.decode_end(input)? {
            return Ok(Some(Decoded::End(trailers)));
        }
        match self.state {
            State::Data(remaining) if !input.is_empty() => {
                let length = usize::try_from(remaining).unwrap_or(usize::MAX).min(input.len());
                let left = remaining - length as u64;
                self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                Ok(Some(Decoded::Data(input.split_to(length).freeze())))
            }
            _ => Ok(None),
        }
    }

    /// The end of the body with its trailers, if that comes next and is in `input`. Data stays there.
    pub fn decode_end(&mut self, input: &mut BytesMut) -> Result<Option<Option<HeaderMap>>, Reason> {
        loop {
            match self.state {
                State::Size => {
                    let Some(size) = self.read_size(input)? else { return Ok(None) };
                    self.state = if size == 0 { State::Trailers } else { State::Data(size) };
                }
                State::Data(_) => return Ok(None),
                State::DataEnd => match input.get(..2) {
                    Some(b"\r\n") => {
                        input.advance(2);
                        self.state = State::Size;
                    }
                    Some(_) => return Err(Reason::InvalidResponse("chunk longer than its size")),
                    None => return Ok(None),
                },
                State::Trailers => return self.read_trailers(input),
            }
        }
    }

    fn read_size(&mut self, input: &mut BytesMut) -> Result<Option<u64>, Reason> {
        let Some(end) = input.iter().take(MAX_SIZE_LINE).position(|&byte| byte == b'\n') else {
            let too_long = input.len() >= MAX_SIZE_LINE;
            return if too_long {
                Err(Reason::InvalidResponse("chunk size line too long"))
            } else {
                Ok(None)
            };
        };
        let line = input.split_to(end + 1);
        let line = line.strip_suffix(b"\r\n").ok_or(Reason::InvalidResponse("chunk size line without CR"))?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, extension) = line.split_at(digits);
        let size = parse_hex(digits).ok_or(Reason::InvalidResponse("bad chunk size"))?;
        self.extensions += extension.len();
        if self.extensions > MAX_EXTENSIONS {
            return Err(Reason::InvalidResponse("too many chunk extensions"));
        }
        check_extension(extension)?;
        Ok(Some(size))
    }

    fn read_trailers(&mut self, input: &mut BytesMut) -> Result<Option<Option<HeaderMap>>, Reason> {
        if input.starts_with(b"\r\n") {
            input.advance(2);
            return Ok(Some(None));
        }
        let from = self.scanned.saturating_sub(3);
        let unseen = input.get(from..).unwrap_or_default();
        let Some(end) = unseen.windows(4).position(|window| window == b"\r\n\r\n") else {
            self.scanned = input.len();
            let too_long = input.len() > MAX_TRAILERS;
            return if too_long { Err(Reason::InvalidResponse("trailers too large")) } else { Ok(None) };
        };
        if from + end > MAX_TRAILERS {
            return Err(Reason::InvalidResponse("trailers too large"));
        }
        let block = input.split_to(from + end + 4);
        parse_trailers(&block).map(Some)
    }
}

/// One to sixteen digits, nothing else.
fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Blanks, then nothing or `;` and whatever has no control character.
fn check_extension(extension: &[u8]) -> Result<(), Reason> {
    let rest = extension.trim_ascii_start();
    let begins_well = rest.is_empty() || rest.starts_with(b";");
    let clean = extension.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
    if begins_well && clean { Ok(()) } else { Err(Reason::InvalidResponse("bad chunk extension")) }
}

fn parse_trailers(block: &[u8]) -> Result<Option<HeaderMap>, Reason> {
    let malformed = Reason::InvalidResponse("malformed trailers");
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let httparse::Status::Complete((_, fields)) =
        httparse::parse_headers(block, &mut fields).map_err(|_| malformed)?
    else {
        return Err(malformed);
    };
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| malformed)?;
        if may_trail(&name) {
            trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| malformed)?);
        }
    }
    Ok((!trailers.is_empty()).then_some(trailers))
}

/// Whether a field may come after the body (RFC 9110, section 6.5.1): none that frames, routes, authenticates or
/// tells where a request came from, since who merges trailers into the header would believe it.
pub fn may_trail(name: &HeaderName) -> bool {
    const FORBIDDEN: [HeaderName; 22] = [
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::CONTENT_TYPE,
        header::CONTENT_RANGE,
        header::TRAILER,
        header::EXPECT,
        header::RANGE,
        header::MAX_FORWARDS,
        header::CACHE_CONTROL,
        header::PRAGMA,
        header::AUTHORIZATION,
        header::PROXY_AUTHORIZATION,
        header::PROXY_AUTHENTICATE,
        header::WWW_AUTHENTICATE,
        header::COOKIE,
        header::SET_COOKIE,
        header::AGE,
        header::EXPIRES,
        header::DATE,
        header::LOCATION,
        header::RETRY_AFTER,
        header::VARY,
    ];
    let name = dashed(name.as_str());
    !FORBIDDEN.iter().any(|forbidden| *forbidden == *name)
        && !stays_here(&name)
        && !is_managed(&name)
        && !name.starts_with("x-forwarded-")
}

/// Takes what may not come after the body out of trailers.
pub fn strip_trailers(trailers: &mut HeaderMap) {
    let forbidden: Vec<HeaderName> = trailers.keys().filter(|name| !may_trail(name)).cloned().collect();
    for name in forbidden {
        trailers.remove(name);
    }
}
