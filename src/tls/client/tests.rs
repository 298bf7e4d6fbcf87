use std::net::SocketAddr;

use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::TlsAcceptor;

use super::*;

/// The server's end of a connection.
pub type ServerStream = tokio_rustls::server::TlsStream<TcpStream>;

/// A server with a certificate of its own CA.
pub struct Server {
    pub address: SocketAddr,
    pub ca: CertificateDer<'static>,
    /// The connections whose handshake succeeded.
    pub accepted: UnboundedReceiver<ServerStream>,
}

pub async fn server(params: CertificateParams, alpn: &[&[u8]]) -> Server {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &ca).unwrap();
    let mut config = ServerConfig::builder_with_provider(crate::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, accepted) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(tcp).await {
                let _ = sender.send(stream);
            }
        }
    });
    Server { address, ca: ca.der().clone(), accepted }
}

pub fn shop() -> CertificateParams {
    CertificateParams::new(["shop.example".to_owned()]).unwrap()
}

async fn connect(
    tls: &ClientTls,
    address: SocketAddr,
    name: &str,
    alpn: Alpn,
) -> Result<ClientStream, ClientTlsError> {
    tls.connect(TcpStream::connect(address).await.unwrap(), name, address.ip(), alpn).await
}

#[tokio::test]
async fn verifying_takes_the_right_certificate_and_no_other() {
    let Server { address, ca, .. } = server(shop(), &[]).await;
    let trusting = ClientTls::verified(Roots::Bundle(std::slice::from_ref(&ca))).unwrap();
    connect(&trusting, address, "shop.example", Alpn::Http1).await.unwrap();

    let wrong_name = connect(&trusting, address, "other.example", Alpn::Http1).await;
    assert!(matches!(wrong_name, Err(ClientTlsError::WrongName)), "{wrong_name:?}");
    let no_name = connect(&trusting, address, "not a name", Alpn::Http1).await;
    assert!(matches!(no_name, Err(ClientTlsError::WrongName)), "{no_name:?}");
    let strange = ClientTls::verified(Roots::WebPki).unwrap();
    let unknown = connect(&strange, address, "shop.example", Alpn::Http1).await;
    assert!(matches!(unknown, Err(ClientTlsError::UnknownCa)), "{unknown:?}");
}

#[tokio::test]
async fn an_expired_certificate_is_called_expired() {
    let mut params = shop();
    params.not_after = date_time_ymd(2020, 1, 1);
    let Server { address, ca, .. } = server(params, &[]).await;
    let expired =
        connect(&ClientTls::verified(Roots::Bundle(&[ca])).unwrap(), address, "shop.example", Alpn::Http1)
            .await;
    assert!(matches!(expired, Err(ClientTlsError::Expired)), "{expired:?}");
}

#[tokio::test]
async fn without_verifying_anything_goes_and_sni_is_sent_for_names() {
    let Server { address, mut accepted, .. } = server(shop(), &[]).await;
    let tls = ClientTls::unverified();
    for (name, sni) in
        [("other.example", Some("other.example")), ("10.0.0.1", None), ("[::1]", None), ("a b", None)]
    {
        connect(&tls, address, name, Alpn::Http1).await.unwrap();
        assert_eq!(accepted.recv().await.unwrap().get_ref().1.server_name(), sni);
    }
}

#[tokio::test]
async fn http2_has_to_be_agreed_on() {
    let tls = ClientTls::unverified();
    for (offered, http1, http2) in [
        (&[&b"h2"[..], b"http/1.1"][..], true, true),
        (&[b"http/1.1"], true, false),
        (&[b"h2"], false, true),
        (&[], true, false),
    ] {
        let Server { address, accepted: _open, .. } = server(shop(), offered).await;
        assert_eq!(connect(&tls, address, "h", Alpn::Http1).await.is_ok(), http1, "{offered:?}");
        match connect(&tls, address, "h", Alpn::Http2).await {
            Ok(_) => assert!(http2, "{offered:?}"),
            Err(error) => {
                assert!(!http2 && matches!(error, ClientTlsError::Protocol), "{offered:?}: {error}")
            }
        }
    }
}

#[test]
fn bundles_have_to_hold_certificates() {
    assert_eq!(ClientTls::verified(Roots::Bundle(&[])).err(), Some(RootsError::Empty));
    let garbage = [CertificateDer::from(vec![1, 2, 3])];
    assert_eq!(ClientTls::verified(Roots::Bundle(&garbage)).err(), Some(RootsError::Malformed { index: 0 }));
}

#[test]
fn only_clones_are_equal() {
    let one = ClientTls::unverified();
    assert_eq!(one, one.clone());
    assert_ne!(one, ClientTls::unverified());
}

#[test]
fn connections_to_one_workload_of_the_mesh_are_not_used_for_another() {
    let tls = MeshTls::new(&OwnIdentity::default());
    let [web, db] = ["web", "db"].map(|account| SpiffeId::new("cluster.local", "shop", account).unwrap());
    assert!(tls.to(Some(&web)) == tls.clone().to(Some(&web)) && tls.to(None) == tls.to(None));
    assert!(tls.to(Some(&web)) != tls.to(Some(&db)) && tls.to(Some(&web)) != tls.to(None));
}
