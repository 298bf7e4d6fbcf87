//! Client certificates at the edge (`auth-tls-*`): who is let in, what backends are told, and what becomes of open
//! connections and sessions when authorities change.

mod hostile;
mod setup;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::eventually;
use portcullis::testing::grpc::{Grpc, message_of};
use portcullis::testing::http2::{Http2, post};
use portcullis::testing::message::Request;

use crate::gateway::Setup;
use crate::manifests::Ingress;
use setup::{A, B, Edge, OPEN, ca, client, web};

#[test]
fn who_shows_no_good_certificate_gets_400_over_every_protocol() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let backend = Backend::echo();
    let edge = Edge::before(&backend).authorities(&root.pem()).host(A, &[("secret", "default/ca")]).start();
    let (good, bad) = (client(&root, "web"), client(&other, "web"));
    for version in ["1.2", "1.3"] {
        for http in ["--http1.1", "--http2"] {
            let status = |pair: Option<&PemPair>| edge.curl(A, version, http, pair);
            assert_eq!(status(None), 400, "{version} {http}");
            assert_eq!(status(Some(&bad)), 400, "{version} {http}");
            assert_eq!(status(Some(&good)), 200, "{version} {http}");
        }
    }
    assert_eq!(backend.requests().len(), 4, "nothing else has reached it");
    for request in backend.requests() {
        assert_eq!(request.field("ssl-client-verify"), Some("SUCCESS"));
        assert_eq!(request.field("ssl-client-subject-dn"), Some("CN=web"));
        assert_eq!(request.field("ssl-client-issuer-dn"), Some("CN=root"));
        assert_eq!(request.field("ssl-client-cert"), None);
    }
    // What there is and what there is not is not for strangers to know.
    let missing = edge.gateway.tls_client(A).get(A, "/no/such");
    assert_eq!(missing.status, 400);
    assert!(missing.text().contains("none was shown"), "{}", missing.text());
    let text = edge.show(A, &bad).get(A, "/").text();
    assert!(text.contains("was not accepted"), "{text}");
    // The connection stays, as nothing is wrong with it.
    let mut kept = edge.show(A, &good);
    assert_eq!([kept.get(A, "/").status, kept.get(A, "/").status], [200, 200]);
}

#[test]
fn modes_change_while_it_runs() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let (good, bad) = (client(&root, "web"), client(&other, "web"));
    let backend = Backend::echo();
    let edge = Edge::before(&backend).authorities(&root.pem()).host(A, &[("secret", "ca")]).start();
    for (mode, expected) in [
        ("off", [200, 200, 200]),
        ("on", [400, 400, 200]),
        ("optional", [200, 400, 200]),
        ("optional_no_ca", [200, 200, 200]),
        ("nonsense", [400, 400, 200]),
    ] {
        edge.rewrite(A, &[("secret", "ca"), ("verify-client", mode), ("verify-depth", "2")]);
        eventually(mode, || {
            let anonymous = edge.gateway.tls_client(A).get(A, "/").status;
            [anonymous, edge.show(A, &bad).get(A, "/").status, edge.show(A, &good).get(A, "/").status]
                == expected
        });
    }
    edge.rewrite(A, &[("secret", "ca"), ("verify-client", "optional_no_ca")]);
    eventually("optional_no_ca", || edge.show(A, &bad).get(A, "/").status == 200);
    edge.show(A, &bad).get(A, "/");
    let told = backend.requests().pop().unwrap();
    assert_eq!(told.field("ssl-client-verify"), Some("FAILED:unable to get local issuer certificate"));
    assert_eq!(told.field("ssl-client-subject-dn"), Some("CN=web"));
    edge.gateway.tls_client(A).get(A, "/");
    let told = backend.requests().pop().unwrap();
    assert_eq!(told.field("ssl-client-verify"), Some("NONE"));
    assert_eq!(told.field("ssl-client-subject-dn"), None);
    // An expired certificate is not one of an unknown authority.
    let expired = other.leaf(&[]).for_clients().valid(1_000_000, 2_000_000).issue();
    assert_eq!(edge.show(A, &expired).get(A, "/").status, 400);
    assert!(edge.reasons().contains(&"UnverifiedClients".to_owned()));
}

