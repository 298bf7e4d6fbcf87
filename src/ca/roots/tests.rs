use super::*;
use crate::ca::authority::verify;
use crate::ca::fixtures::{HOUR, NOW, hours, issue, openssl_text, openssl_verify, self_signed, start_twenty};
use crate::ca::store::SecretBytes;
use crate::ca::store::memory::Memory;

fn options() -> RootOptions {
    RootOptions::default()
}

fn short_lived() -> RootOptions {
    RootOptions { life: HOUR, ..options() }
}

fn stored(store: &Memory) -> Secret {
    store.contents().secrets.get(&options().secret_name()).unwrap().clone()
}

fn put(store: &Memory, key: &str, text: &str) {
    let mut contents = store.contents();
    let secret = contents.secrets.get_mut(&options().secret_name()).unwrap();
    secret.data.insert(key.to_owned(), SecretBytes::from(text));
}

/// Whether a certificate that `signer` issues verifies for someone who trusts the roots of `trusting`.
fn verifies(signer: &SelfSigned, trusting: &SelfSigned, now: OffsetDateTime) -> bool {
    let issued = issue(&signer.authority, HOUR / 4, now);
    let roots = trusting.authority.roots();
    let by_webpki = verify(&issued.leaf, &[], roots, webpki::KeyUsage::client_auth(), now).is_ok();
    let by_openssl = openssl_verify(&signer.authority.chain_pem(&issued.leaf), &roots.to_pem(), now).is_ok();
    assert_eq!(by_webpki, by_openssl);
    by_webpki
}

#[tokio::test]
async fn ca_01_the_first_start_makes_the_secret_and_the_second_uses_it() {
    let store = Memory::default();
    let first = self_signed(&store).await;
    let secret = stored(&store);
    assert_eq!(secret.name.to_string(), "istio-system/istio-ca-secret");
    assert_eq!(secret.kind, "istio.io/ca-root");
    assert!(secret.annotations.is_empty());
    let keys: Vec<(&str, bool)> =
        secret.data.iter().map(|(key, bytes)| (key.as_str(), bytes.is_empty())).collect();
    assert_eq!(
        keys,
        [
            ("ca-cert.pem", false),
            ("ca-key.pem", false),
            ("cert-chain.pem", true),
            ("key.pem", true),
            ("root-cert.pem", false),
        ]
    );
    let second = self_signed(&store).await;
    assert_eq!(second.authority.signer().serial, first.authority.signer().serial);
    let text = openssl_text(&first.authority.signer().to_pem());
    for expected in ["Subject: O = cluster.local", "Certificate Sign\n", "CA:TRUE\n"] {
        assert!(text.contains(expected), "{expected:?} in {text}");
    }
    assert!(!text.contains("Alternative Name") && !text.contains("Extended Key Usage"));
    assert_eq!(first.authority.signer().not_after, NOW + time::Duration::days(3650));
}

#[test]
fn ca_02_twenty_starters_get_one_root() {
    let store = Memory::default();
    assert_eq!(start_twenty(&store).len(), 1);
    assert_eq!(store.contents().writes, 1);
}

#[tokio::test]
async fn the_loser_of_the_race_reads_the_winners_root() {
    // Both saw nothing; this one comes second with its write.
    let store = Memory::default();
    let winner = self_signed(&store).await;
    let late = create(&options(), NOW).unwrap();
    assert!(matches!(store.write_secret(&late).await, Err(StoreError::AlreadyExists(_))));
    assert_eq!(self_signed(&store).await.authority.signer(), winner.authority.signer());
}

