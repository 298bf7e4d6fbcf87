use super::*;

#[tokio::test(flavor = "local")]
async fn framing_of_responses() {
    // The response, the body or the reason, and whether the connection may be used again.
    let cases: &[(&str, Result<&str, &str>, bool)] = &[
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Ok(""), true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", Ok("ok"), true),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n1;x=y\r\no\r\n01\r\nk\r\n0\r\n\r\n",
            Ok("ok"),
            true,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", Ok(""), true),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", Ok(""), true),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            Ok(""),
            true,
        ),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), true),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), false),
        ("HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), false),
        (
            "HTTP/1.1 200 OK\r\nconnection: x\r\nconnection: keep-alive, close\r\ncontent-length: 0\r\n\r\n",
            Ok(""),
            false,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", Ok("ok"), false),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nmore", Ok("ok"), false),
        ("HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n", Ok(""), false),
        ("HTTP/1.1 204 No Content\r\n\r\nbody", Ok(""), false),
        ("HTTP/1.1 304 Not Modified\r\n\r\nbody", Ok(""), false),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
            Err("upstream_invalid_response: two different content-lengths"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
            Err("upstream_invalid_response: bad content-length"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok",
            Err("upstream_invalid_response: bad content-length"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nok",
            Err("upstream_invalid_response: bad content-length"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: both content-length and transfer-encoding"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: unknown transfer-encoding"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: unknown transfer-encoding"),
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: transfer-encoding in HTTP/1.0"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            Err("upstream_invalid_response: bad chunk size"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n",
            Err("upstream_invalid_response: chunk size line without CR"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n",
            Err("upstream_invalid_response: chunk longer than its size"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok",
            Err("upstream_invalid_response: malformed response head"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nx: 1\r\n folded: 2\r\n\r\n",
            Err("upstream_invalid_response: malformed response head"),
            false,
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            Err("upstream_invalid_response: unexpected 101"),
            false,
        ),
        ("HTTP/2.0 200 OK\r\n\r\n", Err("upstream_invalid_response: malformed response head"), false),
        ("<html>zero point nine</html>", Err("upstream_invalid_response: malformed response head"), false),
    ];
    for (response, expected, reusable) in cases {
        let (address, _) = replying(*response).await;
        let (upstream, cluster) = (upstream(), cluster(&[address]));
        let body = match get(&upstream, &cluster).await {
            Ok(response) => collect(response).await.map(|(body, _)| body).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(
            body.as_deref(),
            expected.map(str::as_bytes).map_err(str::to_owned).as_deref(),
            "{response}"
        );
        assert_eq!(upstream.idle(), usize::from(*reusable), "{response}");
    }
}

#[tokio::test(flavor = "local")]
async fn too_much_of_a_head() {
    let cookies = "set-cookie: ".to_owned() + &"c".repeat(4096) + "\r\n";
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{fields}\r\n");
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17);
    for (response, expected) in [
        (head(&cookies.repeat(40)), None),
        (head(&cookies.repeat(80)), Some(Reason::ResponseHeadTooLarge)),
        (head(&"x: y\r\n".repeat(255)), None),
        (head(&"x: y\r\n".repeat(10_000)), Some(Reason::ResponseHeadTooLarge)),
        (interim + &head(""), Some(Reason::InvalidResponse("too many interim responses"))),
    ] {
        let address = backend(move |_, mut stream| {
            let response = response.clone();
            async move {
                read_head(&mut stream).await;
                // The other side hangs up early where it has seen enough.
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        let answer = get(&upstream(), &cluster(&[address.await])).await;
        assert_eq!(answer.err().map(|error| error.reason), expected);
    }
}

#[tokio::test(flavor = "local")]
async fn head_has_no_body_whatever_its_length_says() {
    let (address, connections) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[address]));
    for _ in 0..2 {
        let head = request(Method::HEAD, "");
        let response =
            upstream.forward_plainly(&cluster, &policy(BackendProtocol::Http1), head).await.unwrap();
        assert_eq!(response.headers()["content-length"], "1000");
        assert_eq!(collect(response).await.unwrap().0, "");
    }
    assert_eq!(connections.get(), 1);
}
