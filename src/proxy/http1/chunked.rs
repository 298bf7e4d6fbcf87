//! The chunked coding of a request body (RFC 9112, section 7.1), decoded strictly and in place: data are
//! slices of what was read. Extensions are dropped, their bytes counted.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memchr;

/// Longest chunk-size line, and most bytes of such lines beyond the sizes themselves in one body.
const MAX_LINE: usize = 4 * 1024;
const MAX_EXTENSIONS: usize = 16 * 1024;
/// Largest trailer section.
const MAX_TRAILERS: usize = 16 * 1024;
const MAX_TRAILER_FIELDS: usize = 64;

/// Where in the coding the input stands.
#[derive(Debug)]
pub struct ChunkDecoder {
    state: State,
    extensions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    /// The line end after the data of a chunk.
    DataEnd,
    Trailers,
    End,
}

/// A piece of a decoded body.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    /// The coding is complete; what is left in the input is the next request.
    End,
}

/// The coding is broken; the connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunked coding of the body is malformed")]
pub struct ChunkError;

impl ChunkDecoder {
    pub fn new() -> Self {
        Self { state: State::Size, extensions: 0 }
    }

    /// The next piece, or `None` until there is more input.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Piece>, ChunkError> {
        loop {
            match self.state {
                State::Size => {
                    let Some(line) = take_line(input, MAX_LINE)? else { return Ok(None) };
                    self.state = match self.size(&line)? {
                        0 => State::Trailers,
                        size => State::Data(size),
                    };
                }
                State::Data(_) if input.is_empty() => return Ok(None),
                State::Data(left) => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    self.state = match left - take as u64 {
                        0 => State::DataEnd,
                        left => State::Data(left),
                    };
                    return Ok(Some(Piece::Data(input.split_to(take).freeze())));
                }
                State::DataEnd => match input.get(..2) {
                    Some(b"\r\n") => {
                        let _ = input.split_to(2);
                        self.state = State::Size;
                    }
                    Some(_) => return Err(ChunkError),
                    None if input.first().is_some_and(|b| *b != b'\r') => return Err(ChunkError),
                    None => return Ok(None),
                },
                State::Trailers => {
                    let Some(trailers) = take_trailers(input)? else { return Ok(None) };
                    self.state = State::End;
                    if !trailers.is_empty() {
                        return Ok(Some(Piece::Trailers(trailers)));
                    }
                }
                State::End => return Ok(Some(Piece::End)),
            }
        }
    }

    pub fn is_end(&self) -> bool {
        self.state == State::End
    }

    fn size(&mut self, line: &[u8]) -> Result<u64, ChunkError> {
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let (number, rest) = line.split_at_checked(digits).ok_or(ChunkError)?;
        // A chunk of 2^60 bytes is no chunk; fifteen digits also keep the sum of all far from overflow.
        if digits == 0 || digits > 15 || !(rest.is_empty() || rest.starts_with(b";")) {
            return Err(ChunkError);
        }
        if rest.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f) {
            return Err(ChunkError);
        }
        self.extensions += rest.len();
        if self.extensions > MAX_EXTENSIONS {
            return Err(ChunkError);
        }
        let number = std::str::from_utf8(number).map_err(|_| ChunkError)?;
        u64::from_str_radix(number, 16).map_err(|_| ChunkError)
    }
}

/// One line without its CRLF; a bare line feed is an error.
fn take_line(input: &mut BytesMut, limit: usize) -> Result<Option<BytesMut>, ChunkError> {
    let Some(at) = memchr(b'\n', input.get(..limit.min(input.len())).unwrap_or_default()) else {
        return if input.len() >= limit { Err(ChunkError) } else { Ok(None) };
    };
    let mut line = input.split_to(at + 1);
    match line.ends_with(b"\r\n") {
        true => {
            line.truncate(at - 1);
            Ok(Some(line))
        }
        false => Err(ChunkError),
    }
}

