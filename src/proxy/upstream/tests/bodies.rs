use super::*;

/// Bytes in which a lost, doubled or moved piece shows.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(31) ^ (n >> 9)) as u8).collect()
}

#[tokio::test(flavor = "local")]
async fn a_truncated_body_is_an_error() {
    for (response, reason) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok", Some(Reason::BodyTruncated)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nok", Some(Reason::BodyTruncated)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", Some(Reason::BodyTruncated)),
        ("HTTP/1.1 200 OK\r\n\r\nok", None),
    ] {
        let address = backend(move |_, mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(response.as_bytes()).await.unwrap();
        });
        let upstream = upstream();
        let answer = collect(get(&upstream, &cluster(&[address.await])).await.unwrap()).await;
        match (answer, reason) {
            (Ok((body, _)), None) => assert_eq!(body, "ok"),
            (Err(crate::proxy::body::BodyError::Backend(error)), Some(reason)) => {
                assert_eq!(error.reason, reason)
            }
            (answer, _) => panic!("{response}: {answer:?}"),
        }
        assert_eq!(upstream.idle(), 0);
    }
}

#[tokio::test(flavor = "local")]
async fn an_upgrade_hands_over_the_connection_and_what_came_with_it() {
    let heads = Rc::new(RefCell::new(String::new()));
    let seen = heads.clone();
    let address = backend(move |_, mut stream| {
        let seen = seen.clone();
        async move {
            *seen.borrow_mut() = read_head(&mut stream).await.unwrap();
            let answer =
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello";
            stream.write_all(answer).await.unwrap();
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
        }
    });
    let upstream = upstream();
    let mut asking = request(Method::GET, "");
    asking.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    let policy = policy(BackendProtocol::Http1);
    let response = upstream.forward_plainly(&cluster(&[address.await]), &policy, asking).await.unwrap();
    assert!(heads.borrow().contains("connection: upgrade\r\n"));
    assert_eq!(response.headers()["upgrade"], "websocket");
    let Body::Upgraded(mut stream) = response.into_body() else { panic!("no upgrade") };
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello");
    stream.write_all(b"and back").await.unwrap();
    let mut echo = [0; 8];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!((&echo, upstream.idle()), (b"and back", 0));
}

#[tokio::test(flavor = "local")]
async fn trailers_of_responses_pass_without_the_forbidden() {
    let (address, _) = replying(
        &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
        grpc-status: 0\r\ncontent-length: 7\r\nx-forwarded-for: evil\r\nset-cookie: a\r\n\r\n"[..],
    )
    .await;
    let upstream = upstream();
    let (body, trailers) = collect(get(&upstream, &cluster(&[address])).await.unwrap()).await.unwrap();
    let expected: HeaderMap = [("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect();
    assert_eq!((&body[..], trailers, upstream.idle()), (&b"ok"[..], Some(expected), 1));
}

#[tokio::test(flavor = "local")]
async fn big_bodies_arrive_byte_by_byte_the_same_and_wait_for_the_reader() {
    let data = pattern(12 * 1024 * 1024);
    for chunked in [false, true] {
        let written = Rc::new(Cell::new(0));
        let (progress, source) = (written.clone(), data.clone());
        let address = backend(move |_, mut stream| {
            let (progress, data) = (progress.clone(), source.clone());
            async move {
                read_head(&mut stream).await;
                let framing = match chunked {
                    true => "transfer-encoding: chunked".to_owned(),
                    false => format!("content-length: {}", data.len()),
                };
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).await.unwrap();
                for piece in data.chunks(70_000) {
                    if chunked {
                        stream.write_all(format!("{:X}\r\n", piece.len()).as_bytes()).await.unwrap();
                    }
                    stream.write_all(piece).await.unwrap();
                    if chunked {
                        stream.write_all(b"\r\n").await.unwrap();
                    }
                    progress.set(progress.get() + piece.len());
                }
                if chunked {
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                }
                read_head(&mut stream).await;
            }
        });
        let upstream = upstream();
        let response = get(&upstream, &cluster(&[address.await])).await.unwrap();
        // Give the backend every chance to write on: only the sockets' buffers may fill.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(written.get() < data.len(), "nobody reads, yet everything was taken");
        let (body, _) = collect(response).await.unwrap();
        assert!(body == data, "chunked: {chunked}");
        assert_eq!(upstream.idle(), 1);
    }
}

#[tokio::test(flavor = "local")]
async fn uploads_stream_and_trailers_follow() {
    let address = backend(|_, mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("content-length") && !head.contains("expect"), "{head}");
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n\r\n") || !rest.windows(5).any(|window| window == b"\r\n0\r\n") {
            stream.read_buf(&mut rest).await.unwrap();
        }
        let trailers =
            String::from_utf8_lossy(rest.rsplit(|&byte| byte == b'0').next().unwrap()).into_owned();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{trailers}", trailers.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let mut client = TcpStream::connect(http1_gateway(address.await).await).await.unwrap();
    let head = "POST /up HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 100"));
    client.write_all(b"3\r\nabc\r\n").await.unwrap();
    client.write_all(b"2\r\nde\r\n0\r\nx-sum: five\r\ncookie: no\r\n\r\n").await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 200"));
    let mut answer = [0; 17];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"\r\nx-sum: five\r\n\r\n");
}