#[test]
fn chains_are_followed_as_far_as_the_depth_says() {
    let root = Authority::new("root");
    let first = root.intermediate("first");
    let second = first.intermediate("second");
    let backend = Backend::echo();
    let edge = Edge::before(&backend).authorities(&root.pem()).host(A, &[("secret", "ca")]).start();
    let status = |pair: &PemPair| edge.show(A, pair).get(A, "/").status;
    assert_eq!(status(&client(&first, "web")), 200);
    assert_eq!(status(&client(&second, "web")), 400);
    edge.rewrite(A, &[("secret", "ca"), ("verify-depth", "2")]);
    eventually("the other depth", || status(&client(&second, "web")) == 200);
}

#[test]
fn the_error_page_takes_the_place_of_400() {
    let root = Authority::new("root");
    let backend = Backend::echo();
    let page = "https://www.example.com/no?from=$host$request_uri";
    let edge = Edge::before(&backend)
        .authorities(&root.pem())
        .host(A, &[("secret", "ca"), ("error-page", page)])
        .start();
    let answer = edge.gateway.tls_client(A).get(A, "/x?y=z");
    assert_eq!(answer.status, 302);
    assert_eq!(answer.field("location"), Some("https://www.example.com/no?from=a.example/x?y=z"));
    let bad = client(&Authority::new("other"), "web");
    assert_eq!(edge.show(A, &bad).get(A, "/").status, 302);
    assert_eq!(edge.show(A, &client(&root, "web")).get(A, "/").status, 200);
    // A page of the host itself is for clients with a certificate too: no redirect leads in a circle.
    edge.rewrite(A, &[("secret", "ca"), ("error-page", "/no-certificate")]);
    eventually("the other page", || {
        edge.gateway.tls_client(A).get(A, "/").field("location") == Some("/no-certificate")
    });
    assert_eq!(edge.gateway.tls_client(A).get(A, "/no-certificate").status, 400);
    edge.rewrite(A, &[("secret", "ca"), ("error-page", "https://A.example:443/no-certificate")]);
    eventually("the same page as a URL", || {
        edge.gateway
            .tls_client(A)
            .get(A, "/")
            .field("location")
            .is_some_and(|page| page.starts_with("https:"))
    });
    assert_eq!(edge.gateway.tls_client(A).get(A, "/no-certificate?x").status, 400);
}

#[test]
fn the_subject_must_match_and_the_pattern_changes_while_it_runs() {
    let root = Authority::new("root");
    let (web_, app) = (client(&root, "web"), client(&root, "app"));
    let backend = Backend::echo();
    let edge = Edge::before(&backend)
        .authorities(&root.pem())
        .host(A, &[("secret", "ca"), ("match-cn", "CN=app")])
        .start();
    let status = |pair: &PemPair| edge.show(A, pair).get(A, "/").status;
    assert_eq!((status(&app), status(&web_)), (200, 403));
    assert_eq!(edge.gateway.tls_client(A).get(A, "/").status, 400, "a certificate is asked for first");
    let mut open = edge.show(A, &web_);
    assert_eq!(open.get(A, "/").status, 403);
    edge.rewrite(A, &[("secret", "ca"), ("match-cn", "^CN=(nobody|web)$")]);
    eventually("the other pattern", || status(&web_) == 200);
    assert_eq!(open.get(A, "/").status, 200, "an open connection goes by it too");
    assert_eq!(status(&app), 403);
    edge.rewrite(A, &[("secret", "ca"), ("match-cn", "CN=web"), ("verify-client", "optional")]);
    eventually("the optional certificate", || edge.gateway.tls_client(A).get(A, "/").status == 403);
    edge.rewrite(A, &[("secret", "ca"), ("match-cn", "(?!x)")]);
    eventually("a pattern that cannot be used", || status(&web_) == 403);
    assert!(edge.reasons().contains(&"InvalidAnnotation".to_owned()));
}

