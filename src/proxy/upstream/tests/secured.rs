use super::*;
use crate::tls::client::Roots;
use crate::tls::client::tests::{Server, server, shop};

/// Forwards one request over TLS to a server that would answer it.
async fn forward(verified: Option<bool>, host: &str) -> (Result<Response<Body>, UpstreamError>, usize) {
    let Server { address, ca, mut accepted } = server(shop(), &[]).await;
    spawn_local(async move {
        while let Some(mut stream) = accepted.recv().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|read| read > 0)
            {
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            stream.flush().await.unwrap();
            let _ = stream.read_u8().await;
        }
    });
    let tls = match verified {
        None => ClientTls::unverified(),
        Some(false) => ClientTls::verified(Roots::WebPki).unwrap(),
        Some(true) => ClientTls::verified(Roots::Bundle(&[ca])).unwrap(),
    };
    let upstream = Upstream::new(PoolLimits::default(), tls, Deadlines::new());
    let mut request = request(Method::GET, "");
    request.headers_mut().insert("host", host.parse().unwrap());
    let response =
        upstream.forward_plainly(&cluster(&[address]), &policy(BackendProtocol::Https), request).await;
    upstream.sweep();
    (response, upstream.idle())
}

#[tokio::test(flavor = "local")]
async fn https_backends_are_verified_when_asked_and_kept_alive() {
    for (verified, host, refused) in [
        (None, "anything.example", None),
        (None, "not_a/name", None),
        (Some(true), "shop.example", None),
        (Some(true), "SHOP.example.:8443", None),
        (Some(true), "other.example", Some((Reason::CertWrongName, "upstream_cert_wrong_name"))),
        (Some(false), "shop.example", Some((Reason::CertUnknownCa, "upstream_cert_unknown_ca"))),
    ] {
        let (response, idle) = forward(verified, host).await;
        // Session tickets that come in while a connection is idle are no reason to give it up.
        assert_eq!(idle, usize::from(refused.is_none()), "{host}");
        match response {
            Ok(response) => assert_eq!((collect(response).await.unwrap().0, refused), ("ok".into(), None)),
            Err(error) => {
                assert_eq!(refused, Some((error.reason, error.reason.name())), "{host}");
                assert_eq!(error.reason.status(), StatusCode::BAD_GATEWAY);
            }
        }
    }
}

#[tokio::test(flavor = "local")]
async fn a_plain_backend_is_no_https_backend() {
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]).await;
    let address = backend(move |_, mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = TcpStream::connect(address).await;
    });
    let policy = policy(BackendProtocol::Https);
    let answer =
        upstream().forward_plainly(&cluster(&[address.await]), &policy, request(Method::GET, "")).await;
    assert_eq!(answer.err().map(|error| error.reason), Some(Reason::TlsFailed));
}

#[tokio::test(flavor = "local")]
async fn posts_share_a_connection_under_tls() {
    let Server { address, mut accepted, .. } = server(shop(), &[]).await;
    let connections = Rc::new(Cell::new(0));
    let count = connections.clone();
    spawn_local(async move {
        while let Some(mut stream) = accepted.recv().await {
            count.set(count.get() + 1);
            spawn_local(async move {
                let mut request = Vec::new();
                while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
                    if request.ends_with(b"once") {
                        request.clear();
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                        stream.flush().await.unwrap();
                    }
                }
            });
        }
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address]), policy(BackendProtocol::Https));
    for _ in 0..5 {
        upstream.forward_plainly(&cluster, &policy, request(Method::POST, "once")).await.unwrap();
    }
    assert_eq!((connections.get(), upstream.idle()), (1, 1));
}
