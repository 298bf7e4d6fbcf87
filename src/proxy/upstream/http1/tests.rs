use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use proptest::prelude::*;

use super::chunked::{ChunkDecoder, Decoded, strip_trailers};
use super::response::{HeadReader, ResponseHead};
use super::{Framing as ResponseFraming, request};
use crate::proxy::body::Body;
use crate::proxy::headers::ClientFields;
use crate::proxy::upstream::Head;
use crate::proxy::upstream::error::Reason;

fn encoded(request: Request<Body>) -> String {
    let (parts, body) = request.into_parts();
    let mut out = Vec::new();
    let head = Head { parts: &parts, about: &ClientFields::default() };
    request::encode(head, request::Framing::of(&body), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_request_has_exactly_the_framing_of_its_body() {
    let smuggling = |method: Method, body: Body| {
        let request = Request::builder().method(method).uri("http://ignored/p?q").header("Host", "h");
        let request = request.header("Content-Length", "3").header("Content-Length", "4");
        let request = request.header("Transfer-Encoding", "chunked").header("X-Kept", "1");
        let request = request.header("Connection", "close, x-kept").header("Keep-Alive", "x");
        encoded(request.header("Expect", "100-continue").body(body).unwrap())
    };
    assert_eq!(smuggling(Method::GET, Body::Empty), "GET /p?q HTTP/1.1\r\nhost: h\r\nx-kept: 1\r\n\r\n");
    assert_eq!(
        smuggling(Method::POST, Body::Empty),
        "POST /p?q HTTP/1.1\r\nhost: h\r\nx-kept: 1\r\ncontent-length: 0\r\n\r\n"
    );
    assert_eq!(
        smuggling(Method::DELETE, Body::Full(Bytes::from_static(b"abc"))),
        "DELETE /p?q HTTP/1.1\r\nhost: h\r\nx-kept: 1\r\ncontent-length: 3\r\n\r\n"
    );
}

#[test]
fn targets_and_hosts() {
    let target = |uri: &str| encoded(Request::builder().uri(uri).body(Body::Empty).unwrap());
    assert_eq!(target("https://shop.example:8443"), "GET / HTTP/1.1\r\nhost: shop.example:8443\r\n\r\n");
    assert_eq!(target("/a"), "GET /a HTTP/1.1\r\nhost: \r\n\r\n");
    assert_eq!(target("*"), "GET * HTTP/1.1\r\nhost: \r\n\r\n");
}

#[test]
fn an_upgrade_is_asked_for_in_both_fields() {
    let request = Request::builder().uri("/").header("host", "h").header("upgrade", "websocket");
    let text = encoded(request.body(Body::Empty).unwrap());
    assert_eq!(text, "GET / HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
}

#[test]
fn response_fields_for_us_alone_stay_here() {
    let text = "HTTP/1.1 200 OK\r\nConnection: X-Private, close\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\n\
        Upgrade: h2c\r\nTransfer-Encoding: chunked\r\nX-Public: \u{e4}\r\n\r\n";
    let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let mut input = BytesMut::from(&bytes[..]);
    let head = HeadReader::default().read(&mut input, &Method::GET).unwrap().unwrap();
    assert_eq!(head.framing, ResponseFraming::Chunked);
    assert!(!head.keep_alive && input.is_empty());
    assert_eq!(head.headers.len(), 1);
    assert_eq!(head.headers["x-public"].as_bytes(), b"\xe4");
}

type Decoding = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

/// Decodes `pieces` as they come: the data, the trailers and what is left over, or the refusal; `None` where the
/// end is missing.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Decoding>, Reason> {
    let (mut decoder, mut input, mut data) = (ChunkDecoder::default(), BytesMut::new(), Vec::new());
    let mut end = None;
    for piece in pieces {
        input.extend_from_slice(piece);
        while end.is_none() {
            match decoder.decode(&mut input)? {
                Some(Decoded::Data(bytes)) => data.extend_from_slice(&bytes),
                Some(Decoded::End(trailers)) => end = Some(trailers),
                None => break,
            }
        }
    }
    Ok(end.map(|trailers| (data, trailers, input.to_vec())))
}

fn read_head<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<(ResponseHead, Vec<u8>)>, Reason> {
    let (mut reader, mut input) = (HeadReader::default(), BytesMut::new());
    let mut found = None;
    for piece in pieces {
        input.extend_from_slice(piece);
        if found.is_none() && !input.is_empty() {
            found = reader.read(&mut input, &Method::GET)?;
        }
    }
    Ok(found.map(|head| (head, input.to_vec())))
}

fn split<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..12)
}

/// Texts made of the pieces that parsers care about, well-formed only by chance.
fn soup(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn chunks_come_out_as_they_went_in(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
        cuts in cuts(),
    ) {
        let mut coded = Vec::new();
        for chunk in &chunks {
            coded.extend_from_slice(format!("{:x};name=value\r\n", chunk.len()).as_bytes());
            coded.extend_from_slice(chunk);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\nx-sum: 1\r\n\r\nrest");
        let (data, trailers, rest) = decode(split(&coded, &cuts)).unwrap().unwrap();
        prop_assert_eq!(data, chunks.concat());
        let trailers = trailers.unwrap();
        prop_assert_eq!(&trailers["x-sum"], "1");
        prop_assert_eq!(rest, b"rest");
    }

    #[test]
    fn any_chunked_bytes_decode_alike_however_they_are_split(
        bytes in soup(&["0", "1", "5", "a", "\r\n", "\n", ";x", " ", "hello", "0\r\n\r\n", "x: y\r\n", "ffffffffffffffff", "\r"]),
        cuts in cuts(),
    ) {
        prop_assert_eq!(decode([&bytes[..]]), decode(split(&bytes, &cuts)));
    }

    // With an end: a refusal may come before it or, in pieces, only with it.
    #[test]
    fn any_head_reads_alike_however_it_is_split(
        bytes in soup(&["HTTP/1.1 200 OK\r\n", "HTTP/1.0 204\r\n", "content-length: 5\r\n", "transfer-encoding: chunked\r\n",
            "x: y\r\n", "connection: close\r\n", "\r\n", "\n", "\r", ":", " ", "HTTP/1.1 ", "304 "]),
        cuts in cuts(),
    ) {
        let bytes = [&bytes[..], b"\n\r\n"].concat();
        prop_assert_eq!(read_head([&bytes[..]]), read_head(split(&bytes, &cuts)));
    }
}

#[test]
fn trailers_that_would_be_believed_in_a_header_are_taken_out() {
    let mut trailers = HeaderMap::new();
    for name in [
        "x-sum",
        "x-forwarded-client-cert",
        "x_forwarded_client_cert",
        "x_real_ip",
        "x.real.ip",
        "x-scheme",
        "x-original-forwarded-for",
        "forwarded",
        "proxy",
        "http2-settings",
        "keep_alive",
        "host",
        "grpc-status",
    ] {
        trailers.append(name, HeaderValue::from_static("1"));
    }
    strip_trailers(&mut trailers);
    let mut left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["grpc-status", "x-sum"]);
}