fn take_trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, ChunkError> {
    if input.starts_with(b"\r\n") {
        let _ = input.split_to(2);
        return Ok(Some(HeaderMap::new()));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
    let (length, fields) = match httparse::parse_headers(input, &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) => (length, fields),
        Ok(httparse::Status::Partial) if input.len() <= MAX_TRAILERS => return Ok(None),
        _ => return Err(ChunkError),
    };
    let lines = input.get(..length).unwrap_or_default();
    if length > MAX_TRAILERS || has_bare_line_feed(lines) {
        return Err(ChunkError);
    }
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ChunkError)?;
        trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| ChunkError)?);
    }
    let _ = input.split_to(length);
    Ok(Some(trailers))
}

fn has_bare_line_feed(lines: &[u8]) -> bool {
    let mut before = 0;
    lines.iter().any(|byte| {
        let bare = *byte == b'\n' && before != b'\r';
        before = *byte;
        bare
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes `input` handed over in pieces of `cut` bytes: the data, the trailers and what is left over.
    fn decode(input: &[u8], cut: usize) -> Result<(Vec<u8>, HeaderMap, Vec<u8>), ChunkError> {
        let mut decoder = ChunkDecoder::new();
        let (mut buffer, mut data, mut trailers) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        let mut pieces = input.chunks(cut);
        loop {
            match decoder.decode(&mut buffer)? {
                Some(Piece::Data(bytes)) => data.extend_from_slice(&bytes),
                Some(Piece::Trailers(fields)) => trailers = fields,
                Some(Piece::End) => {
                    pieces.for_each(|piece| buffer.extend_from_slice(piece));
                    return Ok((data, trailers, buffer.to_vec()));
                }
                None => buffer.extend_from_slice(pieces.next().ok_or(ChunkError)?),
            }
        }
    }

    #[test]
    fn a_body_with_extensions_and_trailers() {
        let input = b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\nGET /";
        for cut in 1..=input.len() {
            let (data, trailers, left) = decode(input, cut).unwrap();
            assert_eq!((&*data, &*left), (&b"hello world"[..], &b"GET /"[..]), "cut every {cut}");
            assert_eq!(trailers["x-sum"], "1");
        }
    }

    #[test]
    fn malformed_codings_are_refused() {
        let long = format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(64 * 1024));
        for bad in [
            "0x3\r\nabc\r\n0\r\n\r\n",
            "+3\r\nabc\r\n0\r\n\r\n",
            "3 \r\nabc\r\n0\r\n\r\n",
            " 3\r\nabc\r\n0\r\n\r\n",
            "-3\r\nabc\r\n0\r\n\r\n",
            "1_0\r\nabc\r\n0\r\n\r\n",
            "\r\nabc\r\n0\r\n\r\n",
            "3\nabc\r\n0\r\n\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "3;a=\n\r\nabc\r\n0\r\n\r\n",
            "3;a=\rb\r\nabc\r\n0\r\n\r\n",
            "ffffffffffffffff0\r\nabc",
            "ffffffffffffffff\r\nabc",
            "3\r\nabc\r\n0\r\nX: y\n\r\n",
            "3\r\nabc\r\n0\r\nbroken\r\n\r\n",
            &long,
        ] {
            assert_eq!(decode(bad.as_bytes(), bad.len()), Err(ChunkError), "{bad:?}");
        }
    }

    #[test]
    fn extensions_are_counted_over_the_whole_body() {
        let chunk = format!("1;{}\r\na\r\n", "x".repeat(4000));
        assert!(decode(format!("{}0\r\n\r\n", chunk.repeat(4)).as_bytes(), 9999).is_ok());
        assert_eq!(decode(format!("{}0\r\n\r\n", chunk.repeat(5)).as_bytes(), 9999), Err(ChunkError));
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_out(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8),
            cut in 1usize..64,
        ) {
            let mut input = Vec::new();
            for chunk in &chunks {
                input.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                input.extend_from_slice(chunk);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(decode(&input, cut), Ok((chunks.concat(), HeaderMap::new(), Vec::new())));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 1usize..9) {
            let _ = decode(&bytes, cut);
        }
    }
}