#[tokio::test(flavor = "local")]
async fn a_big_upload_is_exact() {
    let data = pattern(5_000_000);
    let expected = data.clone();
    let address = backend(move |_, mut stream| {
        let expected = expected.clone();
        async move {
            let head = read_head(&mut stream).await.unwrap();
            assert_eq!(head.matches("content-length").count(), 1);
            let mut body = vec![0; expected.len()];
            stream.read_exact(&mut body).await.unwrap();
            let same = if body == expected { "same" } else { "diff" };
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{same}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut client = TcpStream::connect(http1_gateway(address.await).await).await.unwrap();
    let head = format!("PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", data.len());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&data).await.unwrap();
    read_head(&mut client).await.unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"same");
}

#[tokio::test(flavor = "local")]
async fn an_early_response_is_heard_during_the_upload() {
    let address = backend(|_, mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig").await.unwrap();
        read_head(&mut stream).await;
    });
    let mut client = TcpStream::connect(http1_gateway(address.await).await).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\nbegin").await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 413"));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"big");
}

#[tokio::test(flavor = "local")]
async fn a_response_streams_while_the_upload_goes_on() {
    let address = backend(|_, mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await.unwrap();
        for _ in 0..4 {
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte.to_ascii_uppercase()).await.unwrap();
        }
    });
    let mut client = TcpStream::connect(http1_gateway(address.await).await).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\n").await.unwrap();
    read_head(&mut client).await.unwrap();
    for byte in b"echo" {
        client.write_u8(*byte).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), byte.to_ascii_uppercase());
    }
}

#[tokio::test(flavor = "local")]
async fn what_is_known_of_the_length_is_told() {
    use http_body::Body as _;
    let go = Rc::new(tokio::sync::Notify::new());
    for (head, rest, lengths) in [
        ("content-length: 4\r\n\r\nab", "cd", [Some(4), Some(2), Some(0)]),
        ("transfer-encoding: chunked\r\n\r\n2\r\nab\r\n", "2\r\ncd\r\n0\r\n\r\n", [None, None, Some(0)]),
    ] {
        let wait = go.clone();
        let address = backend(move |_, mut stream| {
            let wait = wait.clone();
            async move {
                read_head(&mut stream).await;
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes()).await.unwrap();
                wait.notified().await;
                stream.write_all(rest.as_bytes()).await.unwrap();
                read_head(&mut stream).await;
            }
        });
        let upstream = upstream();
        let mut body = get(&upstream, &cluster(&[address.await])).await.unwrap().into_body();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (lengths[0], false));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (lengths[1], false));
        go.notify_one();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "cd");
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (lengths[2], true));
        assert_eq!(upstream.idle(), 1, "the connection is back before the end is asked for");
    }
}

#[tokio::test(flavor = "local")]
async fn a_small_post_is_sent_and_its_connection_kept() {
    let address = backend(|number, mut stream| async move {
        while let Some(head) = read_head(&mut stream).await {
            assert!(head.contains("content-length: 5\r\n"), "{head}");
            let mut body = [0; 5];
            stream.read_exact(&mut body).await.unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut client = TcpStream::connect(http1_gateway(address.await).await).await.unwrap();
    for _ in 0..3 {
        client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nsmall").await.unwrap();
        read_head(&mut client).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'1');
    }
}
