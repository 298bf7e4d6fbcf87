//! Tunnels of node proxies through the real binary: who gets one, where to, and when it ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use http::{Method, Uri};
use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::PemPair;
use portcullis::testing::client::Client;
use portcullis::testing::hbone::{Answer, NodeProxy};
use portcullis::testing::tcp::TcpBackend;
use portcullis::testing::{PATIENCE, eventually, eventually_async};

use super::setup::{
    Ca, GATEWAY, JOB, Mesh, WEB, authorization, authorization_rule, bundle, peer_authentication,
};
use crate::gateway::Setup;

async fn proxy(mesh: &Mesh, pair: &PemPair) -> NodeProxy {
    NodeProxy::connect(mesh.hbone, Some(pair)).await.unwrap()
}

/// Waits until a new tunnel gets this answer.
async fn waits_for(mesh: &Mesh, pair: &PemPair, to: SocketAddr, status: u16) -> Answer {
    for _ in 0..1000 {
        let answer = proxy(mesh, pair).await.tunnel(to).await;
        if answer.status == status {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never answered {status}");
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_each_side_ends_by_itself() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    let mut proxy = proxy(&mesh, &web).await;
    let mut tunnels = Vec::new();
    for n in 0..20 {
        let mut tunnel = proxy.tunnel(backend.address).await;
        assert_eq!(tunnel.status, 200);
        tunnel.echo(&format!("number {n}")).await.unwrap();
        tunnels.push(tunnel);
    }
    for mut tunnel in tunnels {
        tunnel.echo("still there").await.unwrap();
        // The workload speaks last.
        tunnel.finish();
        assert_eq!(tunnel.rest().await.unwrap(), b"bye");
    }
    let connect = |log: &str| log.lines().find(|line| line.contains("CONNECT")).map(str::to_owned);
    eventually_async("a line in the access log", || connect(&mesh.gateway.log()).is_some()).await;
    let line = connect(&mesh.gateway.log()).unwrap();
    for part in
        ["cluster.local/ns/shop/sa/web", "cluster.local/ns/default/sa/web", &backend.address.to_string()]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    let metrics = mesh.gateway.admin("/metrics");
    assert!(metrics.contains("portcullis_hbone_tunnels_total{result=\"opened\"} 20"), "{metrics}");
    eventually("no tunnel is left", || mesh.gateway.admin("/metrics").contains("portcullis_hbone_tunnels 0"));
}

#[tokio::test]
async fn much_passes_and_a_side_that_takes_nothing_stops_the_other() {
    let (take, told) = mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let backend = TcpBackend::serve(listener, move |mut connection| {
        told.lock().unwrap().recv().unwrap();
        let mut all = Vec::new();
        connection.read_to_end(&mut all).unwrap();
        connection.write_all(&all).unwrap();
    });
    let mesh = Mesh::before(backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    let mut proxy = proxy(&mesh, &web).await;
    let mut tunnel = proxy.tunnel(backend.address).await;
    let mut sent = 0;
    loop {
        let room = tunnel.room(64 * 1024, Duration::from_millis(300)).await;
        if room == 0 {
            break;
        }
        tunnel.send_now(vec![b'x'; room]);
        sent += room;
        assert!(sent < 64 * 1024 * 1024, "nothing ever holds the client back");
    }
    // Another tunnel of the same connection is not held up.
    let other = TcpBackend::echo();
    let mut free = proxy.tunnel(other.address).await;
    free.echo("free").await.unwrap();
    take.send(()).unwrap();
    tunnel.send(b"the end").await;
    tunnel.finish();
    // The way back is slower than the workload, too.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let back = tunnel.rest().await.unwrap();
    assert_eq!(back.len(), sent + 7);
    assert!(back.ends_with(b"xthe end"));
}

#[tokio::test]
async fn a_long_download_into_a_small_window_is_no_flood() {
    const LENGTH: usize = 64 * 1024 * 1024;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let backend = TcpBackend::serve(listener, |mut connection| {
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..LENGTH / piece.len() {
            connection.write_all(&piece).unwrap();
        }
    });
    let mesh = Mesh::before(backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    let mut tunnel = proxy(&mesh, &web).await.tunnel(backend.address).await;
    let mut got = 0;
    while got < LENGTH {
        got += tunnel.receive(64 * 1024).await.unwrap().len();
    }
    assert!(tunnel.rest().await.unwrap().is_empty());
}

#[tokio::test]
async fn only_connect_to_a_workload_of_ours_is_served() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    let mut proxy = proxy(&mesh, &web).await;
    for method in [Method::GET, Method::POST] {
        let uri: Uri = format!("https://{}/", backend.address).parse().unwrap();
        let mut answer = proxy.ask(method, uri).await.unwrap();
        assert_eq!(answer.status, 400);
        assert_eq!(answer.rest().await.unwrap(), b"only CONNECT is served here\n");
    }
    let port = backend.address.port();
    for authority in [
        format!("10.255.0.1:{port}"),
        format!("127.0.0.2:{port}"),
        format!("localhost:{port}"),
        "127.0.0.1:15008".into(),
        "127.0.0.1:15001".into(),
        "127.0.0.1:15006".into(),
        format!("127.0.0.1:{}", mesh.hbone.port()),
        mesh.gateway.admin.to_string(),
        mesh.gateway.http.to_string(),
        mesh.port.to_string(),
    ] {
        let answer = proxy.open(&authority).await.unwrap();
        assert_eq!(answer.status, 400, "{authority}");
    }
    assert_eq!(backend.accepted(), 0);
    // Nobody is there.
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    assert_eq!(proxy.tunnel(gone).await.status, 503);
    // The connection is as good as ever.
    proxy.tunnel(backend.address).await.echo("fine").await.unwrap();
}

#[tokio::test]
async fn without_a_certificate_there_is_no_handshake() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &[]);
    let refused = match NodeProxy::connect(mesh.hbone, None).await {
        Err(_) => true,
        Ok(mut proxy) => proxy.open(&backend.address.to_string()).await.is_err(),
    };
    assert!(refused);
    for foreign in [Ca::new().issue(WEB), mesh.ca.issue("spiffe://partner.example/ns/shop/sa/web")] {
        let refused = match NodeProxy::connect(mesh.hbone, Some(&foreign)).await {
            Err(_) => true,
            Ok(mut proxy) => proxy.open(&backend.address.to_string()).await.is_err(),
        };
        assert!(refused);
    }
    // In the clear there is nothing either.
    let mut plain = Client::plain(mesh.hbone);
    plain.send(format!("CONNECT {} HTTP/1.1\r\nHost: a\r\n\r\n", backend.address));
    let answer = plain.wire.take_all();
    assert!(!answer.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&answer));
    assert_eq!(backend.accepted(), 0);
}

