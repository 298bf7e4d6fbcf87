use rustls_pki_types::{ServerName, UnixTime};

use super::*;
use crate::ca::certificate::Certificate;
use crate::ca::fixtures::{HOUR, Made, NOW, ca_params, hours, issue, revocation_list, self_signed, web};
use crate::ca::key::KeyAlgorithm;
use crate::ca::roots::{RootOptions, rotate};
use crate::ca::store::memory::Memory;
use crate::tls::own_identity::OwnIdentity;

/// Whether `identity` believes a peer with a certificate of `authority`.
fn believes(identity: &OwnIdentity, authority: &Authority, names: &WorkloadNames) -> bool {
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let peer = authority.issue(&PublicKey::from_own_key(&key), names, HOUR, NOW).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW.unix_timestamp().try_into().unwrap()));
    let name = ServerName::try_from("any.example").unwrap();
    identity.verifier(None).verify_server_cert(&peer.leaf, &[], &name, &[], now).is_ok()
}

#[tokio::test]
async fn it_is_renewed_at_half_of_its_life_and_with_the_ca() {
    let store = Memory::default();
    let first = self_signed(&store).await.authority;
    let identity = OwnIdentity::default();
    let mut own = OwnCertificate::new(web().id().clone(), 2 * HOUR, identity.clone());
    assert!(own.refresh(&first, NOW).unwrap());
    let before = identity.certificate();
    assert!(!own.refresh(&first, NOW + hours(1) - time::Duration::seconds(1)).unwrap());
    assert_eq!(identity.certificate(), before);
    assert!(own.refresh(&first, NOW + hours(1)).unwrap());
    assert_ne!(identity.certificate(), before);

    let second = rotate(&store, &RootOptions::default(), NOW).await.unwrap().authority;
    assert!(own.refresh(&second, NOW + hours(1)).unwrap());
}

#[tokio::test]
async fn a_failed_renewal_drops_nothing_and_is_tried_again() {
    let options = RootOptions { life: 2 * HOUR, ..RootOptions::default() };
    let store = Memory::default();
    let root = crate::ca::roots::load_or_create(&store, &options, NOW).await.unwrap();
    let identity = OwnIdentity::default();
    let mut own = OwnCertificate::new(web().id().clone(), HOUR, identity.clone());
    own.refresh(&root.authority, NOW).unwrap();
    let before = identity.certificate();
    for _ in 0..2 {
        assert!(own.refresh(&root.authority, NOW + hours(3)).is_err(), "the CA has ended");
        assert_eq!(identity.certificate(), before);
    }
    let renewed = rotate(&store, &options, NOW + hours(3)).await.unwrap().authority;
    assert!(own.refresh(&renewed, NOW + hours(3)).unwrap());
    assert_ne!(identity.certificate(), before);
}

#[tokio::test]
async fn another_root_is_believed_as_soon_as_it_signs_and_the_old_one_until_then() {
    let first = self_signed(&Memory::default()).await.authority;
    // As after a reinstall: nothing in common.
    let second = self_signed(&Memory::default()).await.authority;
    let identity = OwnIdentity::default();
    assert!(!believes(&identity, &first, &web()), "nobody, while there is no identity");
    let mut own = OwnCertificate::new(web().id().clone(), HOUR, identity.clone());
    own.refresh(&first, NOW).unwrap();
    assert!(believes(&identity, &first, &web()) && !believes(&identity, &second, &web()));
    // A failure in between changes nothing and is tried again.
    assert!(own.refresh(&second, NOW + hours(24 * 4000)).is_err());
    assert!(believes(&identity, &first, &web()) && !believes(&identity, &second, &web()));
    own.refresh(&second, NOW).unwrap();
    assert!(believes(&identity, &second, &web()) && !believes(&identity, &first, &web()));
}

#[tokio::test]
async fn a_peer_of_another_trust_domain_or_without_an_identity_is_not_believed() {
    let authority = self_signed(&Memory::default()).await.authority;
    let identity = OwnIdentity::default();
    OwnCertificate::new(web().id().clone(), HOUR, identity.clone()).refresh(&authority, NOW).unwrap();
    let partner = WorkloadNames::of(SpiffeId::new("partner.example", "shop", "web").unwrap());
    assert!(!believes(&identity, &authority, &partner));
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let names = [crate::ca::profile::SubjectName::Dns("any.example".to_owned())];
    let host = authority.issue_server(&PublicKey::from_own_key(&key), &names, HOUR, NOW).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW.unix_timestamp().try_into().unwrap()));
    let name = ServerName::try_from("any.example").unwrap();
    assert!(
        identity.verifier(None).verify_server_cert(&host.leaf, &[], &name, &[], now).is_err(),
        "a host is no workload"
    );
}

#[tokio::test]
async fn a_peer_that_a_list_of_the_ca_revokes_is_not_believed() {
    let mut params = ca_params("root");
    params.key_usages.push(rcgen::KeyUsagePurpose::CrlSign);
    let ca = Made::root(params);
    let authority = |lists| {
        let (signer, key) = (ca.signer().clone(), ca.key());
        Arc::new(Authority::new(signer, key, Vec::new(), ca.root_bundle(), lists, NOW).unwrap())
    };
    let peer = issue(&authority(Vec::new()), HOUR, NOW).leaf;
    let identity = OwnIdentity::default();
    let mut own = OwnCertificate::new(web().id().clone(), HOUR, identity.clone());
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW.unix_timestamp().try_into().unwrap()));
    let name = ServerName::try_from("any.example").unwrap();
    let verify = || identity.verifier(None).verify_server_cert(&peer, &[], &name, &[], now).map(drop);
    own.refresh(&authority(Vec::new()), NOW).unwrap();
    assert_eq!(verify(), Ok(()));
    let serial = Certificate::from_der(peer.clone()).unwrap().serial;
    own.refresh(&authority(vec![revocation_list(&ca, &serial)]), NOW).unwrap();
    assert_eq!(verify(), Err(rustls::CertificateError::Revoked.into()));
}

#[tokio::test]
async fn where_it_is_known_who_is_there_nobody_else_of_the_mesh_is_believed() {
    let authority = self_signed(&Memory::default()).await.authority;
    let identity = OwnIdentity::default();
    OwnCertificate::new(web().id().clone(), HOUR, identity.clone()).refresh(&authority, NOW).unwrap();
    let peer = issue(&authority, HOUR, NOW).leaf;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW.unix_timestamp().try_into().unwrap()));
    let name = ServerName::try_from("any.example").unwrap();
    let is_believed = |namespace: &str, account: &str| {
        let wanted = SpiffeId::new("cluster.local", namespace, account).unwrap();
        identity.verifier(Some(wanted)).verify_server_cert(&peer, &[], &name, &[], now).is_ok()
    };
    assert!(is_believed("shop", "web"));
    assert!(!is_believed("shop", "db") && !is_believed("other", "web"));
}
