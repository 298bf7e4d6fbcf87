use super::*;
use crate::snapshot::affinity::{Affinity, AffinityMode, SessionCookie};

#[tokio::test(flavor = "local")]
async fn a_connection_is_used_again_as_soon_as_the_last_byte_is_there() {
    let (address, connections) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[address]));
    let first = get(&upstream, &cluster).await.unwrap();
    assert_eq!(upstream.idle(), 1, "before the body is even looked at");
    let second = get(&upstream, &cluster).await.unwrap();
    assert_eq!(collect(first).await.unwrap().0, "ok");
    assert_eq!(collect(second).await.unwrap().0, "ok");
    assert_eq!(connections.get(), 1);
}

/// Answers the first request of a connection, reads a second one and closes without a word.
async fn closes_on_second() -> (SocketAddr, Rc<Cell<usize>>) {
    let heads = Rc::new(Cell::new(0));
    let seen = heads.clone();
    let address = backend(move |_, mut stream| {
        let seen = seen.clone();
        async move {
            read_head(&mut stream).await;
            seen.set(seen.get() + 1);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            if read_head(&mut stream).await.is_some() {
                seen.set(seen.get() + 1);
            }
        }
    });
    (address.await, heads)
}

#[tokio::test(flavor = "local")]
async fn a_stale_connection_is_retried_for_idempotent_methods_only() {
    for (method, outcome, heads_seen) in
        [(Method::GET, None, 3), (Method::PUT, None, 3), (Method::POST, Some(Reason::Closed), 2)]
    {
        let (address, heads) = closes_on_second().await;
        let (upstream, cluster) = (upstream(), cluster(&[address]));
        get(&upstream, &cluster).await.unwrap();
        let policy = policy(BackendProtocol::Http1);
        let answer = upstream.forward_plainly(&cluster, &policy, request(method.clone(), "")).await;
        assert_eq!(answer.err().map(|error| error.reason), outcome, "{method}");
        assert_eq!(heads.get(), heads_seen, "{method}");
    }
}

/// That a connection was stale is no reason for a session to leave its endpoint.
#[tokio::test(flavor = "local")]
async fn a_session_tries_its_own_endpoint_again_over_a_new_connection() {
    let (one, two) = (closes_on_second().await, closes_on_second().await);
    let (upstream, cluster) = (upstream(), cluster(&[one.0, two.0]));
    let cookie = SessionCookie::default();
    let affinity = Affinity { mode: AffinityMode::Balanced, change_on_failure: true, cookie };
    let policy = policy(BackendProtocol::Http1);
    let retries = Retries { tries: 3, non_idempotent: false };
    let fields = HeaderMap::from_iter([(
        header::COOKIE,
        http::HeaderValue::from_static("INGRESSCOOKIE=00000000000000070000000a"),
    )]);
    for expected in [1, 3] {
        let session = Session::new(&fields, &affinity, false, false);
        let target = Target { cluster: &cluster, policy: &policy, session: Some(&session) };
        let (admit, about) = (|_: &Endpoint| Ok(Way::default()), ClientFields::default());
        let get = request(Method::GET, "");
        upstream.forward(target, retries, &admit, &about, get).await.unwrap();
        let mut seen = [one.1.get(), two.1.get()];
        seen.sort_unstable();
        assert_eq!(seen, [0, expected]);
        assert_eq!(session.cookie(&cluster, &affinity.cookie, "/"), None);
    }
}

#[tokio::test(flavor = "local")]
async fn a_connection_found_closed_costs_no_request_at_all() {
    let closed = Rc::new(tokio::sync::Notify::new());
    let close = closed.clone();
    let address = backend(move |_, mut stream| {
        let close = close.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            drop(stream);
            close.notify_one();
        }
    });
    let (upstream, cluster) = (upstream(), cluster(&[address.await]));
    for _ in 0..5 {
        let post = request(Method::POST, "once only");
        upstream.forward_plainly(&cluster, &policy(BackendProtocol::Http1), post).await.unwrap();
        closed.notified().await;
    }
    upstream.sweep();
    assert_eq!(upstream.idle(), 0);
}

#[tokio::test(flavor = "local")]
async fn an_answer_nobody_asked_for_poisons_an_idle_connection() {
    let poison = Rc::new(tokio::sync::Notify::new());
    let go = poison.clone();
    let address = backend(move |number, mut stream| {
        let go = go.clone();
        async move {
            read_head(&mut stream).await;
            let good = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
            stream.write_all(good.as_bytes()).await.unwrap();
            if number == 1 {
                go.notified().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison").await.unwrap();
            }
            read_head(&mut stream).await;
        }
    });
    let (upstream, cluster) = (upstream(), cluster(&[address.await]));
    assert_eq!(collect(get(&upstream, &cluster).await.unwrap()).await.unwrap().0, "1");
    assert_eq!(upstream.idle(), 1);
    poison.notify_one();
    // Time for the runtime to see it; what it has not seen yet is found only by a thorough check.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(collect(get(&upstream, &cluster).await.unwrap()).await.unwrap().0, "2");
}

