use std::future::poll_fn;

use super::*;
use crate::compile::Compiled;
use crate::compile::policies::{Mesh, compile_policies};
use crate::settings::Settings;
use crate::snapshot::workloads::Workload;
use crate::store::objects::PeerAuthentication;
use crate::tls::tickets::Tickets;

const NAMESPACE: &str = "app";

/// A snapshot in which 10.0.0.1 and 10.0.0.2 are workloads, the first STRICT or not.
fn snapshot(generation: u64, strict: bool) -> Snapshot {
    let settings = Arc::new(Settings::default());
    let tickets = Tickets::new(settings.ssl_session_timeout).unwrap();
    let mut snapshot = Compiled::empty(&settings, &tickets, 0).unwrap().snapshot;
    snapshot.generation = generation;
    let object = serde_json::json!({
        "metadata": {"name": "strict", "namespace": NAMESPACE},
        "spec": {"mtls": {"mode": "STRICT"}},
    });
    let strict_policy = PeerAuthentication::decode(&object, NAMESPACE, &mut Vec::new()).unwrap();
    for (address, strict) in [("10.0.0.1", strict), ("10.0.0.2", false)] {
        let policies = compile_policies(
            &Mesh::default(),
            if strict { std::slice::from_ref(&strict_policy) } else { &[] },
            &[],
        );
        let policies = Arc::new(policies.workload(NAMESPACE, &Default::default()));
        let workload = Workload { pod: None, principal: None, host_network: false, policies };
        snapshot.workloads.by_address.insert(address.parse().unwrap(), [workload].into());
    }
    snapshot
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
    guards.recheck(&open);
    assert!(!is_denied(&first).await);

    guards.recheck(&snapshot(2, true));
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
    tokio::join!(poll_fn(|cx| guard.poll_denied(cx)), async { guards.recheck(&strict) });
}

#[test]
fn what_is_registered_and_not_yet_checked_is_not_ended() {
    let guards = Guards::default();
    let guard = guards.register(plain());
    guards.recheck(&snapshot(1, true));
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
    let policy = ObjectName::new("istio-system", crate::snapshot::policies::STATIC_STRICT);
    assert_eq!(stats.read(), [(Some(policy), "denied", 2)]);
    guards.flush(&stats);
    assert_eq!(stats.read()[0].2, 2, "nothing is counted twice");
}
