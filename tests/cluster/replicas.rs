//! Several gateways on one cluster: what they share, and what happens when one of them, or the API server, is gone.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use portcullis::testing::client::Client;
use portcullis::testing::openssl::{Handshake, connect};

use super::backend::Backend;
use super::balancer::Balancer;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::{create_secret, ingress};

fn is_leader(gateway: &Gateway) -> bool {
    gateway.admin_json("/api/v1/status")["leader"] == true
}

fn addresses(plane: &ControlPlane, namespace: &str, name: &str) -> String {
    let path = "jsonpath={range .status.loadBalancer.ingress[*]}{.ip} {end}";
    plane.kubectl(&["-n", namespace, "get", "ingress", name, "-o", path]).trim().to_owned()
}

fn expect_addresses(plane: &ControlPlane, namespace: &str, name: &str, expected: &str) {
    eventually("status", || match addresses(plane, namespace, name) {
        found if found == expected => Ok(()),
        found => Err(format!("{found:?} instead of {expected:?}")),
    });
}

/// Rotates the session ticket keys as the CronJob does.
fn rotate_tickets(plane: &ControlPlane, secret: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["tickets", "rotate", "--keep=2", "--secret", secret])
        .arg(format!("--kubeconfig={}", plane.kubeconfig().display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// How a session that begins at one address goes on at the other.
fn resume(from: SocketAddr, to: SocketAddr, host: &str, folder: &Path) -> Handshake {
    let (first, second) = (folder.join("first"), folder.join("second"));
    assert_eq!(connect(from, host, "tls1_3", None, &first).unwrap(), Handshake::Full);
    connect(to, host, "tls1_3", Some(&first), &second).unwrap()
}

#[test]
fn sessions_are_resumed_across_replicas_and_rotations() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("tickets");
    let authority = Authority::new();
    let host = "tickets.example.com";
    let folder = tempfile::tempdir().unwrap();
    plane.apply(&Backend::start("tickets").manifest("tickets", "web"));
    create_secret(plane, "tickets", "tls", &authority.issue(host));
    plane.apply(&ingress("tickets", "web", host, "tls"));
    // One is told by a flag and the other by a ConfigMap, and neither finds the Secret yet.
    plane.apply(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { namespace: tickets, name: settings }\n\
         data: { ssl-session-ticket-secret: tickets/session-tickets }\n",
    );
    let scope = "--watch-namespace=tickets";
    let flag = [scope, "--ssl-session-ticket-secret=tickets/session-tickets"];
    let replicas = [
        Gateway::start(&plane.kubeconfig(), &flag),
        Gateway::start(&plane.kubeconfig(), &[scope, "--configmap=tickets/settings"]),
    ];
    let [one, two] = replicas.each_ref().map(Gateway::https_address);
    for replica in &replicas {
        replica.expect_http(host, 308);
        eventually("nobody misses the Secret", || match replica.reasons("tickets", "session-tickets") {
            reasons if reasons == ["SecretNotFound"] => Ok(()),
            reasons => Err(format!("{reasons:?}")),
        });
    }
    assert_eq!(resume(one, two, host, folder.path()), Handshake::Full, "each has keys of its own");

    let expect_shared = || {
        for (from, to) in [(one, two), (two, one)] {
            eventually("sessions are not resumed", || match resume(from, to, host, folder.path()) {
                Handshake::Resumed => Ok(()),
                Handshake::Full => Err("a full handshake".into()),
            });
        }
    };
    rotate_tickets(plane, "tickets/session-tickets");
    expect_shared();
    let [old, next] = ["old", "next"].map(|name| folder.path().join(name));
    connect(one, host, "tls1_3", None, &old).unwrap();

    // The next key: what was encrypted before is still good, at both.
    thread::sleep(std::time::Duration::from_secs(1)); // Keys are named by the second.
    rotate_tickets(plane, "tickets/session-tickets");
    expect_shared();
    for replica in [one, two] {
        assert_eq!(connect(replica, host, "tls1_3", Some(&old), &next).unwrap(), Handshake::Resumed);
    }
    for replica in &replicas {
        assert!(replica.reasons("tickets", "session-tickets").is_empty());
    }
}

#[test]
fn the_loss_of_the_leader_takes_nothing_from_the_status_and_another_takes_over() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("leader");
    plane.apply(&Backend::start("leader").manifest("leader", "web"));
    plane.apply(&ingress("leader", "web", "leader.example.com", "tls"));
    let flags = ["--publish-status-address=203.0.113.7"];
    let mut first = Gateway::start(&plane.kubeconfig(), &flags);
    expect_addresses(&plane, "leader", "web", "203.0.113.7");
    let second = Gateway::start(&plane.kubeconfig(), &flags);
    assert!(is_leader(&first) && !is_leader(&second));

    first.crash();
    plane.apply(&ingress("leader", "late", "late.example.com", "tls"));
    second.expect_http("late.example.com", 308);
    eventually("nobody leads", || {
        assert_eq!(addresses(&plane, "leader", "web"), "203.0.113.7", "the status stays");
        if is_leader(&second) { Ok(()) } else { Err("not yet".into()) }
    });
    expect_addresses(&plane, "leader", "late", "203.0.113.7");
    assert_eq!(addresses(&plane, "leader", "web"), "203.0.113.7");
}