#[tokio::test]
async fn a_tunnel_of_nobody_has_no_identity_where_it_is_let_in() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &["hbone-client-certificate: false"]);
    let web = mesh.ca.issue(WEB);
    let mut nobody = NodeProxy::connect(mesh.hbone, None).await.unwrap();
    nobody.tunnel(backend.address).await.echo("PERMISSIVE").await.unwrap();
    mesh.policy(&peer_authentication("STRICT"));
    eventually_async("STRICT", || {
        mesh.gateway.admin("/api/v1/policies").contains("istio_converted_static_strict")
    })
    .await;
    assert_eq!(nobody.tunnel(backend.address).await.status, 401);
    assert_eq!(proxy(&mesh, &web).await.tunnel(backend.address).await.status, 200);
    mesh.policy(&authorization("ALLOW", "*"));
    waits_for(&mesh, &web, backend.address, 200).await.echo("known").await.unwrap();
    assert_eq!(nobody.tunnel(backend.address).await.status, 401);
}

#[tokio::test]
async fn policy_is_about_the_application_and_not_about_the_tunnel() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &[]);
    let (web, job) = (mesh.ca.issue(WEB), mesh.ca.issue(JOB));
    mesh.policy(&authorization("ALLOW", "cluster.local/ns/shop/sa/web"));
    let mut refused = waits_for(&mesh, &job, backend.address, 401).await;
    let text = String::from_utf8(refused.rest().await.unwrap()).unwrap();
    assert_eq!(text, "no policy of the workload allows this client\n");
    let reason = "tunnel denied: allow policies exist, but none allowed";
    eventually_async("the reason in the log", || mesh.gateway.log().contains(reason)).await;
    let before = backend.accepted();
    assert_eq!(proxy(&mesh, &job).await.tunnel(backend.address).await.status, 401);
    assert_eq!(backend.accepted(), before, "nothing reaches the workload that is refused");
    assert_eq!(proxy(&mesh, &web).await.tunnel(backend.address).await.status, 200);
    // The port of the tunnel is no port of the workload.
    let ports =
        |port: u16| authorization_rule("ALLOW", &format!("to: [{{operation: {{ports: [\"{port}\"]}}}}]"));
    mesh.policy(&ports(mesh.hbone.port()));
    waits_for(&mesh, &web, backend.address, 401).await;
    mesh.policy(&ports(backend.address.port()));
    waits_for(&mesh, &job, backend.address, 200).await;
}

