use std::future::poll_fn;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::*;
use crate::settings::Settings;
use crate::snapshot::certificates::{Binding, Certificate, HostCertificates};
use crate::snapshot::policies::{
    Action, Authorization, Condition, Group, Match, PolicySet, Rule, STATIC_STRICT, Scope, StringMatch,
    Values, WorkloadPolicies,
};
use crate::snapshot::workloads::Workload;
use crate::testing::certificates::Authority;
use crate::tls::policy::TlsPolicy;
use crate::tls::tickets::Tickets;

const NAMESPACE: &str = "app";
/// For those who have no certificate every moment is the same.
const NOW: u64 = 0;

/// A snapshot in which 10.0.0.1 and 10.0.0.2 are workloads, the first STRICT or not.
fn snapshot(generation: u64, strict: bool) -> Snapshot {
    let settings = Arc::new(Settings::default());
    let tickets = Tickets::new(settings.ssl_session_timeout).unwrap();
    let tls = TlsPolicy::new(&settings, &tickets).unwrap();
    let pair = Arc::new(Authority::new("default").pair(&["gateway.example"]));
    let certificate = Arc::new(Certificate { pair, secret: None, handshakes: Arc::default() });
    let default = HostCertificates::new(Binding { certificate, ingress: None, missing_since: None }, []);
    let mut snapshot = Snapshot::empty(settings, Arc::new(tls), Arc::new(default));
    snapshot.generation = generation;
    for (address, strict) in [("10.0.0.1", strict), ("10.0.0.2", false)] {
        let policies = WorkloadPolicies::new(strict.then(no_plaintext));
        snapshot.workloads.by_address.insert(address.parse().unwrap(), [workload(policies)].into());
    }
    snapshot
}

/// Denies clients without an identity, as what becomes of `STRICT` does.
fn no_plaintext() -> Arc<Authorization> {
    let values = Values::Principals([StringMatch::Presence].into());
    let conditions = [Condition { negated: true, values }].into();
    let rule = Rule { matches: [Match { conditions }].into() };
    Arc::new(Authorization {
        name: ObjectName::new("istio-system", STATIC_STRICT),
        scope: Scope::WorkloadSelector,
        action: Action::Deny,
        groups: [Group { rules: [rule].into() }].into(),
        dry_run: false,
    })
}

fn workload(policies: WorkloadPolicies) -> Workload {
    let policies = Arc::new(policies);
    Workload { pod: None, principal: None, host_network: false, hbone: false, policies }
}

fn plain() -> Peer {
    Peer { source: [192, 0, 2, 1].into(), client: None }
}

fn admit(guard: &Guard, snapshot: &Snapshot, address: &str) -> Result<Decided, Denial> {
    guard.admit(snapshot, address.parse().unwrap(), &NAMESPACE.into())
}

async fn is_denied(guard: &Guard) -> bool {
    poll_fn(|cx| Poll::Ready(guard.poll_denied(cx).is_ready())).await
}

#[tokio::test]
async fn a_change_ends_only_what_is_denied_now() {
    let guards = Guards::default();
    let (first, twin, other) = (guards.register(plain()), guards.register(plain()), guards.register(plain()));
    let authenticated = guards.register(Peer {
        client: Some(Rc::new(MeshClient::new(
            SpiffeId::parse("spiffe://cluster.local/ns/app/sa/web").unwrap(),
            &[],
        ))),
        ..plain()
    });
    let open = snapshot(1, false);
    for guard in [&first, &twin, &authenticated] {
        assert!(admit(guard, &open, "10.0.0.1:8080").is_ok());
    }
    assert!(admit(&other, &open, "10.0.0.2:8080").is_ok());
    drop(twin);
    guards.recheck(&open, NOW);
    assert!(!is_denied(&first).await);

    guards.recheck(&snapshot(2, true), NOW);
    assert!(is_denied(&first).await, "its twin that ended did not take it along");
    assert!(!is_denied(&other).await);
    assert!(!is_denied(&authenticated).await);
    drop((first, other, authenticated));
    assert!(guards.0.open.borrow().is_empty());
}

#[tokio::test]
async fn whoever_waits_is_woken() {
    let guards = Guards::default();
    let guard = guards.register(plain());
    admit(&guard, &snapshot(1, false), "10.0.0.1:80").unwrap();
    let strict = snapshot(2, true);
    tokio::join!(poll_fn(|cx| guard.poll_denied(cx)), async { guards.recheck(&strict, NOW) });
}

#[test]
fn what_is_registered_and_not_yet_checked_is_not_ended() {
    let guards = Guards::default();
    let guard = guards.register(plain());
    guards.recheck(&snapshot(1, true), NOW);
    assert_eq!(admit(&guard, &snapshot(1, true), "10.0.0.1:80").unwrap_err().reason, Reason::Denied);
}

