//! Rows E1 to E7 and E13 to E20: which certificate a client gets, as Secrets and Ingresses come, change and go.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::super::certificates::Authority;
use super::super::secrets::{create_secret, rotate_secret};
use super::{Site, eventually, plain};

#[test]
fn e01_the_certificate_is_served_when_tls_is_added_to_an_ingress() {
    let Some(site) = Site::start("e01", &[], &[]) else { return };
    site.plain("web", "e01.example.com", "");
    site.gateway.expect_http("e01.example.com", 200);
    site.expect_generated(Some("e01.example.com"));

    let pair = site.authority.issue("e01.example.com");
    create_secret(site.plane, "e01", "tls", &pair);
    site.secured("web", "e01.example.com", "tls");
    site.expect_https("e01.example.com", &pair.certificate);
}

#[test]
fn e02_a_secret_that_was_missing_is_served_without_a_restart() {
    let Some(site) = Site::start("e02", &[], &[]) else { return };
    site.secured("web", "e02.example.com", "tls");
    site.gateway.expect_http("e02.example.com", 308);
    site.expect_generated(Some("e02.example.com"));
    let worker = site.gateway.worker();

    let pair = site.authority.issue("e02.example.com");
    create_secret(site.plane, "e02", "tls", &pair);
    site.expect_https("e02.example.com", &pair.certificate);
    assert_eq!(site.gateway.worker(), worker);
}

#[test]
fn e03_a_name_with_a_trailing_dot_is_the_same_name() {
    let Some(site) = Site::start("e03", &[], &[]) else { return };
    let pair = site.authority.issue("e03.example.com");
    create_secret(site.plane, "e03", "tls", &pair);
    site.secured("web", "e03.example.com", "tls");
    site.expect_https("e03.example.com", &pair.certificate);

    // OpenSSL sends the dot as it is told; client libraries take it off.
    let authority = site.plane.path().join("e03-ca.pem");
    fs::write(&authority, site.authority.pem()).unwrap();
    let mut client = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-verify_return_error", "-servername", "e03.example.com."])
        .args(["-verify_hostname", "e03.example.com", "-connect", &site.gateway.https_address().to_string()])
        .arg("-CAfile")
        .arg(authority)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: e03.example.com.\r\nConnection: close\r\n\r\n";
    client.stdin.take().unwrap().write_all(request).unwrap();
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Verify return code: 0 (ok)") && text.contains("HTTP/1.1 200"), "{output:?}");
}

#[test]
fn e04_a_secret_that_changes_is_served_without_a_restart() {
    let Some(site) = Site::start("e04", &[], &[]) else { return };
    let [old, new] = [(); 2].map(|()| site.authority.issue("e04.example.com"));
    create_secret(site.plane, "e04", "tls", &old);
    site.secured("web", "e04.example.com", "tls");
    site.expect_https("e04.example.com", &old.certificate);
    let worker = site.gateway.worker();

    rotate_secret(site.plane, "e04", "tls", &new);
    site.expect_https("e04.example.com", &new.certificate);
    assert_eq!(site.gateway.worker(), worker);
}

#[test]
fn e05_the_default_certificate_is_served_when_the_secret_is_deleted_and_the_grace_time_is_over() {
    let Some(site) = Site::start("e05", &[("secret-grace-period", "1s")], &[]) else { return };
    let pair = site.authority.issue("e05.example.com");
    create_secret(site.plane, "e05", "tls", &pair);
    site.secured("web", "e05.example.com", "tls");
    site.expect_https("e05.example.com", &pair.certificate);
    let worker = site.gateway.worker();

    site.kubectl(&["delete", "secret", "tls"]);
    site.expect_generated(Some("e05.example.com"));
    assert_eq!(site.gateway.worker(), worker);
}

#[test]
fn e06_a_host_that_is_renamed_does_not_keep_the_certificate_of_the_old_name() {
    let Some(site) = Site::start("e06", &[], &[]) else { return };
    let pair = site.authority.issue("e06.example.com");
    create_secret(site.plane, "e06", "tls", &pair);
    site.secured("web", "e06.example.com", "tls");
    site.expect_https("e06.example.com", &pair.certificate);

    let rename = r#"[{"op": "replace", "path": "/spec/rules/0/host", "value": "e06-new.example.com"}]"#;
    site.kubectl(&["patch", "ingress", "web", "--type=json", "-p", rename]);
    site.gateway.expect_http("e06.example.com", 404);
    site.expect_generated(Some("e06-new.example.com"));
}

#[test]
fn e07_https_ends_when_tls_is_removed_from_the_ingress() {
    let Some(site) = Site::start("e07", &[], &[]) else { return };
    let pair = site.authority.issue("e07.example.com");
    create_secret(site.plane, "e07", "tls", &pair);
    site.secured("web", "e07.example.com", "tls");
    site.gateway.expect_http("e07.example.com", 308);

    site.kubectl(&[
        "patch",
        "ingress",
        "web",
        "--type=json",
        "-p",
        r#"[{"op": "remove", "path": "/spec/tls"}]"#,
    ]);
    site.gateway.expect_http("e07.example.com", 200);
    site.expect_generated(Some("e07.example.com"));
}

#[test]
fn e13_a_secret_that_nothing_names_is_not_worth_a_word() {
    let Some(site) = Site::start("e13", &[("log-level", "debug")], &[]) else { return };
    let [used, renewed, unused] =
        ["e13.example.com", "e13.example.com", "unused.example.com"].map(|host| site.authority.issue(host));
    create_secret(site.plane, "e13", "tls", &used);
    create_secret(site.plane, "e13", "nobodys-secret", &unused);
    site.secured("web", "e13.example.com", "tls");
    site.expect_https("e13.example.com", &used.certificate);

    rotate_secret(site.plane, "e13", "nobodys-secret", &site.authority.issue("unused.example.com"));
    rotate_secret(site.plane, "e13", "tls", &renewed);
    site.expect_https("e13.example.com", &renewed.certificate);
    assert!(!site.gateway.log().contains("nobodys-secret"), "{}", site.gateway.log());
    assert!(site.gateway.reasons("e13", "nobodys-secret").is_empty());
}