#[test]
fn replicas_serve_without_an_api_server_and_one_leads_when_it_is_back() {
    let Some(mut plane) = ControlPlane::start() else { return };
    plane.namespace("away");
    let authority = Authority::new();
    let (pair, late) = (authority.issue("away.example.com"), authority.issue("late.example.com"));
    plane.apply(&Backend::start("away").manifest("away", "web"));
    create_secret(&plane, "away", "tls", &pair);
    plane.apply(&ingress("away", "web", "away.example.com", "tls"));
    let flags = ["--publish-status-address=203.0.113.7"];
    let replicas = [(); 2].map(|()| Gateway::start(&plane.kubeconfig(), &flags));
    expect_addresses(&plane, "away", "web", "203.0.113.7");

    plane.kill_api_server();
    let serve = || {
        for replica in &replicas {
            let answer = replica.https(&authority, "away.example.com").unwrap();
            assert_eq!((answer.status, answer.certificate.as_ref()), (200, Some(&pair.certificate)));
            assert_eq!(replica.admin("/readyz").unwrap().status, 200);
        }
    };
    eventually("a leader without an API server", || {
        serve();
        if replicas.iter().any(is_leader) { Err("one believes to lead".into()) } else { Ok(()) }
    });

    plane.start_api_server();
    create_secret(&plane, "away", "late", &late);
    plane.apply(&ingress("away", "late", "late.example.com", "late"));
    for replica in &replicas {
        replica.expect_https(&authority, "late.example.com", &late.certificate);
    }
    expect_addresses(&plane, "away", "late", "203.0.113.7");
    assert_eq!(replicas.iter().filter(|replica| is_leader(replica)).count(), 1);
    serve();
}

/// As a Deployment does it with `maxUnavailable: 0` and a `preStop` pause: the new one is ready before the old one is
/// taken off the balancer, and the old one is told to end after that.
#[test]
fn a_rolling_replacement_of_all_replicas_fails_no_request() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("rolling");
    let authority = Authority::new();
    let host = "rolling.example.com";
    let pair = authority.issue(host);
    plane.apply(&Backend::start("rolling").manifest("rolling", "web"));
    create_secret(plane, "rolling", "tls", &pair);
    plane.apply(&ingress("rolling", "web", host, "tls"));
    let start = || {
        let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=rolling"]);
        gateway.expect_https(&authority, host, &pair.certificate);
        gateway
    };
    let mut replicas = vec![start(), start()];
    let targets = |replicas: &[Gateway]| replicas.iter().map(Gateway::https_address).collect::<Vec<_>>();
    let balancer = Balancer::start(&targets(&replicas));

    let (stop, asked) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let ask = |client: &mut Client| {
        let answer = client.get(host, "/");
        assert_eq!((answer.status, answer.text().as_str()), (200, "rolling"));
        answer.field("connection").is_some_and(|field| field.eq_ignore_ascii_case("close"))
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            // A connection for each request, and connections that are kept until the gateway says otherwise.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    ask(&mut Client::tls(balancer.address(), Some(host)));
                    asked[0].fetch_add(1, Ordering::Relaxed);
                }
            });
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut client = Client::tls(balancer.address(), Some(host));
                    while !ask(&mut client) && !stop.load(Ordering::Relaxed) {
                        asked[1].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let guard = StopAtEnd(&stop);
        for _ in 0..2 {
            replicas.push(start());
            let mut old = replicas.remove(0);
            let before = asked.each_ref().map(|asked| asked.load(Ordering::Relaxed));
            balancer.set(&targets(&replicas));
            old.end();
            eventually("no load after the replacement", || {
                let now = asked.each_ref().map(|asked| asked.load(Ordering::Relaxed));
                match now[0] > before[0] + 5 && now[1] > before[1] + 5 {
                    true => Ok(()),
                    false => Err(format!("{before:?}, then {now:?}")),
                }
            });
        }
        drop(guard);
    });
}

/// Ends the load also where the test fails, which would wait for it otherwise.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