#[test]
fn what_clients_say_about_certificates_is_never_passed_on() {
    let root = Authority::new("root");
    let backend = Backend::echo();
    let asks = [("secret", "ca"), ("verify-client", "optional"), ("pass-certificate-to-upstream", "true")];
    let edge = Edge::before(&backend)
        .setting("enable-underscores-in-headers: true")
        .authorities(&root.pem())
        .host(A, &asks)
        .ingress(web("open", OPEN).path("Prefix", "/", "web").annotation("ssl-redirect", "false"))
        .start();
    let request = |host: &str| {
        let names = ["verify", "subject-dn", "issuer-dn", "cert"];
        let spell = |name: &str| {
            format!(
                "SSL-Client-{name}: SUCCESS\r\nssl_client_{}: SUCCESS\r\nssl.client-{name}: x\r\n",
                name.replace('-', "_")
            )
        };
        let forged: String = names.map(spell).concat();
        format!("GET / HTTP/1.1\r\nHost: {host}\r\n{forged}\r\n")
    };
    let told = |request: &Request| {
        let all = request.fields.0.iter().filter(|(name, _)| name.to_lowercase().contains("client"));
        all.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    edge.gateway.tls_client(OPEN).ask(request(OPEN));
    edge.gateway.client().ask(request(OPEN));
    edge.gateway.tls_client(A).ask(request(A));
    let pair = client(&root, "web");
    edge.show(A, &pair).ask(request(A));
    let requests = backend.requests();
    let [open, plain, anonymous, shown] = &requests[..] else { panic!("{requests:#?}") };
    assert_eq!(told(open), [] as [String; 0]);
    assert_eq!(told(plain), [] as [String; 0]);
    assert_eq!(told(anonymous), ["ssl-client-verify: NONE"]);
    assert_eq!(shown.field("ssl-client-verify"), Some("SUCCESS"));
    let certificate = shown.field("ssl-client-cert").unwrap();
    assert!(certificate.starts_with("-----BEGIN%20CERTIFICATE-----%0A"), "{certificate}");
    let pem = certificate.replace("%0A", "\n").replace("%20", " ").replace("%2B", "+").replace("%2F", "/");
    let lines = |pem: &str| pem.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&pem.replace("%3D", "=")), lines(&pair.leaf_pem));
    assert_eq!(told(shown).len(), 4);
}

#[test]
fn without_authorities_the_host_is_closed() {
    let root = Authority::new("root");
    let good = client(&root, "web");
    let backend = Backend::echo();
    let edge = Edge::before(&backend).host(A, &[("secret", "ca")]).start();
    let statuses = || {
        [
            edge.gateway.tls_client(A).get(A, "/").status,
            edge.show(A, &good).get(A, "/").status,
            edge.gateway.client().get(A, "/").status,
        ]
    };
    assert_eq!(statuses(), [403, 403, 403]);
    assert!(edge.reasons().contains(&"SecretNotFound".to_owned()));
    edge.gateway.write("ca.yaml", &ca("ca", &root.pem(), None));
    eventually("the authority", || statuses() == [400, 200, 308]);
    assert!(edge.reasons().is_empty(), "{:?}", edge.reasons());
    // A certificate for the gateway itself is nothing to verify clients with.
    edge.gateway.write("ca.yaml", &crate::manifests::secret("ca", &root.leaf(&[A]).issue()));
    eventually("a Secret without authorities", || statuses() == [403, 403, 403]);
    assert!(edge.reasons().contains(&"ClientCaMissing".to_owned()));
    // One with both is.
    let both = crate::manifests::secret("ca", &root.leaf(&[A]).issue());
    let indented: String = root.pem().lines().map(|line| format!("    {line}\n")).collect();
    edge.gateway.write("ca.yaml", &format!("{both}  ca.crt: |\n{indented}"));
    eventually("both in one", || statuses() == [400, 200, 308]);
    edge.gateway.write("ca.yaml", &ca("ca", &root.pem(), Some("nonsense")));
    eventually("a list that cannot be read", || statuses() == [403, 403, 403]);
    assert!(backend.requests().iter().all(|request| request.field("ssl-client-verify") == Some("SUCCESS")));
}

