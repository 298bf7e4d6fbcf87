use std::sync::Arc;

use time::OffsetDateTime;

use super::*;
use crate::ca::authority::{Authority, verify};
use crate::ca::bundle::RootBundle;
use crate::ca::certificate::Certificate;
use crate::ca::fixtures::{HOUR, NOW, account, hours, namespace, openssl_verify, self_signed};
use crate::ca::roots::{RootOptions, rotate};
use crate::ca::store::memory::Memory;
use crate::ca::store::{Secret, SecretBytes};

struct World {
    store: Memory,
    authority: Arc<Authority>,
    options: AccountOptions,
}

impl World {
    async fn new() -> Self {
        let store = Memory::default();
        {
            let mut contents = store.contents();
            contents.namespaces = vec![namespace("shop", &[])];
            contents.accounts = vec![account("shop", "web")];
        }
        let authority = self_signed(&store).await.authority;
        Self { store, authority, options: AccountOptions::default() }
    }

    async fn pass(&self, now: OffsetDateTime) -> Reconciled {
        reconcile_all(&self.store, &self.authority, &self.options, now).await.unwrap()
    }

    fn secret(&self) -> Option<Secret> {
        self.store.contents().secrets.get(&ObjectName::new("shop", "istio.web")).cloned()
    }

    fn leaf(&self) -> Certificate {
        Certificate::first_from_pem(self.secret().unwrap().bytes(CERT_CHAIN)).unwrap()
    }

    fn set(&self, key: &str, text: &str) {
        let mut contents = self.store.contents();
        let secret = contents.secrets.get_mut(&ObjectName::new("shop", "istio.web")).unwrap();
        secret.data.insert(key.to_owned(), SecretBytes::from(text));
    }

    fn action(&self, now: OffsetDateTime) -> Action {
        let name = ObjectName::new("shop", "web");
        let account = account("shop", "web");
        let secret = self.secret();
        plan(&name, Some(&account), None, secret.as_ref(), &self.authority, &self.options, now)
    }
}

#[tokio::test]
async fn an_account_gets_its_secret() {
    let world = World::new().await;
    assert_eq!(world.pass(NOW).await.created, 1);
    let secret = world.secret().unwrap();
    assert_eq!(secret.kind, "istio.io/key-and-cert");
    assert_eq!(secret.annotations["istio.io/service-account.name"], "web");
    assert_eq!(secret.data.keys().collect::<Vec<_>>(), ["cert-chain.pem", "key.pem", "root-cert.pem"]);
    assert_eq!(secret.owner, Some(account("shop", "web")));
    let leaf = world.leaf();
    assert_eq!(leaf.uris, ["spiffe://cluster.local/ns/shop/sa/web"]);
    assert_eq!(leaf.not_after, NOW + time::Duration::days(90));
    let (chain, roots) = (secret.bytes(CERT_CHAIN), secret.bytes(ROOT_CERT));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(openssl_verify(&text(chain), &text(roots), NOW), Ok(()));
    let roots = RootBundle::from_pem(roots).unwrap();
    assert_eq!(verify(leaf.der(), &[], &roots, webpki::KeyUsage::server_auth(), NOW), Ok(()));
}

#[tokio::test]
async fn a_steady_state_writes_nothing_and_says_when_to_look_again() {
    let world = World::new().await;
    world.pass(NOW).await;
    let writes = world.store.contents().writes;
    let done = world.pass(NOW + hours(1)).await;
    assert_eq!(world.store.contents().writes, writes);
    let next = done.next.unwrap();
    assert!(next > NOW + time::Duration::days(39) && next < NOW + time::Duration::days(46), "{next}");
}

#[tokio::test]
async fn ca_14_secrets_follow_their_accounts() {
    let world = World::new().await;
    world.pass(NOW).await;
    world.store.contents().secrets.remove(&ObjectName::new("shop", "istio.web"));
    assert_eq!(world.pass(NOW).await.created, 1, "a deleted Secret comes back while its account lives");
    world.store.contents().accounts.clear();
    assert_eq!(world.pass(NOW).await.deleted, 1);
    assert!(world.secret().is_none());
    assert_eq!(world.pass(NOW).await, Reconciled::default(), "and stays away");
}

