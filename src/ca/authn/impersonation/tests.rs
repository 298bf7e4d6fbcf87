use super::*;
use crate::ca::authn::{CallerPod, Method};

fn pod(name: &str, account: &str, node: &str) -> Pod {
    let text = str::to_owned;
    Pod {
        namespace: text(if account == "ztunnel" { "istio-system" } else { "shop" }),
        name: text(name),
        uid: format!("uid-of-{name}"),
        account: text(account),
        node: text(node),
        failed: false,
    }
}

fn caller(account: &str, pod: Option<(&str, &str)>) -> Caller {
    Caller {
        id: SpiffeId::new("cluster.local", "istio-system", account).unwrap(),
        pod: pod.map(|(name, uid)| CallerPod { name: name.to_owned(), uid: uid.to_owned() }),
        method: Method::TokenReview,
    }
}

fn agent() -> Caller {
    caller("ztunnel", Some(("zt-1", "uid-of-zt-1")))
}

fn rules() -> Impersonation {
    let gone = Pod { failed: true, ..pod("gone-1", "gone", "n1") };
    let pods = Pods::new([
        pod("zt-1", "ztunnel", "n1"),
        pod("zt-2", "ztunnel", "n2"),
        pod("here-1", "here", "n1"),
        pod("away-1", "away", "n2"),
        pod("both-1", "both", "n1"),
        pod("both-2", "both", "n2"),
        gone,
    ]);
    Impersonation {
        trusted: Impersonation::parse_trusted("istio-system/ztunnel").unwrap(),
        clusters: BTreeMap::from([(String::new(), Arc::new(pods))]),
    }
}

fn id(account: &str) -> String {
    format!("spiffe://cluster.local/ns/shop/sa/{account}")
}

#[test]
fn ca_22_the_table_of_impersonations() {
    use ImpersonationError as E;
    let ask = |caller: &Caller, requested: &str| rules().authorize(caller, requested, "");
    assert_eq!(ask(&agent(), &id("here")).unwrap().to_string(), id("here"));
    assert_eq!(ask(&agent(), &id("both")).unwrap().to_string(), id("both"));
    assert!(matches!(ask(&agent(), &id("away")), Err(E::NotOnNode { .. })));
    assert!(matches!(ask(&agent(), &id("gone")), Err(E::NotOnNode { .. })), "its only pod has failed");
    assert!(matches!(ask(&agent(), &id("nobody")), Err(E::NotOnNode { .. })));
    let other = caller("other", Some(("zt-1", "uid-of-zt-1")));
    assert!(matches!(ask(&other, &id("here")), Err(E::NotTrusted(_))));
    let unknown = caller("ztunnel", Some(("zt-9", "uid-of-zt-9")));
    assert!(matches!(ask(&unknown, &id("here")), Err(E::UnknownPod(_))));
    let uid = caller("ztunnel", Some(("zt-1", "stale")));
    assert!(matches!(ask(&uid, &id("here")), Err(E::PodUid(_))));
    assert!(matches!(ask(&caller("ztunnel", None), &id("here")), Err(E::NoPod)));
    let mut renamed = rules();
    renamed.trusted.insert(("istio-system".to_owned(), "new".to_owned()));
    let moved = caller("new", Some(("zt-1", "uid-of-zt-1")));
    assert!(matches!(renamed.authorize(&moved, &id("here"), ""), Err(E::PodAccount(_))));
}

#[test]
fn requested_identities_are_parsed_strictly() {
    use ImpersonationError as E;
    let ask = |requested: &str| rules().authorize(&agent(), requested, "").unwrap_err();
    assert!(matches!(ask("here"), E::Identity(_)));
    assert!(matches!(ask("spiffe://cluster.local,spiffe://x/ns/shop/sa/here"), E::Identity(_)));
    assert!(matches!(ask("spiffe://other.domain/ns/shop/sa/here"), E::TrustDomain(_)));
}

#[test]
fn an_unknown_cluster_is_refused_and_the_known_ones_are_named() {
    let mut rules = rules();
    rules.clusters.insert("east".to_owned(), Arc::default());
    let error = rules.authorize(&agent(), &id("here"), "nope").unwrap_err();
    assert!(error.to_string().contains("east"), "{error}");
}

#[test]
fn with_nobody_trusted_nobody_may() {
    let rules = Impersonation { trusted: BTreeSet::new(), ..rules() };
    assert_eq!(rules.authorize(&agent(), &id("here"), ""), Err(ImpersonationError::Off));
}

#[test]
fn the_list_of_trusted_accounts_is_checked() {
    assert_eq!(Impersonation::parse_trusted("a/b, c/d").unwrap().len(), 2);
    for bad in ["a", "a/", "/b", "a/b/c"] {
        assert!(Impersonation::parse_trusted(bad).unwrap_err().contains(bad));
    }
}