#[test]
fn nobody_gets_in_in_the_clear() {
    let root = Authority::new("root");
    let backend = Backend::echo();
    let edge = Edge::before(&backend)
        .setting("use-forwarded-headers: true")
        .setting("proxy-real-ip-cidr: 127.0.0.0/8")
        .authorities(&root.pem())
        .ingress(web("solver", A).path("Prefix", "/.well-known/acme-challenge/x", "web"))
        .host(A, &[("secret", "ca"), ("match-cn", "CN=web")])
        .start();
    let mut plain = edge.gateway.client();
    let redirect = plain.get(A, "/x");
    assert_eq!((redirect.status, redirect.field("location")), (308, Some("https://a.example/x")));
    assert_eq!(plain.get(A, "/.well-known/acme-challenge/x").status, 200, "the challenge of the host");
    assert_eq!(plain.get(A, "/.well-known/acme-challenge/y").status, 308);
    // Whatever is said about TLS that ended elsewhere: nobody has seen a certificate.
    let claimed = format!("GET / HTTP/1.1\r\nHost: {A}\r\nX-Forwarded-Proto: https\r\n\r\n");
    assert_eq!(plain.ask(claimed).status, 403);
    assert_eq!(edge.gateway.tls_client(A).get(A, "/.well-known/acme-challenge/x").status, 400);
    edge.rewrite_with(A, &[("secret", "ca")], |ingress| ingress.annotation("ssl-redirect", "false"));
    eventually("no redirect", || edge.gateway.client().get(A, "/x").status == 403);
    assert_eq!(edge.gateway.client().get(A, "/.well-known/acme-challenge/x").status, 200);
    assert_eq!(backend.requests().len(), 2);
}

#[tokio::test]
async fn open_connections_are_judged_by_the_authorities_of_now() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (before, after) = (client(&old, "web"), client(&new, "web"));
    let backend = Backend::echo();
    let edge = Edge::before(&backend).authorities(&old.pem()).host(A, &[("secret", "ca")]).start();
    let mut http1 = edge.show(A, &before);
    let mut http2 = Http2::mutual(edge.gateway.https, A, &before).await;
    let mut nobody = edge.gateway.tls_client(A);
    assert_eq!((http1.get(A, "/").status, http2.get(A, "/").await.unwrap().status), (200, 200));
    assert_eq!(nobody.get(A, "/").status, 400);

    // Both: who was good still is, on the same connection.
    edge.gateway.write("ca.yaml", &ca("ca", &(old.pem() + &new.pem()), None));
    eventually("the new authority", || edge.show(A, &after).get(A, "/").status == 200);
    assert_eq!((http1.get(A, "/").status, http2.get(A, "/").await.unwrap().status), (200, 200));
    // Who was asked in the name of others may have another certificate.
    assert_eq!(nobody.get(A, "/").status, 421);

    edge.gateway.write("ca.yaml", &ca("ca", &new.pem(), None));
    eventually("the end of the old authority", || edge.show(A, &before).get(A, "/").status == 400);
    assert_eq!((http1.get(A, "/").status, http2.get(A, "/").await.unwrap().status), (421, 421));
    assert_eq!(edge.show(A, &after).get(A, "/").status, 200);

    // A list comes, and then one with the client on it.
    let mut kept = Http2::mutual(edge.gateway.https, A, &after).await;
    edge.gateway.write("ca.yaml", &ca("ca", &new.pem(), Some(&new.revocation_list(&[1]))));
    eventually("a list", || {
        edge.show(A, &client(&new.intermediate("below"), "web")).get(A, "/").status == 400
    });
    assert_eq!(kept.get(A, "/").await.unwrap().status, 200);
    edge.gateway.write("ca.yaml", &ca("ca", &new.pem(), Some(&new.revocation_list(&[setup::SERIAL]))));
    eventually("the revocation", || edge.show(A, &after).get(A, "/").status == 400);
    assert_eq!(kept.get(A, "/").await.unwrap().status, 421);

    // A host that asks for nothing, and one that begins to.
    edge.rewrite(A, &[]);
    eventually("an open host", || edge.gateway.tls_client(A).get(A, "/").status == 200);
    assert_eq!(kept.get(A, "/").await.unwrap().status, 200);
    let mut open = edge.gateway.tls_client(A);
    assert_eq!(open.get(A, "/").status, 200);
    edge.rewrite(A, &[("secret", "ca")]);
    eventually("a closed host", || edge.gateway.tls_client(A).get(A, "/").status == 400);
    assert_eq!(open.get(A, "/").status, 421, "it was never asked");
}

