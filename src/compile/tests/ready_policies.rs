//! Policies that were compiled elsewhere: whom they apply to, what takes their name, and what stands for them where they
//! cannot be read or are not there.

use std::hash::RandomState;

use serde_json::json;

use super::workloads::decode;
use super::*;
use crate::diagnostics::Severity;
use crate::snapshot::policies::{Connection, Reason};
use crate::sources::directory::content::decode_manifest;
use crate::tls::spiffe::SpiffeId;

/// Objects as a folder of the gateway has them.
fn manifest(yaml: &str) -> Vec<Object> {
    let content = decode_manifest(yaml.as_bytes(), &RandomState::new());
    content.objects.into_iter().map(|defined| defined.object).collect()
}

fn pod(name: &str, address: &str, lists: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: a, annotations: \
         {{portcullis.dev/authorization-policies: \"{lists}\"}}}}\nstatus: {{podIP: {address}}}\n"
    )
}

const PLAINTEXT: &str = "groups: [{rules: [{matches: [{notPrincipals: [{presence: {}}]}]}]}]";

fn ready(name: &str, scope: &str, rest: &str) -> String {
    format!("---\nname: {name}\nnamespace: a\nscope: {scope}\naction: DENY\n{rest}\n")
}

/// What happens to a connection to this address in this namespace, with and without an identity.
fn decide(world: &World, address: &str, namespace: &str) -> [Reason; 2] {
    let id = SpiffeId::parse("spiffe://cluster.local/ns/x/sa/y").unwrap();
    [None, Some(&id)].map(|principal| {
        let (source, destination) = ([192, 0, 2, 1].into(), address.parse().unwrap());
        let connection = Connection { principal, source, destination, port: 80 };
        world.compiled.snapshot.workloads.decide(namespace, &connection).reason
    })
}

const OPEN: [Reason; 2] = [Reason::NoAllowPolicy; 2];
const STRICT: [Reason; 2] = [Reason::Denied, Reason::NoAllowPolicy];

#[test]
fn they_apply_by_their_scope_and_the_rest_to_those_that_list_them() {
    let pods = pod("lists", "10.0.0.1", "a/listed") + &pod("not", "10.0.0.2", "");
    let mut world = World::new(manifest(&(pods + &ready("listed", "WORKLOAD_SELECTOR", PLAINTEXT))));
    assert_eq!(decide(&world, "10.0.0.1", "a"), STRICT);
    for (address, namespace) in [("10.0.0.2", "a"), ("10.9.9.9", "a"), ("10.9.9.9", "b")] {
        assert_eq!(decide(&world, address, namespace), OPEN);
    }
    world.apply(manifest(&ready("listed", "NAMESPACE", PLAINTEXT)));
    for address in ["10.0.0.1", "10.0.0.2", "10.9.9.9"] {
        assert_eq!(decide(&world, address, "a"), STRICT, "{address}");
    }
    assert_eq!(decide(&world, "10.9.9.9", "b"), OPEN);
    assert!(
        world.findings().is_empty(),
        "a policy that applies anyway may be listed: {:?}",
        world.findings()
    );
    world.apply(manifest(&ready("listed", "GLOBAL", PLAINTEXT)));
    assert_eq!(decide(&world, "10.9.9.9", "b"), STRICT);
    world.delete(Kind::Authorization, "a", "listed");
    assert_eq!(decide(&world, "10.9.9.9", "b"), OPEN);
}

#[test]
fn a_listed_key_that_names_nothing_closes() {
    let key = "converted_peer_authentication_p";
    let mut world = World::new(manifest(&pod("one", "10.0.0.1", &format!("a/{key}"))));
    assert_eq!(decide(&world, "10.0.0.1", "a"), [Reason::DanglingStrict, Reason::NoAllowPolicy]);
    let finding = world.compiled.report.all().next().unwrap().clone();
    assert_eq!((finding.severity, finding.reason), (Severity::Error, "PolicyNotFound"));
    assert_eq!(finding.field, "metadata.annotations[portcullis.dev/authorization-policies]");
    assert!(finding.message.contains("a/converted_peer_authentication_p"), "{finding}");
    let only_8080 = "groups: [{rules: [{matches: [{destinationPorts: [8080]}]}]}]";
    world.apply(manifest(&ready(key, "WORKLOAD_SELECTOR", only_8080)));
    assert_eq!((decide(&world, "10.0.0.1", "a"), world.findings().len()), (OPEN, 0));
    world.delete(Kind::Authorization, "a", key);
    assert_eq!(decide(&world, "10.0.0.1", "a"), [Reason::DanglingStrict, Reason::NoAllowPolicy]);

    // Of any other policy nobody knows what it would have closed; nor of what is no key at all, or of other workloads.
    for lists in ["a/other", "b/elsewhere", "nothing", "a/b/c", "a/X", "*/*"] {
        let mut world = World::new(manifest(&pod("one", "10.0.0.1", lists)));
        world.apply(manifest(
            &ready("elsewhere", "NAMESPACE", PLAINTEXT).replace("namespace: a", "namespace: b"),
        ));
        assert_eq!(decide(&world, "10.0.0.1", "a"), [Reason::DanglingPolicy; 2], "{lists}");
        // Without the list it is as before.
        world.apply(manifest(&pod("one", "10.0.0.1", "")));
        assert_eq!(decide(&world, "10.0.0.1", "a"), OPEN);
    }
    let number = pod("one", "10.0.0.1", "").replace("\"\"", "5");
    assert_eq!(decide(&World::new(manifest(&number)), "10.0.0.1", "a"), [Reason::DanglingPolicy; 2]);
}

#[test]
fn objects_keep_the_names_of_what_they_are_compiled_to() {
    let strict = "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
        metadata: {name: p, namespace: a}\nspec: {mtls: {mode: STRICT}}\n";
    let opens = "---\nname: istio_converted_static_strict\nnamespace: istio-system\nscope: WORKLOAD_SELECTOR\naction: DENY\n";
    let mut world = World::new(manifest(&(pod("one", "10.0.0.1", "") + strict)));
    world.apply(manifest(opens));
    assert_eq!(decide(&world, "10.0.0.1", "a"), STRICT);
    assert_eq!(world.reasons(), [("NameTaken", "istio_converted_static_strict".to_owned())]);
    world.delete(Kind::PeerAuthentication, "a", "p");
    assert!(world.findings().is_empty());
}

#[test]
fn what_cannot_be_read_leaves_the_last_good_version_or_is_closed() {
    let pods = pod("lists", "10.0.0.1", "a/p") + &pod("not", "10.0.0.2", "");
    let mut world = World::new(manifest(&(pods.clone() + &ready("p", "WORKLOAD_SELECTOR", PLAINTEXT))));
    for broken in [
        ready("p", "WORKLOAD_SELECTOR", "groups: 5"),
        ready("p", "EVERYWHERE", PLAINTEXT),
        ready("p", "GLOBAL", "scop: 5"),
    ] {
        world.apply(manifest(&broken));
        assert_eq!(decide(&world, "10.0.0.1", "a"), STRICT);
        assert_eq!(decide(&world, "10.0.0.2", "a"), OPEN);
        assert_eq!(world.reasons(), [("LastGoodStays", "p".to_owned())]);
    }
    world.apply(manifest(&ready("p", "WORKLOAD_SELECTOR", "dryRun: true")));
    assert_eq!((decide(&world, "10.0.0.1", "a"), world.findings().len()), (OPEN, 0));

    // There never was a good one: closed for those whom it is for, or for those that name it.
    let at = |broken: &str| {
        let world = World::new(manifest(&(pods.clone() + broken)));
        [decide(&world, "10.0.0.1", "a"), decide(&world, "10.0.0.2", "a"), decide(&world, "10.9.9.9", "b")]
    };
    let (denied, dangling) = ([Reason::Denied; 2], [Reason::DanglingPolicy; 2]);
    assert_eq!(at(&ready("p", "WORKLOAD_SELECTOR", "groups: 5")), [denied, OPEN, OPEN]);
    assert_eq!(at(&ready("p", "NAMESPACE", "groups: 5")), [denied, denied, OPEN]);
    assert_eq!(at(&ready("p", "GLOBAL", "groups: 5")), [denied, denied, denied]);
    assert_eq!(at(&ready("p", "NAMESPACE", "groups: 5\ndryRun: true")), [OPEN, OPEN, OPEN]);
    assert_eq!(at(&ready("p", "EVERYWHERE", PLAINTEXT)), [dangling, OPEN, OPEN]);
    let misspelt = ready("p", "NAMESPACE", PLAINTEXT).replace("scope", "scop");
    assert_eq!(at(&misspelt), [dangling, OPEN, OPEN], "it may be for anybody");
}

#[test]
fn in_a_cluster_a_pod_chooses_no_policies() {
    let annotations = json!({"portcullis.dev/authorization-policies": "a/nothing"});
    let pod = decode(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "one", "namespace": "a", "annotations": annotations},
        "status": {"podIP": "10.0.0.1"},
    }));
    let world = World::in_cluster([pod]);
    assert_eq!((decide(&world, "10.0.0.1", "a"), world.findings().len()), (OPEN, 0));
}