#[test]
fn ca_15_the_truth_table_of_labels() {
    let options = |enable_by_default| AccountOptions { enable_by_default, ..AccountOptions::default() };
    let (yes, no) = (true, false);
    for (labels, by_default, otherwise) in [
        (&[("ca.istio.io/override", "true")][..], yes, yes),
        (&[("ca.istio.io/override", "true"), ("ca.istio.io/env", "other")], yes, yes),
        (&[("ca.istio.io/override", "false")], no, no),
        (&[("ca.istio.io/override", "false"), ("ca.istio.io/env", "istio-system")], no, no),
        (&[], yes, no),
        (&[("ca.istio.io/override", "maybe")], yes, no),
        (&[("ca.istio.io/env", "istio-system")], yes, yes),
        (&[("ca.istio.io/override", ""), ("ca.istio.io/env", "istio-system")], yes, yes),
        (&[("ca.istio.io/env", "other")], no, no),
        (&[("ca.istio.io/env", "")], no, no),
    ] {
        let namespace = namespace("shop", labels);
        assert_eq!(managed(Some(&namespace), &options(true)), by_default, "{labels:?}");
        assert_eq!(managed(Some(&namespace), &options(false)), otherwise, "{labels:?}");
    }
    assert!(managed(None, &options(true)) && !managed(None, &options(false)));
}

#[tokio::test]
async fn ca_16_a_namespace_that_opted_out_loses_its_secret_when_that_is_due() {
    let world = World::new().await;
    world.pass(NOW).await;
    world.store.contents().namespaces = vec![namespace("shop", &[("ca.istio.io/override", "false")])];
    assert_eq!(world.pass(NOW + hours(1)).await.deleted, 0, "not at once");
    assert_eq!(world.pass(NOW + time::Duration::days(46)).await.deleted, 1);
    assert!(world.secret().is_none(), "the Secret itself, under its own name");
    assert_eq!(world.pass(NOW + time::Duration::days(46)).await.created, 0);
    world.store.contents().namespaces = vec![namespace("shop", &[])];
    assert_eq!(world.pass(NOW + time::Duration::days(46)).await.created, 1, "opted in again");
}

#[tokio::test]
async fn the_refresh_rule() {
    let life = |world: &mut World, life, ratio, min_grace| {
        world.options = AccountOptions {
            life,
            grace: Grace { ratio, least: min_grace, jitter: 0.0 },
            ..world.options.clone()
        };
    };
    let days = |days: i64| NOW + time::Duration::days(days);
    let due = Action::Issue(IssueReason::Due);
    let mut world = World::new().await;
    life(&mut world, 90 * 24 * HOUR, 0.5, 10 * HOUR / 60);
    world.pass(NOW).await;
    assert!(matches!(world.action(days(44)), Action::Keep { .. }));
    assert_eq!(world.action(days(45)), due);
    assert_eq!(world.action(days(91)), due, "an ended one too");
    life(&mut world, 90 * 24 * HOUR, 1.0, Duration::ZERO);
    assert_eq!(world.action(NOW), due);

    let mut world = World::new().await;
    life(&mut world, HOUR / 6, 0.5, HOUR);
    world.pass(NOW).await;
    assert_eq!(world.action(NOW), due, "a life shorter than the minimal grace period");
}

#[tokio::test]
async fn a_refresh_makes_a_new_key_and_certificate() {
    let world = World::new().await;
    world.pass(NOW).await;
    let before = (world.leaf(), world.secret().unwrap());
    assert_eq!(world.pass(NOW + time::Duration::days(60)).await.refreshed, 1);
    let after = (world.leaf(), world.secret().unwrap());
    assert_ne!(before.0.serial, after.0.serial);
    assert_ne!(before.1.bytes(KEY), after.1.bytes(KEY));
}

#[tokio::test]
async fn a_fleet_that_was_born_together_is_not_renewed_together() {
    let mut world = World::new().await;
    world.store.contents().accounts = (0..40).map(|i| account("shop", &format!("a{i}"))).collect();
    world.options.grace.jitter = 0.1;
    world.pass(NOW).await;
    let at = |day: i64| NOW + time::Duration::days(day);
    assert_eq!(world.pass(at(35)).await.refreshed, 0);
    let first = world.pass(at(41)).await.refreshed;
    let rest = world.pass(at(46)).await.refreshed;
    assert!(first > 5 && rest > 5, "{first} and {rest}");
    assert_eq!(first + rest, 40);
}

#[tokio::test]
async fn near_the_end_of_its_signer_a_certificate_is_not_renewed_in_vain() {
    let mut world = World::new().await;
    world.options.life = 100 * 365 * 24 * HOUR;
    world.pass(NOW).await;
    assert_eq!(world.leaf().not_after, world.authority.end_of_life());
    let late = world.authority.end_of_life() - hours(1);
    assert!(matches!(world.action(late), Action::Keep { .. }));
}