#[tokio::test(flavor = "local")]
async fn a_refusing_endpoint_is_passed_over() {
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[refusing().await, address, refusing().await]));
    for _ in 0..6 {
        let post = request(Method::POST, "body");
        upstream.forward_plainly(&cluster, &policy(BackendProtocol::Http1), post).await.unwrap();
    }
}

#[tokio::test(flavor = "local")]
async fn no_endpoint_answers() {
    let error = get(&upstream(), &cluster(&[refusing().await, refusing().await])).await.err().unwrap();
    assert_eq!(
        (error.reason.status(), error.to_string()),
        (StatusCode::BAD_GATEWAY, "upstream_connect_refused".into())
    );
    let empty = Cluster::new(cluster(&[]).key, [], Some("the Service has no ready endpoint"));
    let error = get(&upstream(), &empty).await.err().unwrap();
    assert_eq!(error.reason.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(error.to_string(), "upstream_no_endpoint: the Service has no ready endpoint");
}

#[tokio::test(flavor = "local")]
async fn a_reset_before_any_response_byte_moves_to_the_next_endpoint() {
    let dying = backend(|_, stream| async move { drop(stream) }).await;
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[dying, address]));
    for _ in 0..4 {
        get(&upstream, &cluster).await.unwrap();
    }
}

#[tokio::test(flavor = "local")]
async fn a_silent_backend_times_out() {
    for (response, at_head) in [("", true), ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok", false)] {
        let (address, _) = replying(response).await;
        let deadlines = Deadlines::new();
        let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
        // A minute in a moment, but only once nothing else happens any more.
        spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            deadlines.advance(610);
            tokio::time::sleep(Duration::from_millis(100)).await;
            deadlines.advance(610);
        });
        let error = match get(&upstream, &cluster(&[address])).await {
            Err(error) => error,
            Ok(response) => match collect(response).await {
                Err(crate::proxy::body::BodyError::Backend(error)) if !at_head => error,
                other => panic!("{other:?}"),
            },
        };
        assert_eq!((error.reason, error.reason.status()), (Reason::ReadTimeout, StatusCode::GATEWAY_TIMEOUT));
    }
}

#[tokio::test(flavor = "local")]
async fn the_pool_keeps_to_its_limits() {
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"[..]).await;
    let limits = PoolLimits { max_idle: 2, ..PoolLimits::default() };
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(limits, ClientTls::unverified(), deadlines.clone());
    let cluster = cluster(&[address]);
    futures_util::future::join_all((0..5).map(|_| get(&upstream, &cluster))).await;
    assert_eq!(upstream.idle(), 2);
    // Buffers go first, then connections.
    deadlines.advance(100);
    upstream.sweep();
    assert_eq!(upstream.idle(), 2);
    assert_eq!(collect(get(&upstream, &cluster).await.unwrap()).await.unwrap().0, "abc");
    deadlines.advance(620);
    upstream.sweep();
    assert_eq!(upstream.idle(), 0);
}

#[tokio::test(flavor = "local")]
async fn new_limits_count_for_connections_that_are_idle_already() {
    let answer = &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"[..];
    let (first, second) = (replying(answer).await.0, replying(answer).await.0);
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
    let clusters = [cluster(&[first]), cluster(&[second])];
    let ask = async || {
        let five = clusters.iter().flat_map(|cluster| (0..5).map(|_| get(&upstream, cluster)));
        futures_util::future::join_all(five).await;
    };
    ask().await;
    assert_eq!(upstream.idle(), 10);
    for max_idle in [7, 0] {
        upstream.set_limits(PoolLimits { max_idle, ..PoolLimits::default() });
        upstream.sweep();
        assert_eq!(upstream.idle(), max_idle);
        ask().await;
        assert_eq!(upstream.idle(), max_idle);
    }
    let idle_timeout = Duration::from_secs(5);
    upstream.set_limits(PoolLimits { idle_timeout, ..PoolLimits::default() });
    ask().await;
    deadlines.advance(60);
    upstream.sweep();
    assert_eq!(upstream.idle(), 0);
}