#[test]
fn decisions_are_counted_where_there_are_policies() {
    let guards = Guards::default();
    let guard = guards.register(plain());
    let strict = snapshot(1, true);
    for address in ["10.0.0.1:80", "10.0.0.1:80", "10.0.0.2:80"] {
        let _ = admit(&guard, &strict, address);
    }
    let stats = PolicyStats::default();
    guards.flush(&stats);
    let policy = ObjectName::new("istio-system", STATIC_STRICT);
    assert_eq!(stats.read(), [(Some(policy), "denied", 2)]);
    guards.flush(&stats);
    assert_eq!(stats.read()[0].2, 2, "nothing is counted twice");
}

#[test]
fn behind_the_address_of_a_service_nobody_can_tell_whose_policies_apply() {
    let guards = Guards::default();
    let guard = guards.register(plain());
    let mut open = snapshot(1, false);
    let service = "10.96.0.1".parse().unwrap();
    open.workloads.services.insert(service, [Arc::from("shop")].into());
    assert!(admit(&guard, &open, "10.96.0.1:80").is_ok(), "there are no policies");
    let mut guarded = open.clone();
    guarded.workloads.by_namespace.insert("shop".into(), Arc::default());
    assert_eq!(admit(&guard, &guarded, "10.96.0.1:80").unwrap_err().reason, Reason::Undecidable);
    assert!(guarded.workloads.may_guard(service, "istio-system"));
    assert!(!guarded.workloads.may_guard("10.96.0.2".parse().unwrap(), "istio-system"));
    assert!(snapshot(1, true).workloads.may_guard("10.0.0.1".parse().unwrap(), "istio-system"));
    assert!(!open.workloads.may_guard("10.0.0.1".parse().unwrap(), "istio-system"));
}

#[test]
fn what_a_policy_in_dry_run_would_have_said_is_counted_and_does_not_count() {
    let guards = Guards::default();
    let guard = guards.register(plain());
    let mut tried = snapshot(1, false);
    let policy = Arc::new(Authorization {
        name: ObjectName::new(NAMESPACE, "tried"),
        scope: Scope::Namespace,
        action: Action::Deny,
        groups: [Group::default()].into(),
        dry_run: true,
    });
    let workload = workload(WorkloadPolicies::new([policy]));
    tried.workloads.by_address.insert([10, 0, 0, 1].into(), [workload].into());
    for _ in 0..2 {
        assert!(admit(&guard, &tried, "10.0.0.1:80").is_ok());
    }
    let stats = PolicyStats::default();
    guards.flush(&stats);
    let said = TriedOut { policy: ObjectName::new(NAMESPACE, "tried"), action: Action::Deny, matches: true };
    assert_eq!(stats.read_tried_out(), [(said, 2)].into());
}

#[test]
fn a_missing_strict_policy_denies_plaintext() {
    let guards = Guards::default();
    let mut dangling = snapshot(1, false);
    let key = ObjectName::new("istio-system", STATIC_STRICT);
    let policies = PolicySet::default().workload(NAMESPACE, &[key]);
    assert_eq!(policies.dangling().len(), 1);
    let workload = workload(policies);
    dangling.workloads.by_address.insert([10, 0, 0, 1].into(), [workload].into());
    let anonymous = guards.register(plain());
    let denial = admit(&anonymous, &dangling, "10.0.0.1:80").unwrap_err();
    assert_eq!(denial.reason, Reason::DanglingStrict);
    let id = SpiffeId::parse("spiffe://cluster.local/ns/app/sa/web").unwrap();
    let known = guards.register(Peer { client: Some(Rc::new(MeshClient::new(id, &[]))), ..plain() });
    assert!(admit(&known, &dangling, "10.0.0.1:80").is_ok());
}

/// A client with a certificate that ends at `end`, in seconds since the Unix epoch.
fn client(end: i64) -> Peer {
    let authority = Authority::new("mesh");
    let pem = authority.leaf(&["web.test"]).valid(end - 3600, end).issue().leaf_pem;
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let id = SpiffeId::parse("spiffe://cluster.local/ns/app/sa/web").unwrap();
    Peer { client: Some(Rc::new(MeshClient::new(id, &[certificate]))), ..plain() }
}

#[tokio::test]
async fn a_connection_ends_with_its_certificate() {
    let guards = Guards::default();
    let open = snapshot(1, false);
    let present = clock::seconds();
    assert_eq!(guards.until_first_end(present), None);
    let end = present + 3600;
    let [first, later] = [end, end + 60].map(|end| guards.register(client(end.try_into().unwrap())));
    assert!(admit(&first, &open, "10.0.0.1:80").is_ok());
    guards.recheck(&open, present);
    assert_eq!(guards.until_first_end(end - 9), Some(Duration::from_secs(10)));
    guards.recheck(&open, end);
    assert!(!is_denied(&first).await, "its last second");
    guards.recheck(&open, end + 1);
    assert!(is_denied(&first).await && !is_denied(&later).await);
    assert_eq!(guards.until_first_end(end + 1), Some(Duration::from_secs(60)));

    let ended = guards.register(client(i64::try_from(present).unwrap() - 1));
    assert_eq!(ended.check(&open).unwrap_err().reason, Reason::Untrusted);
    assert_eq!(admit(&ended, &open, "10.0.0.1:80").unwrap_err().reason, Reason::Untrusted);
}
