//! What a staple costs a handshake: CPU time of the server alone, by the kernel's account, with and without one in turn
//! in one run. A handshake with a staple should cost no more than the bytes it sends.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use portcullis::compile::{Compiled, compile};
use portcullis::settings::Settings;
use portcullis::snapshot::{Snapshot, TlsPort};
use portcullis::store::objects::{
    Ingress, IngressRule, IngressTls, Metadata, Object, ObjectName, Secret, SecretOrigin, TlsHost, TlsSecret,
};
use portcullis::store::{Event, Store};
use portcullis::tls::accept::accept;
use portcullis::tls::keys::KeyPair;
use portcullis::tls::ocsp::response::verify;
use portcullis::tls::ocsp::status::{OcspState, OcspStatus};
use portcullis::tls::ocsp::testing::{Answer, Ca, Issued};
use portcullis::tls::tickets::Tickets;
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpListener;

const HOST: &str = "shop.example.com";
const ROUNDS: usize = 21;
const HANDSHAKES: u64 = 200;

fn main() {
    portcullis::tls::install_provider();
    let ca = Ca::new("issuer");
    let leaf = ca.leaf().names(&[HOST]).urls(&["http://ocsp.example.com/"]).issue();
    let [plain, stapled] = [false, true].map(|stapled| Arc::new(snapshot(&ca, &leaf, stapled)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        for _ in 0..ROUNDS {
            without.push(round(&listener, &plain, &ca, false).await);
            with.push(round(&listener, &stapled, &ca, true).await);
        }
    });
    println!("server CPU of a full handshake, median of {ROUNDS} rounds of {HANDSHAKES}:");
    println!("  without a staple {:7.2} µs", median(&mut without));
    println!("  with a staple    {:7.2} µs", median(&mut with));
    let mut differences: Vec<_> = with.iter().zip(&without).map(|(with, without)| with - without).collect();
    println!("  difference, median of rounds {:+.2} µs", median(&mut differences));
}

/// CPU time of this thread for one handshake, in microseconds. The client is on another one.
async fn round(listener: &TcpListener, snapshot: &Arc<Snapshot>, ca: &Ca, stapled: bool) -> f64 {
    let address = listener.local_addr().expect("an address");
    let root = ca.der.clone();
    let client = std::thread::spawn(move || (0..HANDSHAKES).for_each(|_| handshake(address, &root)));
    let mut nanoseconds = 0;
    for _ in 0..HANDSHAKES {
        let (stream, _) = listener.accept().await.expect("a client");
        stream.set_nodelay(true).expect("an option");
        let before = cpu_time();
        let accepted = accept(stream, TlsPort::Https, || snapshot.clone()).await.expect("a handshake");
        nanoseconds += cpu_time() - before;
        assert_eq!((accepted.stapled, accepted.resumed), (stapled, false));
    }
    client.join().expect("no client fails");
    nanoseconds as f64 / HANDSHAKES as f64 / 1000.0
}

/// A client that asks for a staple, as all of rustls do, and resumes nothing.
fn handshake(address: SocketAddr, root: &CertificateDer<'static>) {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).expect("a root");
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from(HOST).expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = std::net::TcpStream::connect(address).expect("the server");
    while client.is_handshaking() {
        client.complete_io(&mut stream).expect("a handshake");
    }
}

/// Of this thread, in nanoseconds.
fn cpu_time() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    text.split(' ').next().and_then(|time| time.parse().ok()).expect("a time")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", BASE64_STANDARD.encode(der))
}

/// One host with this leaf.
fn snapshot(ca: &Ca, leaf: &Issued, stapled: bool) -> Snapshot {
    let chain = pem(&leaf.der) + &pem(&ca.der);
    let pair = KeyPair::parse(chain.as_bytes(), leaf.key.serialize_pem().as_bytes()).expect("a pair");
    let metadata = || Metadata {
        name: ObjectName::new("bench", "web"),
        created: Some(0),
        labels: Default::default(),
        annotations: Default::default(),
    };
    let fingerprint = pair.fingerprint;
    let mut store = Store::new();
    store.apply(Event::Apply(Object::Secret(Secret {
        metadata: metadata(),
        kind: "kubernetes.io/tls".into(),
        origin: SecretOrigin::Object,
        pair: Some(Ok(Arc::new(pair))),
        fields: Default::default(),
        authorities: None,
        users: Default::default(),
        client_ca: None,
        ticket_keys: None,
    })));
    store.apply(Event::Apply(Object::Ingress(Ingress {
        metadata: metadata(),
        class: None,
        default_backend: None,
        tls: vec![IngressTls {
            index: 0,
            hosts: vec![TlsHost { index: 0, host: HOST.into() }],
            secret: TlsSecret::Named("web".into()),
        }],
        rules: vec![IngressRule { index: 0, host: Some(HOST.into()), paths: Vec::new() }],
    })));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    if stapled {
        let der = Answer::good(&leaf.der, &ca.der, now).sign(&ca.signer());
        let staple = verify(&der, &leaf.der, &ca.der, now).expect("a good answer");
        store.apply(Event::Staple(Arc::new(OcspStatus {
            state: OcspState::Good,
            this_update: Some(staple.this_update),
            next_update: Some(staple.next_update),
            staple: Some(Arc::new(staple)),
            ..OcspStatus::pending(fingerprint)
        })));
    }
    let settings = Arc::new(Settings::default());
    let changes = store.take_changes();
    let tickets = Tickets::new(settings.ssl_session_timeout).expect("random bytes");
    let now = i64::try_from(now).expect("a time");
    let empty = Compiled::empty(&settings, &tickets, now).expect("default settings");
    compile(&store, &changes, &settings, &empty, now).snapshot
}
