use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;
use crate::ca::authn::Authenticators;
use crate::ca::authority::TtlPolicy;
use crate::ca::bundle::RootBundle;
use crate::ca::certificate::Certificate;
use crate::ca::csr;
use crate::ca::fixtures::{self, HOUR, hours, self_signed, web};
use crate::ca::key::KeyAlgorithm;
use crate::ca::metrics::Metrics;
use crate::ca::proto::IstioCertificateRequest;
use crate::ca::proto::istio_certificate_service_client::IstioCertificateServiceClient;
use crate::ca::roots::{RootOptions, rotate};
use crate::ca::service::{CertificateService, Limits};
use crate::ca::store::memory::Memory;
use crate::ca::{client, listener};

/// A CSR service on a port of its own. Its clock is the real one: handshakes know no other.
struct Running {
    store: Memory,
    authority: Arc<ArcSwap<Authority>>,
    endpoint: Endpoint,
    address: String,
    stop: watch::Sender<bool>,
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// A client's own key with its certificate.
struct Identity {
    chain: Vec<rustls_pki_types::CertificateDer<'static>>,
    key: PrivateKey,
}

impl Running {
    async fn start() -> Self {
        let store = Memory::default();
        let options = RootOptions::default();
        let root = crate::ca::roots::load_or_create(&store, &options, now()).await.unwrap();
        let authority = Arc::new(ArcSwap::new(root.authority));
        let endpoint =
            Endpoint::new(csr_tls, &["localhost".to_owned()], authority.load_full(), now()).unwrap();
        let authenticators = Authenticators {
            trust_domain: "cluster.local".to_owned(),
            jwt: Vec::new(),
            unknown_key: Arc::default(),
            token_review: None,
        };
        let (ttl, limits) = (TtlPolicy::default(), Limits::default());
        let service = CertificateService::new(
            Arc::clone(&authority),
            authenticators,
            ttl,
            limits,
            Metrics::default(),
            now,
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(listener::serve(listener, endpoint.tls(), Arc::new(service).into_server(), stopped));
        Self { store, authority, endpoint, address, stop }
    }

    async fn rotate(&mut self) {
        let next = rotate(&self.store, &RootOptions::default(), now()).await.unwrap().authority;
        self.authority.store(Arc::clone(&next));
        assert!(self.endpoint.refresh(&next, now()).unwrap());
    }

    fn identity(&self, authority: &Authority) -> Identity {
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let issued = authority.issue(&PublicKey::from_own_key(&key), &web(), HOUR, now()).unwrap();
        Identity { chain: authority.chain_der(issued.leaf), key }
    }

    /// One call on a connection of its own: the answer, or why there is none.
    async fn call(&self, roots: &RootBundle, identity: Option<&Identity>) -> Result<Vec<String>, String> {
        let identity = identity.map(|identity| (identity.chain.clone(), identity.key.to_der().unwrap()));
        let anchors = roots.iter().map(Certificate::der);
        let sender = client::connect(&self.address, Some("localhost"), anchors, identity)
            .await
            .map_err(|error| error.to_string())?;
        let origin = "https://localhost".parse().unwrap();
        let mut service = IstioCertificateServiceClient::with_origin(client::GrpcService(sender), origin);
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let csr = csr::create(&key).unwrap();
        let request = IstioCertificateRequest { csr, validity_duration: 60, metadata: None };
        let answer = service.create_certificate(request).await.map_err(|status| status.to_string())?;
        Ok(answer.into_inner().cert_chain)
    }
}

#[tokio::test]
async fn a_client_certificate_of_another_ca_is_refused_in_the_handshake() {
    let running = Running::start().await;
    let stranger = self_signed(&Memory::default()).await.authority;
    // The fixture's root lies in the past of the real clock or not; it is a stranger either way.
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let issued = stranger.issue(&PublicKey::from_own_key(&key), &web(), HOUR, fixtures::NOW).unwrap();
    let stranger = Identity { chain: vec![issued.leaf], key };
    let roots = running.authority.load().roots().clone();
    assert!(running.call(&roots, Some(&stranger)).await.is_err());
    let known = running.identity(&running.authority.load());
    assert!(running.call(&roots, Some(&known)).await.is_ok());
    let status = running.call(&roots, None).await.unwrap_err();
    assert!(
        status.contains("request authenticate failure"),
        "no certificate is let in, and refused: {status}"
    );
}

#[tokio::test]
async fn rotation_under_load_fails_no_handshake() {
    let mut running = Running::start().await;
    let first_roots = running.authority.load().roots().clone();
    let mut identities = vec![running.identity(&running.authority.load())];
    for _ in 0..20 {
        running.rotate().await;
        let present = running.authority.load_full();
        identities.push(running.identity(&present));
        let (oldest, youngest) = (identities.first(), identities.last());
        // Who trusts the first root only, and who trusts the present bundle; with the oldest and the youngest leaf.
        let calls = [
            running.call(&first_roots, oldest),
            running.call(&first_roots, youngest),
            running.call(present.roots(), oldest),
            running.call(present.roots(), youngest),
        ];
        for answer in futures_util::future::join_all(calls).await {
            assert!(answer.is_ok(), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_root_that_joins_is_trusted_for_clients_without_a_restart() {
    let mut running = Running::start().await;
    let roots = running.authority.load().roots().clone();
    let store = Memory::default();
    let other =
        crate::ca::roots::load_or_create(&store, &RootOptions::default(), now()).await.unwrap().authority;
    let stranger = running.identity(&other);
    assert!(running.call(&roots, Some(&stranger)).await.is_err());
    let extra_roots = other.roots().clone();
    let options = RootOptions { extra_roots, ..RootOptions::default() };
    let joined = crate::ca::roots::load(&running.store, &options, now()).await.unwrap().authority;
    running.authority.store(Arc::clone(&joined));
    running.endpoint.refresh(&joined, now()).unwrap();
    assert!(running.call(&roots, Some(&stranger)).await.is_ok());
}

#[tokio::test]
async fn the_certificate_is_kept_until_half_of_its_life() {
    let running = Running::start().await;
    let authority = running.authority.load_full();
    let mut endpoint = running.endpoint;
    let start = now();
    assert!(!endpoint.refresh(&authority, start).unwrap());
    assert!(!endpoint.refresh(&authority, start + hours(11)).unwrap());
    assert!(endpoint.refresh(&authority, start + hours(13)).unwrap());
    assert!(!endpoint.refresh(&authority, start + hours(13)).unwrap());
}

#[tokio::test]
async fn a_stop_ends_the_listener() {
    let running = Running::start().await;
    let roots = running.authority.load().roots().clone();
    running.stop.send_replace(true);
    while tokio::net::TcpStream::connect(&running.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(running.call(&roots, None).await.is_err());
}

#[tokio::test]
async fn a_connection_of_before_a_change_is_asked_to_go_and_its_identity_is_verified_anew() {
    let mut running = Running::start().await;
    let first = running.authority.load_full();
    let identity = running.identity(&first);
    let connect = async |identity: &Identity| {
        let anchors = first.roots().iter().map(Certificate::der);
        let shown = Some((identity.chain.clone(), identity.key.to_der().unwrap()));
        client::connect(&running.address, Some("localhost"), anchors, shown).await.unwrap()
    };
    let mut sender = connect(&identity).await;
    sender.ready().await.unwrap();
    // Another CA takes over and the root of the first one is not trusted any more.
    let (store, options) = (Memory::default(), RootOptions::default());
    let next = crate::ca::roots::load_or_create(&store, &options, now()).await.unwrap().authority;
    running.authority.store(Arc::clone(&next));
    let origin = "https://localhost".parse().unwrap();
    let mut service =
        IstioCertificateServiceClient::with_origin(client::GrpcService(connect(&identity).await), origin);
    let csr = csr::create(&PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()).unwrap();
    let request = IstioCertificateRequest { csr, validity_duration: 60, metadata: None };
    let refused = service.create_certificate(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    assert!(running.endpoint.refresh(&next, now()).unwrap());
    while sender.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
}