#[tokio::test]
async fn a_renewed_root_reaches_the_secret_without_a_new_key() {
    let mut world = World::new().await;
    world.pass(NOW).await;
    let before = world.secret().unwrap();
    world.authority = rotate(&world.store, &RootOptions::default(), NOW).await.unwrap().authority;
    let done = world.pass(NOW).await;
    assert_eq!((done.roots_updated, done.refreshed), (1, 0));
    let after = world.secret().unwrap();
    assert_eq!(before.bytes(KEY), after.bytes(KEY));
    assert_eq!(before.bytes(CERT_CHAIN), after.bytes(CERT_CHAIN));
    assert!(RootBundle::from_pem(after.bytes(ROOT_CERT)).unwrap().same_as(world.authority.roots()));
}

#[tokio::test]
async fn another_signer_reaches_the_secret_with_a_new_key() {
    // For example after switching from the self-signed root to a plugged-in CA, with no istio-ca-secret any more.
    let mut world = World::new().await;
    world.pass(NOW).await;
    world.authority = self_signed(&Memory::default()).await.authority;
    world.store.contents().secrets.retain(|_, secret| secret.kind == SECRET_TYPE);
    assert_eq!(world.action(NOW), Action::Issue(IssueReason::SignerChanged));
    assert_eq!(world.pass(NOW).await.refreshed, 1);
    let secret = world.secret().unwrap();
    assert!(RootBundle::from_pem(secret.bytes(ROOT_CERT)).unwrap().same_as(world.authority.roots()));
}

#[tokio::test]
async fn unusable_content_is_replaced() {
    for (key, text) in [(CERT_CHAIN, "garbage"), (KEY, ""), (ROOT_CERT, "garbage")] {
        let world = World::new().await;
        world.pass(NOW).await;
        world.set(key, text);
        let done = world.pass(NOW).await;
        assert_eq!(done.refreshed + done.roots_updated, 1, "{key}");
        assert!(matches!(world.action(NOW), Action::Keep { .. }));
    }
}

#[tokio::test]
async fn an_account_made_anew_gets_a_new_secret() {
    let world = World::new().await;
    world.pass(NOW).await;
    world.store.contents().accounts[0].uid = "another".to_owned();
    assert_eq!(world.pass(NOW).await.refreshed, 1);
    assert_eq!(world.secret().unwrap().owner.unwrap().uid, "another");
}

#[tokio::test]
async fn dns_names_are_configured_per_account() {
    let mut world = World::new().await;
    world.pass(NOW).await;
    world.options.dns_names = CustomDnsNames::parse("web.shop:web.example").0;
    assert_eq!(world.action(NOW), Action::Issue(IssueReason::NamesChanged));
    world.pass(NOW).await;
    assert_eq!(world.leaf().dns_names, ["web.example"]);
}

#[tokio::test]
async fn a_foreign_secret_of_the_name_is_not_touched_and_others_still_get_theirs() {
    let world = World::new().await;
    let foreign = Secret::new(ObjectName::new("shop", "istio.web"), "Opaque");
    crate::ca::store::Store::write_secret(&world.store, &foreign).await.unwrap();
    world.store.contents().accounts.push(account("shop", "db"));
    // A pass over all lists Secrets of our type only, so it learns of the foreign one when it writes.
    let done = world.pass(NOW).await;
    assert_eq!(world.secret().unwrap().kind, "Opaque");
    assert!(world.store.contents().secrets.contains_key(&ObjectName::new("shop", "istio.db")));
    assert_eq!((done.created, done.failed.len()), (1, 1));
}

#[tokio::test]
async fn an_account_with_an_impossible_name_harms_no_other() {
    let world = World::new().await;
    world.store.contents().accounts.push(account("shop", "a,b"));
    let done = world.pass(NOW).await;
    assert_eq!((done.created, done.failed.len()), (1, 1));
}

#[test]
fn ratios_outside_of_zero_to_one_are_refused() {
    let with = |grace_ratio| Grace { ratio: grace_ratio, ..Grace::default() }.check();
    assert_eq!(with(0.0), Ok(()));
    assert_eq!(with(1.0), Ok(()));
    assert!(with(1.01).is_err() && with(-0.1).is_err() && with(f64::NAN).is_err());
}