/// Backends that read a request and close without a word, and how many requests they saw.
async fn closing(number: usize) -> (Cluster, Rc<Cell<usize>>) {
    let seen = Rc::new(Cell::new(0));
    let mut addresses = Vec::new();
    for _ in 0..number {
        let seen = seen.clone();
        let close = move |_, mut stream| {
            let seen = seen.clone();
            async move {
                read_head(&mut stream).await;
                seen.set(seen.get() + 1);
            }
        };
        addresses.push(backend(close).await);
    }
    (cluster(&addresses), seen)
}

#[tokio::test(flavor = "local")]
async fn a_request_is_sent_as_often_as_the_settings_say() {
    for (endpoints, tries, attempts) in
        [(4, 1, 1), (4, 2, 2), (4, 3, 3), (4, 0, 4), (1, 0, 2), (20, 0, MAX_TRIES), (20, u32::MAX, MAX_TRIES)]
    {
        let (cluster, seen) = closing(endpoints).await;
        let (retries, policy) = (Retries { tries, non_idempotent: false }, policy(BackendProtocol::Http1));
        let answer = upstream().forward_within(retries, &cluster, &policy, request(Method::GET, "")).await;
        assert_eq!(answer.err().map(|error| error.reason), Some(Reason::Closed));
        assert_eq!(seen.get(), attempts, "{tries} tries at {endpoints} endpoints");
    }
}

#[tokio::test(flavor = "local")]
async fn a_post_that_was_sent_is_sent_again_only_where_the_operator_wants_it() {
    for (non_idempotent, attempts) in [(false, 1), (true, 3)] {
        let (cluster, seen) = closing(3).await;
        let (retries, policy) = (Retries { tries: 3, non_idempotent }, policy(BackendProtocol::Http1));
        let post = request(Method::POST, "order");
        let answer = upstream().forward_within(retries, &cluster, &policy, post).await;
        assert_eq!(answer.err().map(|error| error.reason), Some(Reason::Closed));
        assert_eq!(seen.get(), attempts);
    }
}

#[tokio::test(flavor = "local")]
async fn names_are_resolved() {
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]).await;
    let named = |host: &str| {
        let endpoint = Endpoint::Name { host: host.into(), port: address.port() };
        Cluster::new(cluster(&[]).key, [Arc::new(endpoint)], None)
    };
    get(&upstream(), &named("127.0.0.1")).await.unwrap();
    let error = get(&upstream(), &named("no-such-name.invalid")).await.err().unwrap();
    assert_eq!(error.reason, Reason::NameNotFound);
}

/// What `request` comes to when everything stands still for two minutes.
async fn after_two_minutes(
    address: SocketAddr,
    protocol: BackendProtocol,
    request: Request<Body>,
) -> Option<Reason> {
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
    spawn_local(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        deadlines.advance(1200);
    });
    let answer = upstream.forward_plainly(&cluster(&[address]), &policy(protocol), request).await;
    answer.err().map(|error| error.reason)
}

#[tokio::test(flavor = "local")]
async fn a_backend_that_takes_nothing_times_out() {
    let address = backend(|_, stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let big = request(Method::PUT, vec![0; 64 << 20]);
    let reason = after_two_minutes(address.await, BackendProtocol::Http1, big).await;
    assert_eq!(reason, Some(Reason::SendTimeout));
}

#[tokio::test(flavor = "local")]
async fn a_handshake_without_an_answer_times_out() {
    for protocol in [BackendProtocol::Https, BackendProtocol::Grpcs] {
        let (address, _) = replying("").await;
        let reason = after_two_minutes(address, protocol, request(Method::GET, "")).await;
        assert_eq!(reason, Some(Reason::ConnectTimeout));
    }
}

#[tokio::test(flavor = "local")]
async fn a_response_given_up_closes_its_connection() {
    let (address, connections) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[address]));
    for expected in 1..=3 {
        drop(get(&upstream, &cluster).await.unwrap());
        assert_eq!((upstream.idle(), connections.get()), (0, expected));
    }
}

#[tokio::test(flavor = "local")]
async fn no_backend_sees_a_connect() {
    let (address, connections) = replying("").await;
    for protocol in [BackendProtocol::Http1, BackendProtocol::H2c] {
        let tunnel = Request::builder().method(Method::CONNECT).uri("inside:22").body(Body::Empty).unwrap();
        let answer = upstream().forward_plainly(&cluster(&[address]), &policy(protocol), tunnel).await;
        assert_eq!(answer.err().map(|error| error.reason.status()), Some(StatusCode::METHOD_NOT_ALLOWED));
    }
    assert_eq!(connections.get(), 0);
}