#[tokio::test]
async fn a_change_of_policy_ends_the_tunnels_that_it_denies() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &[]);
    let (web, job) = (mesh.ca.issue(WEB), mesh.ca.issue(JOB));
    let (mut of_web, mut of_job) = (proxy(&mesh, &web).await, proxy(&mesh, &job).await);
    let mut stays = of_web.tunnel(backend.address).await;
    let mut denied = of_job.tunnel(backend.address).await;
    let mut twin = of_job.tunnel(backend.address).await;
    mesh.policy(&authorization("DENY", "cluster.local/ns/nowhere/sa/nobody"));
    eventually_async("the policy", || mesh.gateway.admin("/api/v1/policies").contains("default/a")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for tunnel in [&mut stays, &mut denied, &mut twin] {
        tunnel.echo("an unrelated policy ends nothing").await.unwrap();
    }
    twin.reset();
    mesh.policy(&authorization("DENY", "cluster.local/ns/batch/sa/job"));
    // Its twin that ended did not take it along; it is reset, not ended.
    assert!(denied.rest().await.is_err());
    stays.echo("nobody else is touched").await.unwrap();
    assert_eq!(of_job.tunnel(backend.address).await.status, 401, "the connection lives, and gets no tunnel");
}

#[tokio::test]
async fn a_workload_that_breaks_off_is_told_from_one_that_ends() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let backend = TcpBackend::serve(listener, |mut connection| {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        // Closing with bytes unread resets.
    });
    let mesh = Mesh::before(backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    let mut tunnel = proxy(&mesh, &web).await.tunnel(backend.address).await;
    tunnel.send(&[b'x'; 1000]).await;
    let error = tunnel.rest().await.unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::CONNECT_ERROR));
}

#[tokio::test]
async fn a_client_that_gives_up_is_told_to_the_workload() {
    let (ended, told) = mpsc::channel();
    let ended = std::sync::Mutex::new(ended);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let backend = TcpBackend::serve(listener, move |mut connection| {
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let read = connection.read_to_end(&mut Vec::new());
        ended.lock().unwrap().send(read.map_err(|error| error.kind())).unwrap();
    });
    let mesh = Mesh::before(backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    let mut proxy = proxy(&mesh, &web).await;
    let mut tunnel = proxy.tunnel(backend.address).await;
    tunnel.send(b"half a").await;
    tunnel.reset();
    let ended = tokio::task::spawn_blocking(move || told.recv_timeout(PATIENCE).unwrap()).await.unwrap();
    assert_eq!(ended, Err(std::io::ErrorKind::ConnectionReset), "an end would pass for a whole message");
}

#[tokio::test]
async fn silence_ends_a_tunnel_and_use_keeps_it() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &["hbone-idle-timeout: 1s"]);
    let web = mesh.ca.issue(WEB);
    let mut proxy = proxy(&mesh, &web).await;
    let (mut silent, mut used) = (proxy.tunnel(backend.address).await, proxy.tunnel(backend.address).await);
    for _ in 0..8 {
        used.echo("tick").await.unwrap();
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(silent.rest().await.is_err());
    used.echo("tock").await.unwrap();
}

#[tokio::test]
async fn streams_are_limited() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &["http2-max-concurrent-streams: 2"]);
    let web = mesh.ca.issue(WEB);
    let mut proxy = proxy(&mesh, &web).await;
    let first = proxy.tunnel(backend.address).await;
    let mut second = proxy.tunnel(backend.address).await;
    let to = backend.address.to_string();
    let third = tokio::time::timeout(Duration::from_millis(300), proxy.open(&to));
    assert!(third.await.is_err(), "a third one has to wait");
    drop(first);
    second.echo("the second is as it was").await.unwrap();
    let mut third = proxy.tunnel(backend.address).await;
    third.echo("the third has its turn").await.unwrap();
}

