use proptest::prelude::*;

use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 100 };

fn read(input: impl AsRef<[u8]>) -> Result<Option<Head>, HeadError> {
    take_head(&mut BytesMut::from(input.as_ref()), &mut 0, LIMITS)
}

fn head(fields: &str) -> Result<Head, HeadError> {
    read(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).map(|head| head.expect("a whole head"))
}

#[test]
fn an_ordinary_request() {
    let mut input = BytesMut::from("\r\nGET /a?b=c HTTP/1.1\r\nHost: example.com\r\nX-A:  b \r\n\r\nrest");
    let head = take_head(&mut input, &mut 0, LIMITS).unwrap().unwrap();
    assert_eq!((head.method, head.target.to_string()), (Method::GET, "/a?b=c".into()));
    assert_eq!(head.headers["x-a"], "b");
    assert_eq!(head.framing, Framing::Length(0));
    assert!(head.keep_alive && !head.upgrade && !head.expect_continue);
    assert_eq!(input, "rest");
}

#[test]
fn what_frames_a_body_is_unambiguous_or_refused() {
    assert_eq!(head("Content-Length: 10\r\n").unwrap().framing, Framing::Length(10));
    assert_eq!(head("Content-Length: 0\r\n").unwrap().framing, Framing::Length(0));
    assert_eq!(head("Transfer-Encoding: Chunked\r\n").unwrap().framing, Framing::Chunked);

    for fields in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 10\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
    ] {
        assert_eq!(head(fields).unwrap_err(), HeadError::ContentLength, "{fields:?}");
    }
    for length in ["5, 5", "5, 6", "+5", "-0", "0x5", "05", "5 5", "1e1", "18446744073709551616", ""] {
        let fields = format!("Content-Length: {length}\r\n");
        assert_eq!(head(&fields).unwrap_err(), HeadError::ContentLength, "{length:?}");
    }
    for encoding in
        ["xchunked", "chunked, identity", "identity", "chunked, chunked", "chunked;q=1", "gzip", ""]
    {
        let fields = format!("Transfer-Encoding: {encoding}\r\n");
        assert_eq!(head(&fields).unwrap_err(), HeadError::TransferEncoding, "{encoding:?}");
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(head(twice).unwrap_err(), HeadError::TransferEncoding);
    let old = read("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old.unwrap_err(), HeadError::TransferEncoding);
}

#[test]
fn malformed_heads_are_refused() {
    for bad in [
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \x0bchunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /#/../admin HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nExpect: y 100-continue\r\n\r\n",
    ] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn sizes_are_bounded() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(LIMITS.bytes));
    assert_eq!(read(&long).unwrap_err(), HeadError::TooLarge);
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(LIMITS.bytes));
    assert_eq!(read(&endless).unwrap_err(), HeadError::TooLarge);
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100));
    assert_eq!(read(&many).unwrap_err(), HeadError::TooLarge);
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(MAX_TARGET));
    assert_eq!(read(&target).unwrap_err(), HeadError::TargetTooLong);
}

#[test]
fn connection_options_decide_about_keep_alive() {
    assert!(!head("Connection: x, Close\r\n").unwrap().keep_alive);
    assert!(!head("Connection: close\r\nConnection: keep-alive\r\n").unwrap().keep_alive);
    assert!(!read("GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().keep_alive);
    assert!(read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap().unwrap().keep_alive);
}

proptest! {
    #[test]
    fn pieces_give_what_the_whole_gives(
        tail in r"(X: [ -~]{0,20}\r?\n|Content-Length: [0-9, ]{1,3}\r\n){0,4}\r\n[a-z]{0,5}",
        cut in 1usize..40,
    ) {
        let bytes = format!("GET /x HTTP/1.1\r\nHost: a\r\n{tail}");
        let whole = read(&bytes).map(|head| head.map(|head| head.headers));
        let (mut input, mut scanned) = (BytesMut::new(), 0);
        let mut pieces = Ok(None);
        for piece in bytes.as_bytes().chunks(cut) {
            input.extend_from_slice(piece);
            pieces = take_head(&mut input, &mut scanned, LIMITS).map(|head| head.map(|head| head.headers));
            if !matches!(pieces, Ok(None)) {
                break;
            }
        }
        prop_assert_eq!(whole, pieces);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }
}
