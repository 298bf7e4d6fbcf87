use std::convert::Infallible;
use std::sync::Mutex;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::ca::authority::Authority;
use crate::ca::csr::PublicKey;
use crate::ca::fixtures;
use crate::ca::key::{KeyAlgorithm, PrivateKey};
use crate::ca::profile::SubjectName;
use crate::ca::roots::{RootOptions, load_or_create};
use crate::ca::store::memory::Memory;

fn keys(id: &str) -> String {
    format!(
        r#"{{"keys": [{{"kty": "EC", "crv": "P-256", "kid": "{id}",
            "x": "gI0GAILBdu7T53akrFmMyGcsF3n5dO7MmwNBHKW5SV0", "y": "SLW_xSffzlPWrHEVI30DHM_4egVwt3NQqeUD7nMFpps"}}]}}"#
    )
}

/// An https server whose answer can be changed.
struct Server {
    answer: Arc<Mutex<(u16, String)>>,
    url: String,
    roots: RootBundle,
}

impl Server {
    async fn start() -> Self {
        let now = time::OffsetDateTime::now_utc();
        let root = load_or_create(&Memory::default(), &RootOptions::default(), now).await.unwrap();
        let acceptor = acceptor(&root.authority, now);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new((200, keys("one"))));
        tokio::spawn(answer_all(listener, acceptor, Arc::clone(&answer)));
        let roots = root.authority.roots().clone();
        Self { answer, url: format!("https://localhost:{port}/keys"), roots }
    }

    fn answers(&self, status: u16, body: String) {
        *self.answer.lock().unwrap() = (status, body);
    }

    fn options(&self) -> Vec<IssuerOptions> {
        let keys = KeySource::parse(&self.url).unwrap();
        vec![IssuerOptions { issuer: "https://issuer".to_owned(), keys }]
    }

    async fn load(&self) -> Issuers {
        let audiences = vec!["istio-ca".to_owned()];
        Issuers::load(self.options(), audiences, Some(self.roots.clone())).await.unwrap()
    }
}

fn acceptor(authority: &Authority, now: time::OffsetDateTime) -> TlsAcceptor {
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let names = [SubjectName::Dns("localhost".to_owned())];
    let issued = authority.issue_server(&PublicKey::from_own_key(&key), &names, fixtures::HOUR, now).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(authority.chain_der(issued.leaf), key.to_der().unwrap())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn answer_all(listener: TcpListener, acceptor: TlsAcceptor, answer: Arc<Mutex<(u16, String)>>) {
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let Ok(stream) = acceptor.accept(tcp).await else { continue };
        let answer = Arc::clone(&answer);
        let service = service_fn(move |_| {
            let (status, body) = answer.lock().unwrap().clone();
            let answer = Response::builder().status(status).body(Full::new(Bytes::from(body)));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            let _ = connection.await;
        });
    }
}

async fn refresh(issuers: &mut Issuers) -> Result<bool, KeysError> {
    issuers.entries[0].due = Instant::now();
    issuers.refresh_all().await.remove(0).1
}

#[tokio::test]
async fn fetched_keys_are_kept_when_the_url_fails_and_replaced_when_it_has_others() {
    let server = Server::start().await;
    let mut issuers = server.load().await;
    let first = issuers.current();
    assert_eq!(first.len(), 1);
    assert!(!refresh(&mut issuers).await.unwrap(), "the same keys are no change");

    for (status, body) in [(500, keys("two")), (302, String::new()), (200, "SECRETWORD".to_owned())] {
        server.answers(status, body);
        let error = refresh(&mut issuers).await.unwrap_err().to_string();
        assert!(error.contains("/keys") && !error.contains("SECRETWORD"), "{error}");
        assert_eq!(issuers.current()[0].keys, first[0].keys);
    }
    server.answers(200, keys("two"));
    assert!(refresh(&mut issuers).await.unwrap());
    assert_ne!(issuers.current()[0].keys, first[0].keys);
}

#[tokio::test]
async fn an_answer_without_end_and_an_unknown_authority_are_refused() {
    let server = Server::start().await;
    server.answers(200, " ".repeat(300 * 1024) + &keys("one"));
    assert!(server.load().await.current().is_empty(), "too large");

    server.answers(200, keys("one"));
    let strangers = fixtures::authority().await.roots().clone();
    let stranger = Issuers::load(server.options(), Vec::new(), Some(strangers)).await.unwrap();
    assert!(stranger.current().is_empty());
    assert_eq!(server.load().await.current().len(), 1);
}

#[tokio::test]
async fn what_is_not_due_is_not_asked_and_unknown_keys_hurry_only_so_much() {
    let server = Server::start().await;
    let mut issuers = server.load().await;
    assert!(issuers.refresh_all().await.is_empty());
    let before = issuers.entries[0].due;
    issuers.hurry();
    assert!(issuers.refresh_all().await.is_empty(), "it was asked a moment ago");
    assert!(issuers.entries[0].due < before, "and yet sooner than otherwise");
}

#[tokio::test]
async fn a_file_must_be_there_at_the_start_and_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let options = || {
        let keys = KeySource::parse(path.to_str().unwrap()).unwrap();
        vec![IssuerOptions { issuer: "i".to_owned(), keys }]
    };
    assert!(matches!(Issuers::load(options(), Vec::new(), None).await, Err(KeysError::File { .. })));
    std::fs::write(&path, "{}").unwrap();
    assert!(matches!(Issuers::load(options(), Vec::new(), None).await, Err(KeysError::FileKeys { .. })));
    std::fs::write(&path, keys("one")).unwrap();
    let mut issuers = Issuers::load(options(), Vec::new(), None).await.unwrap();
    let first = issuers.current();
    std::fs::write(&path, "broken").unwrap();
    assert!(refresh(&mut issuers).await.is_err());
    assert!(!refresh(&mut issuers).await.unwrap(), "said once");
    assert_eq!(issuers.current()[0].keys, first[0].keys);
    std::fs::write(&path, keys("two")).unwrap();
    assert!(refresh(&mut issuers).await.unwrap());
}

#[test]
fn only_https_is_a_url_to_fetch_from() {
    assert!(matches!(KeySource::parse("keys/jwks.json"), Ok(KeySource::File(_))));
    assert!(matches!(KeySource::parse("https://issuer.example/jwks"), Ok(KeySource::Url(_))));
    for bad in ["http://issuer.example/jwks", "ftp://x/y", "https://user:word@issuer.example/", "https://"] {
        assert!(KeySource::parse(bad).is_err(), "{bad}");
    }
}
