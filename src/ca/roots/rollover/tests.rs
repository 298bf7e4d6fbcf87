use super::*;
use crate::ca::accounts::{AccountOptions, reconcile_all};
use crate::ca::authority::verify;
use crate::ca::fixtures::{HOUR, NOW, account, hours, issue, namespace, openssl_verify, self_signed};
use crate::ca::hosts::HostOptions;
use crate::ca::key::KeyAlgorithm;
use crate::ca::renewal::Grace;
use crate::ca::store::memory::Memory;
use crate::ca::store::{CertificateRequest, IngressHosts};
use crate::store::objects::ObjectName;

struct World {
    store: Memory,
    maps: MapNames,
}

impl World {
    async fn new() -> Self {
        let store = Memory::default();
        {
            let mut contents = store.contents();
            contents.namespaces = vec![namespace("shop", &[]), namespace("istio-system", &[])];
            contents.accounts = vec![account("shop", "web"), account("shop", "db")];
            let ingress = ObjectName::new("shop", "web");
            let request = CertificateRequest {
                ingress: ingress.clone(),
                secret: ObjectName::new("shop", "tls"),
                hosts: vec!["a.example.com".to_owned()],
            };
            let requests = vec![request];
            contents.ingresses = vec![IngressHosts { ingress, created: None, claims: Vec::new(), requests }];
        }
        let world = Self { store, maps: MapNames::default() };
        world.spread(&self_signed(&world.store).await, NOW).await;
        world
    }

    /// What the CA does by itself in a turn.
    async fn spread(&self, root: &SelfSigned, now: OffsetDateTime) {
        distribution::distribute(&self.store, &root.authority, "istio-system", &self.maps).await.unwrap();
        let done =
            reconcile_all(&self.store, &root.authority, &AccountOptions::default(), now).await.unwrap();
        assert!(done.failed.is_empty(), "{done:?}");
        let (grace, key) = (Grace::default(), KeyAlgorithm::default());
        let hosts = HostOptions { key, life: 24 * 90 * HOUR, grace, reserved: Vec::new() };
        let done = hosts::reconcile(&self.store, &root.authority, &hosts, now).await.unwrap().0;
        assert!(done.failed.is_empty(), "{done:?}");
    }

    async fn advance(&self, now: OffsetDateTime) -> Result<SelfSigned, RolloverError> {
        advance(&self.store, &RootOptions::default(), &self.maps, 24 * HOUR, false, now).await
    }

    async fn missing(&self, now: OffsetDateTime) -> Vec<String> {
        reach(&self.store, &RootOptions::default(), &self.maps, 24 * HOUR, now).await.unwrap().missing
    }
}

fn verifies(signer: &SelfSigned, trusting: &SelfSigned, now: OffsetDateTime) -> bool {
    let issued = issue(&signer.authority, HOUR, now);
    let roots = trusting.authority.roots();
    let ours = verify(&issued.leaf, &[], roots, webpki::KeyUsage::server_auth(), now).is_ok();
    let theirs = openssl_verify(&signer.authority.chain_pem(&issued.leaf), &roots.to_pem(), now).is_ok();
    assert_eq!(ours, theirs);
    ours
}

#[tokio::test]
async fn the_three_phases_each_wait_for_everyone() {
    let world = World::new().await;
    let start = self_signed(&world.store).await;

    let trust = world.advance(NOW).await.unwrap();
    assert_eq!(trust.rollover.phase(), Phase::Trust);
    assert_eq!(trust.authority.signer(), start.authority.signer(), "the old key signs");
    assert_eq!(trust.authority.roots().len(), 2);
    assert!(verifies(&trust, &start, NOW) && verifies(&start, &trust, NOW));
    let missing = world.missing(NOW).await;
    assert_eq!(missing.iter().filter(|line| line.starts_with("ConfigMap")).count(), 3, "{missing:?}");
    assert_eq!(missing.iter().filter(|line| line.starts_with("Secret")).count(), 3, "{missing:?}");
    world.spread(&trust, NOW).await;
    let missing = world.missing(NOW).await;
    assert!(
        matches!(missing.as_slice(), [line] if line.starts_with("callers of the CSR service")),
        "{missing:?}"
    );
    assert!(matches!(world.advance(NOW + hours(23)).await, Err(RolloverError::NotReached(_))));

    let now = NOW + hours(24);
    let sign = world.advance(now).await.unwrap();
    assert_eq!(sign.rollover.phase(), Phase::Sign);
    assert_ne!(sign.authority.signer().public_key_info, start.authority.signer().public_key_info);
    // Old and new leaves on both sides of the switch.
    assert!(verifies(&sign, &trust, now) && verifies(&trust, &sign, now));
    assert!(!verifies(&sign, &start, now), "whoever missed phase one would fail now: hence the gate");
    let missing = world.missing(now).await;
    assert_eq!(missing.iter().filter(|line| line.contains("old key")).count(), 3, "{missing:?}");
    world.spread(&sign, now).await;
    assert!(matches!(world.advance(now).await, Err(RolloverError::NotReached(_))));

    let now = now + hours(24);
    let drop = world.advance(now).await.unwrap();
    assert_eq!(drop.rollover.phase(), Phase::Steady);
    assert_eq!(drop.authority.roots().len(), 1);
    assert!(verifies(&sign, &drop, now) && !verifies(&start, &drop, now));
    let secret = world.store.contents().secrets.get(&RootOptions::default().secret_name()).unwrap().clone();
    assert_eq!(secret.data.len(), 5, "nothing of the replacement is left behind");
    assert!(secret.annotations.is_empty());
}

#[tokio::test]
async fn a_phase_survives_a_restart_and_a_renewal() {
    let world = World::new().await;
    world.advance(NOW).await.unwrap();
    let renewed = super::super::rotate(&world.store, &RootOptions::default(), NOW).await.unwrap();
    assert_eq!(renewed.rollover.phase(), Phase::Trust);
    assert_eq!(renewed.authority.roots().len(), 3);
    assert_eq!(self_signed(&world.store).await.rollover, renewed.rollover);
}

#[tokio::test]
async fn a_failed_write_enters_no_phase() {
    let world = World::new().await;
    world.store.contents().fail_writes = Some(StoreError::Forbidden("403".to_owned()));
    assert!(world.advance(NOW).await.is_err());
    world.store.contents().fail_writes = None;
    assert_eq!(self_signed(&world.store).await.rollover, RolloverState::Steady);
}

#[tokio::test]
async fn force_leaves_the_missing_behind() {
    let world = World::new().await;
    world.advance(NOW).await.unwrap();
    let options = RootOptions::default();
    let forced = advance(&world.store, &options, &world.maps, 24 * HOUR, true, NOW).await.unwrap();
    assert_eq!(forced.rollover.phase(), Phase::Sign);
}