#[tokio::test]
async fn when_the_gateway_ends_it_says_so_and_lets_tunnels_finish() {
    let backend = TcpBackend::echo();
    let mut mesh = Mesh::before(backend.address, &["worker-shutdown-timeout: 20s"]);
    let web = mesh.ca.issue(WEB);
    let mut proxy = proxy(&mesh, &web).await;
    let mut tunnel = proxy.tunnel(backend.address).await;
    tunnel.echo("before").await.unwrap();
    mesh.gateway.terminate();
    eventually_async("draining", || mesh.gateway.log().contains("draining")).await;
    let to = backend.address.to_string();
    // Once told, a client opens no more; this one asks until it has been told.
    let mut refused = false;
    for _ in 0..200 {
        refused = proxy.open(&to).await.is_err();
        if refused {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(refused, "the client is told to go");
    tunnel.echo("meanwhile").await.unwrap();
    tunnel.finish();
    assert_eq!(tunnel.rest().await.unwrap(), b"bye");
    let status = tokio::task::spawn_blocking(move || mesh.gateway.wait()).await.unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn the_certificate_comes_from_a_folder_and_is_replaced_while_it_runs() {
    let ca = Ca::new();
    let folder = tempfile::tempdir().unwrap();
    let place = |pair: &PemPair| {
        // As one who writes without care: half of it is old for a moment.
        std::fs::write(folder.path().join("cert-chain.pem"), pair.certificates_pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), &pair.key_pem).unwrap();
    };
    place(&ca.issue(GATEWAY));
    std::fs::write(folder.path().join("root-cert.pem"), ca.root()).unwrap();
    let path = folder.path().display();
    let setup = Setup::new()
        .setting(&format!("hbone-certificate: {path}"))
        .setting(&format!("mesh-trust-bundle: {path}"));
    let backend = TcpBackend::echo();
    let mesh = Mesh::start(setup, ca, backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    let shown = || Client::try_tls(mesh.hbone, None, &["h2"]).map(|client| client.wire.certificate());
    let first = shown().unwrap();
    let mut open = proxy(&mesh, &web).await.tunnel(backend.address).await;
    place(&mesh.ca.issue(GATEWAY));
    eventually_async("the new certificate", || shown().is_ok_and(|certificate| certificate != first)).await;
    open.echo("what is open stays").await.unwrap();
    assert_eq!(proxy(&mesh, &web).await.tunnel(backend.address).await.status, 200);

    let second = shown().unwrap();
    std::fs::write(folder.path().join("key.pem"), "nothing").unwrap();
    let reported = || mesh.gateway.admin("/api/v1/diagnostics").contains("the last good one stays");
    eventually_async("a finding", reported).await;
    assert_eq!(shown().unwrap(), second);
    assert_eq!(proxy(&mesh, &web).await.tunnel(backend.address).await.status, 200);
}

#[tokio::test]
async fn without_roots_or_a_certificate_no_tunnel_is_opened() {
    let backend = TcpBackend::echo();
    let ca = Ca::new();
    let setup = Setup::new().manifest(bundle(&ca.root(), ""));
    let mesh = Mesh::start(setup, ca, backend.address, &[]);
    let web = mesh.ca.issue(WEB);
    assert!(NodeProxy::connect(mesh.hbone, Some(&web)).await.is_err());
    assert!(mesh.gateway.admin("/api/v1/diagnostics").contains("HboneCertificateMissing"));
}

#[test]
fn flips_during_a_storm_leave_no_denied_tunnel_open() {
    let backend = TcpBackend::echo();
    let mesh = Mesh::before(backend.address, &[]);
    let job = mesh.ca.issue(JOB);
    let deny = authorization("DENY", "cluster.local/ns/batch/sa/job");
    let (stop, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let storms: Vec<_> = (0..3)
        .map(|_| {
            let (stop, opened, job) = (stop.clone(), opened.clone(), job.clone());
            let (address, to) = (mesh.hbone, backend.address);
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(storm(address, &job, to, &stop, &opened));
            })
        })
        .collect();
    mesh.flip(&deny, &job);
    stop.store(true, Ordering::SeqCst);
    for storm in storms {
        storm.join().unwrap();
    }
    assert!(opened.load(Ordering::SeqCst) > 10, "some were admitted");
    eventually("no tunnel is left", || mesh.gateway.admin("/metrics").contains("portcullis_hbone_tunnels 0"));
}

/// Opens tunnels until it is told that the last policy is in force; then each of them must have ended.
async fn storm(address: SocketAddr, pair: &PemPair, to: SocketAddr, stop: &AtomicBool, opened: &AtomicUsize) {
    let (mut proxies, mut open) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::SeqCst) {
        let mut proxy = NodeProxy::connect(address, Some(pair)).await.unwrap();
        for _ in 0..4 {
            let answer = proxy.tunnel(to).await;
            match answer.status {
                200 => {
                    opened.fetch_add(1, Ordering::SeqCst);
                    open.push(answer);
                }
                401 => {}
                other => panic!("{other}"),
            }
        }
        proxies.push(proxy);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for mut tunnel in open {
        assert!(tunnel.rest().await.is_err(), "a tunnel that is denied is reset");
    }
    drop(proxies);
}

#[test]
fn a_denied_request_is_not_mistaken_for_a_tunnel() {
    // What the HTTP ports make of CONNECT has not changed.
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let answer =
        mesh.plain().ask(format!("CONNECT {} HTTP/1.1\r\nHost: a.example\r\n\r\n", backend.address()));
    assert_eq!(answer.status, 405);
}