#[tokio::test]
async fn a_connection_for_one_host_is_none_for_a_host_that_asks_for_more() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let backend = Backend::echo();
    let same = "c.example";
    let edge = Edge::before(&backend)
        .authorities(&one.pem())
        .manifest(ca("two", &two.pem(), None))
        .host(A, &[("secret", "ca")])
        .host(B, &[("secret", "two")])
        .host(same, &[("secret", "ca"), ("match-cn", "CN=web")])
        .host(OPEN, &[])
        .start();
    let pair = client(&one, "web");
    let mut http2 = Http2::mutual(edge.gateway.https, A, &pair).await;
    for (host, status) in [(A, 200), (same, 200), (B, 421), (OPEN, 200), (A, 200)] {
        assert_eq!(http2.get(host, "/").await.unwrap().status, status, "{host}");
    }
    let mut http2 = Http2::mutual(edge.gateway.https, OPEN, &pair).await;
    for (host, status) in [(OPEN, 200), (A, 421), (B, 421), (same, 421)] {
        assert_eq!(http2.get(host, "/").await.unwrap().status, status, "{host}");
    }
    let mut http1 = edge.show(B, &client(&two, "web"));
    assert_eq!(
        (http1.get(B, "/").status, http1.get(A, "/").status, http1.get(same, "/").status),
        (200, 421, 421)
    );
    // Without a name the default host is asked for, which asks for nothing.
    let mut nameless = portcullis::testing::client::Client::tls(edge.gateway.https, None);
    assert_eq!(nameless.get(A, "/").status, 421);
    assert!(backend.requests().iter().all(|request| {
        request.field("host") == Some(OPEN) || request.field("ssl-client-verify") == Some("SUCCESS")
    }));
}

/// One request with openssl, showing `pair`; whether the session in `from` went on, and the status.
fn resume(
    address: SocketAddr,
    host: &str,
    version: &str,
    pair: Option<&Path>,
    from: Option<&Path>,
    to: &Path,
) -> (bool, String) {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string(), "-servername", host, "-ign_eof"]);
    command.arg(format!("-{version}")).arg("-sess_out").arg(to);
    if let Some(pair) = pair {
        command.arg("-cert").arg(pair).arg("-key").arg(pair);
    }
    if let Some(from) = from {
        command.arg("-sess_in").arg(from);
    }
    let request = to.with_extension("request");
    fs::write(&request, format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")).unwrap();
    let output = command.stdin(fs::File::open(&request).unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // What openssl says of the session is printed in between.
    let status = text.split("HTTP/1.1 ").nth(1).unwrap_or_else(|| panic!("{text}"));
    (text.contains("\nReused, TLSv1"), status[..3].to_owned())
}

#[test]
fn sessions_go_on_for_the_same_host_and_authorities_alone() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let backend = Backend::echo();
    let edge = Edge::before(&backend)
        .authorities(&one.pem())
        .host(A, &[("secret", "ca")])
        .host(B, &[("secret", "ca")])
        .host(OPEN, &[])
        .start();
    let folder = tempfile::tempdir().unwrap();
    let pair = client(&one, "web");
    let (shown, first, scratch) =
        (folder.path().join("pair"), folder.path().join("first"), folder.path().join("x"));
    fs::write(&shown, pair.leaf_pem.clone() + &pair.key_pem).unwrap();
    for version in ["tls1_2", "tls1_3"] {
        let with = |host: &str, from: Option<&Path>, to: &Path| {
            resume(edge.gateway.https, host, version, Some(&shown), from, to)
        };
        let ok = |resumed: bool| (resumed, "200".to_owned());
        assert_eq!(with(A, None, &first), ok(false), "{version}");
        // The client needs not show it again.
        let again = resume(edge.gateway.https, A, version, None, Some(&first), &scratch);
        assert_eq!(again, ok(true), "{version}");
        assert_eq!(backend.requests().pop().unwrap().field("ssl-client-subject-dn"), Some("CN=web"));
        assert_eq!(with(A, None, &first), ok(false), "{version}");
        assert_eq!(with(B, Some(&first), &scratch), ok(false), "another host, {version}");
        assert_eq!(with(A, None, &first), ok(false), "{version}");
        assert_eq!(with(OPEN, Some(&first), &scratch), ok(false), "a host that asks for nothing, {version}");
        assert_eq!(with(OPEN, None, &first), ok(false), "{version}");
        let open = resume(edge.gateway.https, A, version, None, Some(&first), &scratch);
        assert_eq!(open, (false, "400".into()), "a session without a certificate, {version}");

        // Who showed nothing gets no session to go on with: next time he may show something.
        let nothing = folder.path().join("nothing");
        assert_eq!(resume(edge.gateway.https, A, version, None, None, &nothing), (false, "400".into()));
        if nothing.exists() {
            assert_eq!(with(A, Some(&nothing), &scratch), ok(false), "{version}");
        }

        assert_eq!(with(A, None, &first), ok(false), "{version}");
        edge.gateway.write("ca.yaml", &ca("ca", &(one.pem() + &two.pem()), None));
        let other = client(&two, "web");
        eventually("the other authority", || edge.show(A, &other).get(A, "/").status == 200);
        let again = resume(edge.gateway.https, A, version, None, Some(&first), &scratch);
        assert_eq!(again, (false, "400".into()), "other authorities, {version}");
        edge.gateway.write("ca.yaml", &ca("ca", &one.pem(), None));
        eventually("the first authority", || edge.show(A, &other).get(A, "/").status == 400);
    }
}

