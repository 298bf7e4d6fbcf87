//! The client against responders that misbehave in every way a socket allows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::net::TcpListener;

use super::*;
use crate::tls::ocsp::testing::{Ca, Issued};

/// What a responder does after it has sent its bytes.
#[derive(Clone, Copy)]
enum Then {
    Close,
    Hang,
    /// Sends the bytes again and again.
    Repeat,
    /// Sends the bytes one at a time.
    Trickle,
}

/// A responder that reads a request, keeps it and plays back bytes.
struct Responder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Responder {
    async fn start(bytes: impl Into<Vec<u8>>, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (bytes, kept) = (bytes.into(), requests.clone());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                kept.lock().unwrap().push(request);
                tokio::spawn(play(stream, bytes.clone(), then));
            }
        });
        Self { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn request(&self) -> String {
        self.requests.lock().unwrap().first().cloned().expect("a request arrived")
    }
}

async fn play(mut stream: TcpStream, bytes: Vec<u8>, then: Then) {
    // The client may hang up at any time; that is what is being tested.
    match then {
        Then::Trickle => {
            for byte in bytes.iter().cycle() {
                if stream.write_all(&[*byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Then::Repeat => while stream.write_all(&bytes).await.is_ok() {},
        Then::Close => drop(stream.write_all(&bytes).await),
        Then::Hang => {
            drop(stream.write_all(&bytes).await);
            std::future::pending::<()>().await;
        }
    }
}

/// Head and body of one request.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut bytes = Vec::new();
    loop {
        if let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n")
            && bytes.len() >= head + 4 + content_length(&bytes[..head])
        {
            break;
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.map_or(0, |length| length.parse().unwrap())
}

fn loopback() -> OcspSettings {
    OcspSettings {
        allowed_cidrs: vec!["127.0.0.0/8".parse().unwrap()],
        timeout: Duration::from_secs(20),
        ..OcspSettings::default()
    }
}

/// For responders that only a timeout ends.
fn impatient() -> OcspSettings {
    OcspSettings { timeout: Duration::from_millis(200), ..loopback() }
}

fn order(url: &str, settings: OcspSettings) -> Order {
    let ca = Ca::new("issuer");
    let leaf = ca.leaf().issue();
    order_of(&ca, &leaf, url, settings)
}

fn order_of(ca: &Ca, leaf: &Issued, url: &str, settings: OcspSettings) -> Order {
    Order {
        target: Target::parse(url).unwrap(),
        trusted: false,
        request: Request::new(&leaf.der, &ca.der).unwrap(),
        post: false,
        issuer: ca.der.clone(),
        settings: Arc::new(settings),
    }
}

async fn fetch(order: Order) -> Result<Bytes, FetchError> {
    HttpFetch::new().fetch(order).await
}

/// What the client makes of a responder that plays `bytes`.
async fn outcome(bytes: impl Into<Vec<u8>>, then: Then, settings: OcspSettings) -> Result<Bytes, FetchError> {
    let responder = Responder::start(bytes, then).await;
    fetch(order(&responder.url("/"), settings)).await
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn get_carries_the_request_in_its_path_and_nothing_else() {
    let responder = Responder::start(OK, Then::Close).await;
    let order = order(&responder.url("/ocsp"), loopback());
    let expected = order.request.get_url("/ocsp").unwrap();
    assert_eq!(fetch(order).await.unwrap(), "hello");
    let request = responder.request().to_ascii_lowercase();
    assert!(request.starts_with(&format!("get {} http/1.1\r\n", expected.to_ascii_lowercase())), "{request}");
    assert!(request.contains(&format!("host: {}\r\n", responder.address)));
    for header in ["cookie", "authorization", "accept-encoding", "content-length"] {
        assert!(!request.contains(header), "{request}");
    }
}

#[tokio::test]
async fn long_urls_and_second_attempts_are_posted() {
    let long = format!("/{}", "a".repeat(250));
    for (path, post) in [(long.as_str(), false), ("/short", true)] {
        let responder = Responder::start(OK, Then::Close).await;
        let order = Order { post, ..order(&responder.url(path), loopback()) };
        let length = order.request.der().len();
        assert_eq!(fetch(order).await.unwrap(), "hello");
        let request = responder.request().to_ascii_lowercase();
        assert!(request.starts_with(&format!("post {path} http/1.1\r\n")), "{request}");
        assert!(request.contains("content-type: application/ocsp-request\r\n"));
        assert!(request.contains(&format!("content-length: {length}\r\n")));
    }
}

#[tokio::test]
async fn bodies_end_by_length_by_chunk_and_by_close() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(outcome(chunked, Then::Hang, loopback()).await.unwrap(), "hello");
    assert_eq!(outcome(OK, Then::Hang, loopback()).await.unwrap(), "hello");
    assert_eq!(outcome("HTTP/1.0 200 OK\r\n\r\nhello", Then::Close, loopback()).await.unwrap(), "hello");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Responder::start(OK, Then::Close).await;
    for status in [301, 302, 303, 307, 308] {
        let answer = format!("HTTP/1.1 {status} Moved\r\nLocation: {}\r\n\r\n", elsewhere.url("/"));
        let result = outcome(answer, Then::Close, loopback()).await;
        assert!(
            matches!(result, Err(FetchError::Exchange(ExchangeError::Status(seen))) if seen == status),
            "{result:?}"
        );
    }
    assert!(elsewhere.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn other_statuses_are_refused_with_their_bodies_unread() {
    for status in [201, 204, 206, 400, 404, 500, 503] {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\nhello");
        let result = outcome(answer, Then::Hang, loopback()).await;
        assert!(
            matches!(result, Err(FetchError::Exchange(ExchangeError::Status(seen))) if seen == status),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn compressed_bodies_are_refused() {
    for encoding in ["gzip", "br", "identity, gzip"] {
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: 5\r\n\r\nhello");
        assert!(matches!(
            outcome(answer, Then::Hang, loopback()).await,
            Err(FetchError::Exchange(ExchangeError::Encoded))
        ));
    }
}

#[tokio::test]
async fn huge_bodies_are_refused_whether_announced_or_not() {
    let announced = "HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n";
    assert!(matches!(
        outcome(announced, Then::Hang, loopback()).await,
        Err(FetchError::Exchange(ExchangeError::TooLarge(_)))
    ));

    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..17 {
        chunked.extend_from_slice(b"1000\r\n");
        chunked.extend_from_slice(&[7; 0x1000]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert!(matches!(
        outcome(chunked, Then::Hang, loopback()).await,
        Err(FetchError::Exchange(ExchangeError::TooLarge(_)))
    ));

    let endless = "HTTP/1.0 200 OK\r\n\r\nbla";
    assert!(matches!(
        outcome(endless, Then::Repeat, loopback()).await,
        Err(FetchError::Exchange(ExchangeError::TooLarge(_)))
    ));

    let mut largest = format!("HTTP/1.1 200 OK\r\nContent-Length: {MAX_RESPONSE}\r\n\r\n").into_bytes();
    largest.extend(vec![7; MAX_RESPONSE]);
    assert_eq!(outcome(largest, Then::Close, loopback()).await.unwrap().len(), MAX_RESPONSE);
}

#[tokio::test]
async fn lying_lengths_give_an_error_or_what_was_announced() {
    let too_long = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello";
    assert!(matches!(
        outcome(too_long, Then::Close, loopback()).await,
        Err(FetchError::Exchange(ExchangeError::Http))
    ));
    let too_short = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello";
    assert_eq!(outcome(too_short, Then::Close, loopback()).await.unwrap(), "hel");
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello";
    assert!(matches!(
        outcome(two, Then::Close, loopback()).await,
        Err(FetchError::Exchange(ExchangeError::Http))
    ));
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    for bytes in ["", "hello\r\n\r\n", "SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 200 OK\r\nbroken"] {
        assert!(
            matches!(
                outcome(bytes, Then::Close, loopback()).await,
                Err(FetchError::Exchange(ExchangeError::Http))
            ),
            "{bytes}"
        );
    }
    // A head without end.
    let head = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(1024));
    assert!(matches!(
        outcome(head, Then::Repeat, loopback()).await,
        Err(FetchError::Exchange(ExchangeError::Http))
    ));
}

#[tokio::test]
async fn slow_responders_run_into_the_timeout() {
    for (bytes, then) in [
        ("", Then::Hang),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", Then::Hang),
        ("HTTP/1.1 103 Early Hints\r\n\r\n", Then::Trickle),
        ("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", Then::Trickle),
    ] {
        assert!(matches!(outcome(bytes, then, impatient()).await, Err(FetchError::Timeout)), "{bytes}");
    }
}

#[tokio::test]
async fn nobody_there_is_said_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let result = fetch(order(&url, loopback())).await;
    assert!(matches!(result, Err(FetchError::Connect(io::ErrorKind::ConnectionRefused))), "{result:?}");
}

/// A client whose resolver answers every name with `addresses`, and the number of times it was asked.
fn resolving_to(addresses: Vec<SocketAddr>) -> (HttpFetch, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let resolve: Resolve = Arc::new(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        let addresses = addresses.clone();
        Box::pin(async move { Ok(addresses) })
    });
    (HttpFetch::with_resolver(resolve), asked)
}

#[tokio::test]
async fn names_that_lead_inside_are_refused_without_a_connection() {
    let inside = Responder::start(OK, Then::Close).await;
    for address in [inside.address, "10.0.0.1:80".parse().unwrap(), "[::ffff:127.0.0.1]:80".parse().unwrap()]
    {
        let (client, _) = resolving_to(vec![address]);
        let result = client.fetch(order("http://ocsp.example.com/", OcspSettings::default())).await;
        assert!(matches!(result, Err(FetchError::AddressRefused)), "{result:?}");
    }
    assert!(inside.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_used() {
    let responder = Responder::start(OK, Then::Close).await;
    let (client, asked) = resolving_to(vec!["10.0.0.1:80".parse().unwrap(), responder.address]);
    assert_eq!(client.fetch(order("http://ocsp.example.com/", loopback())).await.unwrap(), "hello");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(responder.request().contains("host: ocsp.example.com\r\n"));
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_fails() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let responder = Responder::start(OK, Then::Close).await;
    let (client, _) = resolving_to(vec![gone, responder.address]);
    assert_eq!(client.fetch(order("http://ocsp.example.com/", loopback())).await.unwrap(), "hello");
}

#[tokio::test]
async fn unresolvable_names_are_said_so() {
    let (client, _) = resolving_to(vec![]);
    let result = client.fetch(order("http://ocsp.example.com/", loopback())).await;
    assert!(matches!(result, Err(FetchError::Resolve)), "{result:?}");
}

#[tokio::test]
async fn what_the_operator_chose_is_not_checked() {
    let responder = Responder::start(OK, Then::Close).await;
    let order = order(&responder.url("/"), OcspSettings::default());
    assert!(matches!(fetch(order.clone()).await, Err(FetchError::AddressRefused)));
    assert_eq!(fetch(Order { trusted: true, ..order }).await.unwrap(), "hello");
}

/// A TLS responder; with `tunnel`, behind a proxy that speaks in the clear first.
async fn tls_responder(certificate: &Issued, tunnel: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = certificate.tls_acceptor();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if tunnel {
                    let request = read_request(&mut stream).await;
                    assert!(request.starts_with("CONNECT shop.example.com:443 HTTP/1.1\r\n"), "{request}");
                    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                }
                // A client that does not like the certificate hangs up here.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                read_request(&mut stream).await;
                stream.write_all(OK.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    address
}

#[tokio::test]
async fn https_responders_may_be_certified_by_the_issuer_they_answer_for() {
    let ca = Ca::new("issuer");
    let server = ca.leaf().issue();
    let (client, _) = resolving_to(vec![tls_responder(&server, false).await]);
    let order = order_of(&ca, &server, "https://shop.example.com/", loopback());
    assert_eq!(client.fetch(order.clone()).await.unwrap(), "hello");

    let other_name = Order { target: Target::parse("https://other.example.com/").unwrap(), ..order.clone() };
    assert!(matches!(client.fetch(other_name).await, Err(FetchError::Tls(_))));
    let other_issuer = Order { issuer: Ca::new("other").der.clone(), ..order };
    assert!(matches!(client.fetch(other_issuer).await, Err(FetchError::Tls(_))));
}

#[tokio::test]
async fn a_proxy_gets_the_whole_url_and_resolves_itself() {
    let proxy = Responder::start(OK, Then::Close).await;
    let settings =
        OcspSettings { proxy: Some(Target::parse(&proxy.url("/")).unwrap()), ..OcspSettings::default() };
    let (client, asked) = resolving_to(vec![]);
    let order = order("http://ocsp.example.com/q", settings);
    let expected = order.request.get_url("http://ocsp.example.com/q").unwrap();
    assert_eq!(client.fetch(order).await.unwrap(), "hello");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let request = proxy.request();
    assert!(request.starts_with(&format!("GET {expected} HTTP/1.1\r\n")), "{request}");
    assert!(request.contains("host: ocsp.example.com\r\n"), "{request}");
}

#[tokio::test]
async fn https_goes_through_a_proxy_by_tunnel() {
    let ca = Ca::new("issuer");
    let server = ca.leaf().issue();
    let proxy = tls_responder(&server, true).await;
    let proxy = Some(Target::parse(&format!("http://{proxy}/")).unwrap());
    let order = order_of(&ca, &server, "https://shop.example.com/", OcspSettings { proxy, ..loopback() });
    assert_eq!(fetch(order).await.unwrap(), "hello");
}

#[tokio::test]
async fn a_proxy_that_refuses_or_raves_is_said_so() {
    for answer in ["HTTP/1.1 403 No\r\n\r\n", "what?\r\n\r\n", ""] {
        let proxy = Responder::start(answer, Then::Close).await;
        let proxy = Some(Target::parse(&proxy.url("/")).unwrap());
        let order = order("https://shop.example.com/", OcspSettings { proxy, ..loopback() });
        let result = fetch(order).await;
        assert!(matches!(result, Err(FetchError::Proxy)), "{answer}: {result:?}");
    }
}
