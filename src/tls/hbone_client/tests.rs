use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::*;
use crate::testing::certificates::Authority;
use crate::tls::mesh::TrustBundle;

const WEB: &str = "spiffe://cluster.local/ns/app/sa/web";

fn client(authority: &Authority, revocations: &str) -> HboneClient {
    let bundle = TrustBundle {
        roots: authority.pem().into(),
        revocations: revocations.into(),
        trust_domains: vec!["cluster.local".into()],
    };
    let own = authority.workload("spiffe://cluster.local/ns/gateway/sa/gateway").issue().parse();
    HboneClient::new(Arc::new(MeshTrust::new(bundle, 0).unwrap()), Arc::new(own))
}

/// What comes of a handshake with a workload that shows `leaf`, where `web` is to be reached.
fn verify(client: &HboneClient, leaf: &[u8]) -> Result<(), Error> {
    let expected = Workload { trust: client.trust.clone(), id: SpiffeId::parse(WEB).unwrap() };
    let name = ServerName::try_from("192.0.2.1").unwrap();
    let leaf = CertificateDer::from(leaf.to_vec());
    PeerVerifier::new(expected).verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).map(drop)
}

#[test]
fn only_the_workload_that_is_wanted_is_taken() {
    let authority = Authority::new("mesh");
    let client = client(&authority, &authority.revocation_list(&[7]));
    let shown = |authority: &Authority, uri: &str, serial: u64| {
        verify(&client, authority.workload(uri).serial(serial).issue().parse().leaf())
    };
    assert_eq!(shown(&authority, WEB, 6), Ok(()));
    assert_eq!(shown(&authority, WEB, 7), Err(CertificateError::Revoked.into()));
    let wrong = Err(CertificateError::NotValidForName.into());
    assert_eq!(shown(&authority, "spiffe://cluster.local/ns/app/sa/api", 6), wrong);
    assert_eq!(shown(&authority, "spiffe://partner.example/ns/app/sa/web", 6), wrong);
    assert!(shown(&Authority::new("others"), WEB, 6).is_err());
}

#[test]
fn a_configuration_is_made_once_for_each_workload() {
    let authority = Authority::new("mesh");
    let client = client(&authority, "");
    let id = |uri: &str| SpiffeId::parse(uri).unwrap();
    let web = client.config(&id(WEB));
    let api = client.config(&id("spiffe://cluster.local/ns/app/sa/api"));
    assert!(!Arc::ptr_eq(&web, &api), "each takes one workload");
    assert!(Arc::ptr_eq(&web, &client.config(&id(WEB))));
}