#[test]
fn websockets_and_grpc_go_by_the_same() {
    let root = Authority::new("root");
    let pair = client(&root, "web");
    let backend = Backend::on_request(|request, wire| {
        assert_eq!(request.field("ssl-client-verify"), Some("SUCCESS"));
        let _ = wire
            .send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nHI");
        After::Close
    });
    let grpc = Grpc::plain();
    let edge = Edge::before(&backend)
        .authorities(&root.pem())
        .manifest(crate::manifests::service("grpc", &[grpc.address()]))
        .host(A, &[("secret", "ca")])
        .ingress(
            web("b", B)
                .path("Prefix", "/", "grpc")
                .annotation("backend-protocol", "GRPC")
                .annotation("auth-tls-secret", "ca"),
        )
        .start();
    let upgrade = format!("GET / HTTP/1.1\r\nHost: {A}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(edge.gateway.tls_client(A).ask(&upgrade).status, 400);
    let mut shown = edge.show(A, &pair);
    assert_eq!(shown.ask(&upgrade).status, 101);
    assert_eq!(shown.wire.take(2), b"HI");

    let call = async |mut http2: Http2| {
        let mut request = post(B, "/echo");
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        http2.ask(request, message_of(b"hello"), None).await.unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (anonymous, shown) = runtime.block_on(async {
        let anonymous = call(edge.gateway.http2(B).await).await;
        (anonymous, call(Http2::mutual(edge.gateway.https, B, &pair).await).await)
    });
    assert_eq!((anonymous.status, anonymous.field("grpc-status")), (200, Some("13")));
    assert_eq!(shown.status, 200);
    assert_eq!(grpc.requests().len(), 1);
    assert_eq!(grpc.requests()[0].field("ssl-client-subject-dn"), Some("CN=web"));
}

#[test]
fn rules_without_a_host_ask_whoever_they_serve() {
    let root = Authority::new("root");
    let backend = Backend::echo();
    let any = Ingress::hostless("any").path("Prefix", "/", "web").annotation("auth-tls-secret", "ca");
    let edge = Edge::before(&backend).authorities(&root.pem()).host(OPEN, &[]).ingress(any).start();
    let pair = client(&root, "web");
    // The default certificate is for any host unless a setting says otherwise, so the request goes by its Host.
    assert_eq!(edge.gateway.tls_client("unknown.example").get("unknown.example", "/").status, 400);
    assert_eq!(edge.show("unknown.example", &pair).get("unknown.example", "/").status, 200);
    assert_eq!(edge.gateway.tls_client(OPEN).get(OPEN, "/").status, 200);
    assert_eq!(Setup::new().start().tls_client("x.example").get("x.example", "/").status, 404);
}