#[tokio::test]
async fn ca_03_broken_material_is_refused_and_stays() {
    for (key, text) in
        [("ca-key.pem", "garbage"), ("ca-cert.pem", ""), ("root-cert.pem", "-----BEGIN X-----\n")]
    {
        let store = Memory::default();
        self_signed(&store).await;
        put(&store, key, text);
        let before = stored(&store);
        let error = load_or_create(&store, &options(), NOW).await.unwrap_err();
        assert!(matches!(error, RootError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(key), "{error}");
        assert!(!error.to_string().contains("garbage"));
        assert!(rotate(&store, &options(), NOW).await.is_err());
        assert_eq!(stored(&store), before);
    }
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused() {
    let store = Memory::default();
    self_signed(&store).await;
    put(&store, "ca-key.pem", &PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap().to_pem());
    let error = load_or_create(&store, &options(), NOW).await.unwrap_err();
    assert!(matches!(error, RootError::Refused { reason: MaterialError::KeyMismatch, .. }), "{error}");
}

#[tokio::test]
async fn ca_04_no_root_is_made_while_the_store_does_not_answer() {
    let store = Memory::default();
    store.contents().fail_reads = Some(StoreError::Unavailable("500".to_owned()));
    let error = load_or_create(&store, &options(), NOW).await.unwrap_err();
    assert!(matches!(error, RootError::Store(StoreError::Unavailable(_))));
    assert!(store.contents().secrets.is_empty());
}

#[tokio::test]
async fn ca_05_a_due_root_is_renewed_with_its_key_and_both_verify_each_other() {
    let store = Memory::default();
    let old = load_or_create(&store, &short_lived(), NOW).await.unwrap();
    let early = NOW + time::Duration::minutes(45);
    assert!(matches!(check(&store, &short_lived(), &old, true, early).await.unwrap(), Checked::Unchanged));
    let due = NOW + time::Duration::minutes(49);
    let Checked::Renewed(new) = check(&store, &short_lived(), &old, true, due).await.unwrap() else {
        panic!("not renewed")
    };
    let (before, after) = (old.authority.signer(), new.authority.signer());
    assert_ne!(before.serial, after.serial);
    assert_eq!(before.subject, after.subject);
    assert_eq!(before.public_key_info, after.public_key_info);
    assert_eq!(before.subject_key_id, after.subject_key_id);
    assert_eq!(after.not_after, due + hours(1));
    assert!(verifies(&old, &new, due), "an old leaf with the new bundle");
    assert!(verifies(&new, &old, due), "a new leaf with the old root");
    assert!(new.authority.roots().contains(before), "the superseded root stays");
    assert_eq!(new.authority.roots().iter().next(), Some(after), "the present root is first");
    assert!(matches!(check(&store, &short_lived(), &new, true, due).await.unwrap(), Checked::Unchanged));

    let later = NOW + time::Duration::minutes(61);
    let reloaded = load(&store, &short_lived(), later).await.unwrap();
    assert_eq!(reloaded.authority.roots().len(), 1, "a root that has ended leaves the bundle");
}

#[tokio::test]
async fn the_first_moment_of_the_grace_period_is_due() {
    let root = self_signed(&Memory::default()).await;
    let root = root.authority.signer();
    let life = root.not_after - root.not_before;
    let boundary = root.not_after - life / 5;
    assert!(!is_due(root, 20, boundary - time::Duration::SECOND));
    assert!(is_due(root, 20, boundary));
    assert!(is_due(root, 20, root.not_after + time::Duration::SECOND));
    assert!(!is_due(root, 0, boundary));
}

#[tokio::test]
async fn a_renewed_root_keeps_its_whole_subject_whatever_is_configured() {
    let store = Memory::default();
    let old = RootOptions { trust_domain: "k8s.cluster.local".to_owned(), ..options() };
    let before = load_or_create(&store, &old, NOW).await.unwrap();
    let after = rotate(&store, &options(), NOW).await.unwrap();
    assert_eq!(after.authority.signer().subject_text, "O=k8s.cluster.local");
    assert!(verifies(&before, &after, NOW) && verifies(&after, &before, NOW));
}

#[tokio::test]
async fn ca_06_a_failed_write_leaves_everything_as_it_was() {
    let store = Memory::default();
    let old = load_or_create(&store, &short_lived(), NOW).await.unwrap();
    let before = stored(&store);
    store.contents().fail_writes = Some(StoreError::Forbidden("403".to_owned()));
    let due = NOW + time::Duration::minutes(55);
    assert!(check(&store, &short_lived(), &old, true, due).await.is_err());
    assert_eq!(stored(&store), before);
    store.contents().fail_writes = None;
    assert!(matches!(check(&store, &short_lived(), &old, true, due).await.unwrap(), Checked::Renewed(_)));
}

#[tokio::test]
async fn ca_07_the_rotation_of_another_replica_is_picked_up() {
    let store = Memory::default();
    let mine = self_signed(&store).await;
    let theirs = rotate(&store, &options(), NOW).await.unwrap();
    let Checked::Reloaded(reloaded) = check(&store, &options(), &mine, true, NOW).await.unwrap() else {
        panic!("not reloaded")
    };
    assert_eq!(reloaded.authority.signer(), theirs.authority.signer());
    assert!(reloaded.authority.roots().same_as(theirs.authority.roots()));
}

#[tokio::test]
async fn of_two_rotations_at_once_one_wins() {
    let store = Memory::default();
    self_signed(&store).await;
    let stale = read(&store, &options()).await.unwrap();
    rotate(&store, &options(), NOW).await.unwrap();
    let error = renew(&store, &options(), stale, NOW).await.unwrap_err();
    assert!(matches!(error, RootError::Store(StoreError::Conflict(_))), "{error}");
}

#[tokio::test]
async fn a_root_that_ended_while_nobody_looked_is_renewed_at_the_next_start() {
    let store = Memory::default();
    let old = load_or_create(&store, &short_lived(), NOW).await.unwrap();
    let later = NOW + hours(5);
    let new = load_or_create(&store, &short_lived(), later).await.unwrap();
    assert_eq!(new.authority.signer().public_key_info, old.authority.signer().public_key_info);
    assert!(new.authority.signer().is_valid_at(later));
}

#[tokio::test]
async fn a_secret_of_another_version_is_understood_and_kept() {
    // As istio_ca 1.3 wrote it: no root-cert.pem; as a later one may: keys that we do not know.
    let store = Memory::default();
    self_signed(&store).await;
    put(&store, "root-cert.pem", "");
    put(&store, "a-later-key", "value");
    let root = rotate(&store, &options(), NOW).await.unwrap();
    assert_eq!(root.authority.roots().len(), 2);
    assert_eq!(stored(&store).bytes("a-later-key"), b"value");
}

#[tokio::test]
async fn roots_of_others_are_trusted_but_not_written() {
    let store = Memory::default();
    let other = self_signed(&Memory::default()).await.authority.signer().clone();
    let extra = RootOptions { extra_roots: RootBundle::new([other.clone()]), ..options() };
    let root = load_or_create(&store, &extra, NOW).await.unwrap();
    assert!(root.authority.roots().contains(&other));
    let rotated = rotate(&store, &extra, NOW).await.unwrap();
    assert!(rotated.authority.roots().contains(&other));
    assert!(!RootBundle::from_pem(stored(&store).bytes("root-cert.pem")).unwrap().contains(&other));
}

#[tokio::test]
async fn an_rsa_root_signs_too() {
    let rsa = RootOptions { key: KeyAlgorithm::Rsa2048, ..options() };
    let root = load_or_create(&Memory::default(), &rsa, NOW).await.unwrap();
    assert!(verifies(&root, &root, NOW));
}

#[tokio::test]
async fn the_longest_life_that_was_ever_given_stays_noted() {
    let store = Memory::default();
    let mut root = self_signed(&store).await;
    assert_eq!(root.material.longest_life(), None);
    for (given, noted) in [(100, 100), (50, 100), (400, 400)] {
        let options = RootOptions { longest_life: Some(given * HOUR), ..options() };
        // A replica that does not write leaves it to the one that does.
        assert!(matches!(check(&store, &options, &root, false, NOW).await.unwrap(), Checked::Unchanged));
        if let Checked::Reloaded(next) = check(&store, &options, &root, true, NOW).await.unwrap() {
            root = *next;
        }
        assert_eq!(root.material.longest_life(), Some(noted * HOUR));
        assert!(matches!(check(&store, &options, &root, true, NOW).await.unwrap(), Checked::Unchanged));
    }
    let renewed = rotate(&store, &options(), NOW).await.unwrap();
    assert_eq!(renewed.material.longest_life(), Some(400 * HOUR));
}

#[tokio::test]
async fn a_superseded_root_leaves_the_bundle_when_it_ends() {
    let store = Memory::default();
    load_or_create(&store, &short_lived(), NOW).await.unwrap();
    let root = rotate(&store, &options(), NOW).await.unwrap();
    assert_eq!((root.authority.roots().len(), root.bundle_ends()), (2, Some(NOW + HOUR)));
    let at = async |now| check(&store, &options(), &root, false, now).await.unwrap();
    assert!(matches!(at(NOW + HOUR).await, Checked::Unchanged));
    let Checked::Reloaded(pruned) = at(NOW + HOUR + Duration::from_secs(1)).await else {
        panic!("the bundle changes");
    };
    assert_eq!((pruned.authority.roots().len(), pruned.bundle_ends()), (1, None));
}