#[test]
fn e14_a_secret_without_data_leaves_the_default_certificate_and_is_reported() {
    let Some(site) = Site::start("e14", &[], &[]) else { return };
    site.kubectl(&["create", "secret", "generic", "tls"]);
    site.secured("web", "e14.example.com", "tls");
    eventually("nobody says what is wrong", || match site.gateway.reasons("e14", "web") {
        reasons if reasons.iter().any(|reason| reason == "KeyPairMissing") => Ok(()),
        reasons => Err(format!("{reasons:?}")),
    });
    site.expect_generated(Some("e14.example.com"));
}

#[test]
fn e16_the_secret_of_the_default_certificate_is_served_without_any_ingress() {
    let Some(site) = Site::start("e16", &[], &["--default-ssl-certificate=e16/default"]) else { return };
    let pair = site.authority.issue("anything.example.com");
    create_secret(site.plane, "e16", "default", &pair);
    site.expect_served(None, &pair.certificate);
    site.expect_served(Some("nobody.example.com"), &pair.certificate);
}

#[test]
fn e17_a_catch_all_ingress_has_the_default_certificate() {
    let Some(site) = Site::start("e17", &[], &["--default-ssl-certificate=e17/default"]) else { return };
    let pair = site.authority.issue("e17.example.com");
    create_secret(site.plane, "e17", "default", &pair);
    site.plane.apply(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: { namespace: e17, name: all }\n\
         spec: { ingressClassName: portcullis, defaultBackend: { service: { name: web, port: { number: 80 } } } }\n",
    );
    site.gateway.expect_http("e17.example.com", 200);
    site.expect_https("e17.example.com", &pair.certificate);
}

#[test]
fn e18_a_certificate_for_another_name_leaves_the_host_the_default_certificate() {
    let Some(site) = Site::start("e18", &[], &["--default-ssl-certificate=e18/default"]) else { return };
    let (default, other) = (site.authority.issue("e18.example.com"), site.authority.issue("not.example.com"));
    create_secret(site.plane, "e18", "default", &default);
    create_secret(site.plane, "e18", "tls", &other);
    site.secured("web", "e18.example.com", "tls");
    eventually("nobody says what is wrong", || match site.gateway.reasons("e18", "web") {
        reasons if reasons.iter().any(|reason| reason == "HostMismatch") => Ok(()),
        reasons => Err(format!("{reasons:?}")),
    });
    site.expect_https("e18.example.com", &default.certificate);
}

#[test]
fn e19_strangers_get_a_generated_certificate_and_404() {
    let Some(site) = Site::start("e19", &[], &[]) else { return };
    site.expect_generated(None);
    site.expect_generated(Some("stranger.example.com"));
    assert_eq!(site.gateway.http("stranger.example.com").unwrap().status, 404);
}

/// Ten rounds of a thousand hosts are for `e2e/scale`; here a smaller number shows that all of it goes again.
#[test]
fn e20_hosts_and_certificates_that_go_leave_nothing_behind() {
    const HOSTS: usize = 30;
    let Some(site) = Site::start("e20", &[("secret-grace-period", "0s")], &[]) else { return };
    let pairs: Vec<_> =
        (0..HOSTS).map(|host| site.authority.issue(&format!("h{host}.e20.example.com"))).collect();
    let manifest: String = (0..HOSTS)
        .map(|host| {
            let (name, host_name) = (format!("h{host}"), format!("h{host}.e20.example.com"));
            let plain = plain("e20", &name, &host_name, "web", "");
            let tls = format!("spec:\n  tls: [{{ hosts: [{host_name}], secretName: {name} }}]\n");
            let secret = pairs[host].manifest("e20", &name);
            format!("---{}---\n{secret}", plain.replacen("spec:\n", &tls, 1))
        })
        .collect();
    let worker = site.gateway.worker();
    for _ in 0..3 {
        site.plane.apply(&manifest);
        for (host, pair) in pairs.iter().enumerate() {
            site.expect_https(&format!("h{host}.e20.example.com"), &pair.certificate);
        }
        site.plane.try_kubectl(&["delete", "--wait=false", "-f", "-"], &manifest).unwrap();
        eventually("something is left", || {
            let certificates = site.gateway.admin_json("/api/v1/certificates");
            let certificates = certificates["certificates"].as_array().unwrap().len();
            let hosts = site.gateway.admin_json("/api/v1/hosts").to_string();
            match certificates == 1 && !hosts.contains("e20.example.com") {
                true => Ok(()),
                false => Err(format!("{certificates} certificates; {hosts}")),
            }
        });
        assert!(site.gateway.reasons("e20", "h0").is_empty());
    }
    assert_eq!(site.gateway.worker(), worker);
}

/// Certificates of one test are trusted by no other.
#[test]
fn the_clients_of_these_tests_trust_one_authority_only() {
    let Some(site) = Site::start("e00", &[], &[]) else { return };
    let pair = Authority::new().issue("e00.example.com");
    create_secret(site.plane, "e00", "tls", &pair);
    site.secured("web", "e00.example.com", "tls");
    site.expect_served(Some("e00.example.com"), &pair.certificate);
    assert!(site.gateway.https(&site.authority, "e00.example.com").is_err());
}
