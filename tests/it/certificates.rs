//! Which certificate a client gets, and what happens when it changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::tls::keys::Algorithm;

use crate::site::{Answer, Hello, Plan, Site, bound, eventually, ingress, pair, secret};

#[test]
fn a_certificate_comes_goes_and_changes_with_its_ingress_and_secret() {
    let site =
        Plan::new().setting("secret-grace-period: 1s").file("a.yaml", ingress("a", "a.test", &[])).start();
    assert_eq!(site.served("a.test"), None);
    assert_eq!(site.get("a.test", "/"), (200, "ok".into()));

    // The Secret is still missing, but the host has TLS: plain HTTP is redirected.
    site.write("a.yaml", bound("a", "a.test"));
    site.until_reason("SecretNotFound");
    assert_eq!(site.served("a.test"), None);
    eventually("a redirect", || site.get("a.test", "/").0 == 308);

    write_as(&site, "a-secret.yaml", "a", &pair(0x11, &["a.test"]));
    site.until_served("a.test", 0x11);

    write_as(&site, "a-secret.yaml", "a", &pair(0x12, &["a.test"]));
    site.until_served("a.test", 0x12);

    // Deleted: the grace time, then the default certificate.
    site.remove("a-secret.yaml");
    site.until_reason("SecretNotFound");
    eventually("the default certificate", || site.served("a.test").is_none());
    write_as(&site, "a-secret.yaml", "a", &pair(0x13, &["a.test"]));
    site.until_served("a.test", 0x13);

    // The host is another one now, which the certificate is not for.
    site.write("a.yaml", ingress("a", "b.test", &["{hosts: [a.test], secretName: a}"]));
    eventually("the new host", || site.get("b.test", "/").0 == 308);
    assert_eq!(site.served("b.test"), None);
    assert_eq!(site.served("a.test"), None, "a host that is gone keeps nothing");

    site.write("a.yaml", ingress("a", "b.test", &[]));
    eventually("plain HTTP without a redirect", || site.get("b.test", "/").0 == 200);
}

#[test]
fn a_certificate_that_only_the_gateway_has_outlives_a_generation() {
    let site = Plan::new()
        .setting("secret-grace-period: 1h")
        .setting("default-ssl-certificate: default/default")
        .file("a.yaml", bound("a", "a.test"))
        .secret("a", &pair(0x21, &["a.test"]))
        .file("gone.yaml", bound("gone", "gone.test"))
        .secret("gone", &pair(0x22, &["gone.test"]))
        .secret("default", &pair(0x24, &["default.test"]))
        .start();
    let broken = |names: &[&str]| PemPair { key_pem: pair(1, names).key_pem, ..pair(2, names) };
    site.write_secret("a", &broken(&["a.test"]));
    site.until_reason("KeyMismatch");
    site.remove("gone.secret.yaml");
    site.remove("default.secret.yaml");
    eventually("two Secrets are gone", || {
        site.reasons().iter().filter(|reason| *reason == "SecretNotFound").count() == 2
    });

    let supervisor = site.status()["supervisor"].as_u64().unwrap();
    let replaced = |signal: &str, process: Option<u64>| {
        let before = site.worker().expect("somebody serves");
        let process = process.unwrap_or(before).to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
        eventually("another generation", || site.worker().is_some_and(|worker| worker != before));
    };
    for (signal, process) in [("-KILL", None), ("-HUP", Some(supervisor)), ("-KILL", None)] {
        replaced(signal, process);
        for (name, serial) in [("a.test", 0x21), ("gone.test", 0x22), ("unknown.test", 0x24)] {
            assert_eq!(site.served(name), Some(serial), "{name} after {signal}\n{}", site.log());
        }
        assert!(site.reasons().iter().any(|reason| reason == "KeyMismatch"));
    }

    // What is repaired is not held against the new one.
    site.write_secret("a", &pair(0x23, &["a.test"]));
    site.until_served("a.test", 0x23);
    replaced("-KILL", None);
    assert_eq!(site.served("a.test"), Some(0x23));
    assert_eq!(site.served("gone.test"), Some(0x22));
    assert!(!site.log().contains("PRIVATE KEY"));
}

fn write_as(site: &Site, file: &str, name: &str, pair: &PemPair) {
    site.write(file, secret(name, &pair.certificates_pem(), &pair.key_pem));
}

#[test]
fn the_certificate_of_a_host_follows_the_tls_entries_of_its_ingresses() {
    let created = |name: &str, host: &str, second: u32, tls: &[&str]| {
        let timestamp =
            format!("metadata: {{creationTimestamp: \"2026-01-01T00:00:{second:02}Z\", name: {name}");
        ingress(name, host, tls).replace(&format!("metadata: {{name: {name}"), &timestamp)
    };
    let ingresses = [
        // The entry that lists the host, in whatever case, before one that only fits.
        ingress(
            "c1",
            "c1.test",
            &["{hosts: [other.test], secretName: any}", "{hosts: [C1.test], secretName: c1}"],
        ),
        ingress("c2", "c2.test", &["{secretName: c2}"]),
        ingress("c3", "c3.test", &["{hosts: [c3.test]}"]),
        ingress("c4", "c4.test", &["{hosts: [other.test], secretName: any}"]),
        ingress("c5", "c5.test", &["{hosts: [c5.test], secretName: missing}"]),
        ingress("c6", "c6.test", &["{hosts: [c6.test], secretName: authority}"]),
        ingress("c7", "c7.test", &["{hosts: [c7.test], secretName: any}"]),
        ingress("c8", "*.c8.test", &["{hosts: [\"*.c8.test\"], secretName: c8-one}"]),
        ingress("c8w", "*.c8w.test", &["{hosts: [\"*.c8w.test\"], secretName: c8w}"]),
        // The oldest that can be used wins, whatever the order of names.
        created("c11-a", "c11.test", 2, &["{hosts: [c11.test], secretName: c11-young}"]),
        created("c11-b", "c11.test", 1, &["{hosts: [c11.test], secretName: c11-old}"]),
        created("c11-c", "c11m.test", 1, &["{hosts: [c11m.test], secretName: missing}"]),
        created("c11-d", "c11m.test", 2, &["{hosts: [c11m.test], secretName: c11m}"]),
        created("c12-a", "c12.test", 1, &[]),
        created("c12-b", "c12.test", 2, &["{hosts: [c12.test], secretName: c12}"]),
        ingress("c14", "c14.test", &["{hosts: [c14.test, c14-unruled.test], secretName: c14}"]),
    ];
    let mut plan = Plan::new().file("ingresses.yaml", ingresses.concat());
    for (serial, name, names) in [
        (0xc1, "c1", &["c1.test"][..]),
        (0xc2, "c2", &["c2.test"]),
        (0xf0, "any", &["unrelated.test"]),
        (0xc8, "c8-one", &["www.c8.test"]),
        (0xd8, "c8w", &["*.c8w.test"]),
        (0xb1, "c11-old", &["c11.test"]),
        (0xb2, "c11-young", &["c11.test"]),
        (0xb3, "c11m", &["c11m.test"]),
        (0xbc, "c12", &["c12.test"]),
        (0xbe, "c14", &["c14.test", "c14-unruled.test"]),
    ] {
        plan = plan.secret(name, &pair(serial, names));
    }
    let authority = "apiVersion: v1\nkind: Secret\nmetadata: {name: authority, namespace: default}\nstringData: {ca.crt: x}\n";
    let site = plan.file("authority.yaml", authority).start();
    for (name, expected) in [
        ("c1.test", Some(0xc1)),
        ("c2.test", Some(0xc2)),
        ("c3.test", None),
        ("c4.test", None),
        ("c5.test", None),
        ("c6.test", None),
        ("c7.test", None),
        ("www.c8.test", None),
        ("x.c8w.test", Some(0xd8)),
        ("x.y.c8w.test", None),
        ("c8w.test", None),
        ("c11.test", Some(0xb1)),
        ("c11m.test", Some(0xb3)),
        ("c12.test", Some(0xbc)),
        ("c14.test", Some(0xbe)),
        ("c14-unruled.test", None),
        ("unrelated.test", None),
    ] {
        assert_eq!(site.served(name), expected, "{name}");
    }
    for host in ["c3.test", "c4.test", "c5.test", "c7.test", "c12.test"] {
        assert_eq!(site.get(host, "/").0, 308, "{host} has TLS");
    }
    let reasons = site.reasons();
    for reason in ["SecretNotFound", "HostMismatch", "HostConflict", "TlsHostWithoutRule"] {
        assert!(reasons.iter().any(|it| it == reason), "{reason} is not in {reasons:?}");
    }
}

#[test]
fn a_name_in_any_form_gets_the_certificate_of_its_host_or_the_default() {
    let site = Plan::new()
        .file(
            "a.yaml",
            bound("exact", "a.wild.test") + &bound("wild", "*.wild.test") + &bound("single", "localhost"),
        )
        .secret("exact", &pair(1, &["a.wild.test"]))
        .secret("wild", &pair(2, &["*.wild.test"]))
        .secret("single", &pair(3, &["localhost"]))
        .start();
    for (name, expected) in [
        ("a.wild.test", Some(1)),
        ("A.Wild.TEST", Some(1)),
        ("b.wild.test", Some(2)),
        ("xn--bcher-kva.wild.test", Some(2)),
        ("a.b.wild.test", None),
        ("wild.test", None),
        ("localhost", Some(3)),
        ("unknown.test", None),
        ("t", None),
    ] {
        assert_eq!(site.served(name), expected, "{name}");
    }
    assert_eq!(site.hello(Hello::new()).serial(), None, "no server name");
    // What is no DNS name is not what anybody asked for: the default certificate, or a fatal alert.
    let long = "a".repeat(64) + ".wild.test";
    let longer = format!("{}wild.test", "abc.".repeat(70));
    for odd in [
        "",
        ".",
        "..",
        "*",
        "*.wild.test",
        "a.wild.test..",
        ".wild.test",
        "192.0.2.1",
        "2001:db8::1",
        "-",
        &long,
        &longer,
        "a b.wild.test",
        "ä.wild.test",
        "a.wild.test\0",
        "\u{0}",
        "a.wild.test:443",
    ] {
        match site.hello(Hello::new().name(odd)) {
            Answer::Alert(2, _) => {}
            answer => assert_eq!(answer.serial(), None, "{odd:?}"),
        }
    }
    for dotted in ["a.wild.test.", "A.WILD.test."] {
        match site.hello(Hello::new().name(dotted)) {
            Answer::Alert(2, _) => {}
            answer => assert_eq!(answer.serial(), Some(1), "{dotted}"),
        }
    }
    assert_eq!(site.served("a.wild.test"), Some(1), "it goes on");
}

#[test]
fn the_default_certificate_is_a_secret_like_any_other() {
    let site = Plan::new()
        .setting("default-ssl-certificate: default/fallback")
        .setting("secret-grace-period: 1s")
        .file("a.yaml", bound("wrong", "a.test") + &ingress("any", "", &["{secretName: wrong}"]))
        .secret("wrong", &pair(9, &["not.test"]))
        .start();
    assert_eq!(site.served("a.test"), None, "the Secret is not there yet");
    site.until_reason("SecretNotFound");

    write_as(&site, "default.yaml", "fallback", &pair(0x21, &["default.test"]));
    site.until_served("unknown.test", 0x21);
    assert_eq!(site.served("a.test"), Some(0x21), "its own certificate is for another name");
    assert_eq!(site.hello(Hello::new()).serial(), Some(0x21));
    assert_eq!(site.openssl(&["-noservername"]).serial(), Some(0x21));

    write_as(&site, "default.yaml", "fallback", &pair(0x22, &["default.test"]));
    site.until_served("unknown.test", 0x22);

    // A bad one, and none at all: the last good one stays.
    let (good, other) = (pair(0x23, &["default.test"]), pair(0x24, &["default.test"]));
    site.write("default.yaml", secret("fallback", &good.certificates_pem(), &other.key_pem));
    site.until_reason("KeyMismatch");
    assert_eq!(site.served("unknown.test"), Some(0x22));
    site.remove("default.yaml");
    eventually("the end of the mismatch", || !site.reasons().contains(&"KeyMismatch".into()));
    sleep(Duration::from_millis(1500));
    assert_eq!(site.served("unknown.test"), Some(0x22), "beyond the grace time of others");

    // Another setting, another default.
    write_as(&site, "second.yaml", "second", &pair(0x25, &["default.test"]));
    site.set("default-ssl-certificate", "default/second");
    site.until_served("unknown.test", 0x25);
}

#[test]
fn pem_that_tools_write_is_read_and_what_cannot_be_used_has_a_reason() {
    let names = |name: &str| [format!("{name}.test")];
    let made = |name: &str, algorithm| {
        let names = names(name);
        Authority::new("test").leaf(&[names[0].as_str()]).serial(0x31).algorithm(algorithm).issue()
    };
    let rsa = made("rsa", Algorithm::Rsa);
    let ec = made("ec", Algorithm::EcdsaP256);
    let p384 = made("p384", Algorithm::EcdsaP384);
    let mut cases: Vec<(&str, String, String, Result<u64, &str>)> = vec![
        ("rsa", rsa.certificates_pem(), rsa.key_pem.clone(), Ok(0x31)),
        ("p384", p384.certificates_pem(), p384.key_pem.clone(), Ok(0x31)),
        ("ec", ec.certificates_pem(), openssl(&["ec"], &ec.key_pem), Ok(0x31)),
    ];
    let pair = |name: &str| pair(0x32, &[&format!("{name}.test")]);
    let case = pair("crlf");
    let crlf = |pem: &str| pem.replace('\n', " \r\n");
    cases.push(("crlf", crlf(&case.certificates_pem()), crlf(&case.key_pem), Ok(0x32)));
    let case = pair("combined");
    let combined = case.key_pem.clone() + &case.certificates_pem();
    cases.push(("combined", combined, case.key_pem.clone() + &case.leaf_pem, Ok(0x32)));
    let case = pair("parameters");
    let parameters = openssl(&["ecparam", "-name", "prime256v1"], "");
    cases.push(("parameters", case.certificates_pem(), parameters + &case.key_pem, Ok(0x32)));
    let case = made("pkcs1", Algorithm::Rsa);
    cases.push((
        "pkcs1",
        case.certificates_pem(),
        openssl(&["rsa", "-traditional"], &case.key_pem),
        Ok(0x31),
    ));
    let case = pair("encrypted");
    let encrypted = openssl(&["pkcs8", "-topk8", "-passout", "pass:x"], &case.key_pem);
    cases.push(("encrypted", case.certificates_pem(), encrypted, Err("KeyEncrypted")));
    let case = pair("mismatch");
    cases.push(("mismatch", case.certificates_pem(), pair("mismatch").key_pem, Err("KeyMismatch")));
    let case = pair("nokey");
    cases.push(("nokey", case.certificates_pem(), "no key at all\n".into(), Err("KeyMissing")));
    let case = pair("nocert");
    cases.push(("nocert", "no certificate\n".into(), case.key_pem.clone(), Err("CertificateMissing")));

    let mut plan = Plan::new();
    for (name, certificate, key, _) in &cases {
        let ingress = bound(name, &format!("{name}.test"));
        plan = plan.file(&format!("{name}.yaml"), secret(name, certificate, key) + &ingress);
    }
    let site = plan.start();
    for (name, _, _, expected) in &cases {
        assert_eq!(site.served(&format!("{name}.test")), expected.ok(), "{name}");
    }
    let diagnostics = site.api("diagnostics");
    for (name, _, _, expected) in &cases {
        let Err(reason) = expected else { continue };
        let found = diagnostics["diagnostics"].as_array().unwrap().iter().find(|it| {
            it["object"]["kind"] == "Secret" && it["object"]["name"] == **name && it["severity"] == "error"
        });
        let found = found.unwrap_or_else(|| panic!("nothing about {name}: {diagnostics:#}"));
        assert_eq!(found["reason"], *reason, "{name}");
        let file = site.path(&format!("{name}.yaml"));
        assert_eq!(found["file"], file.to_str().unwrap(), "{name}");
    }
    let everything = site.log() + &diagnostics.to_string();
    assert!(!everything.contains("PRIVATE KEY"), "no key in the log or in diagnostics");
    for line in rsa.key_pem.lines().filter(|line| line.len() > 40) {
        assert!(!everything.contains(line));
    }
}

/// Runs openssl on `input`.
fn openssl(arguments: &[&str], input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut process = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_update_that_is_worse_than_what_is_served_is_not_served() {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let valid = |serial, from, to| {
        Authority::new("test").leaf(&["a.test"]).serial(serial).valid(now + from, now + to).issue()
    };
    let expired = Authority::new("test").leaf(&["old.test"]).serial(0x40).valid(now - 200, now - 100).issue();
    let site = Plan::new()
        .file("ingresses.yaml", bound("a", "a.test") + &bound("old", "old.test"))
        .secret("a", &pair(0x41, &["a.test"]))
        .secret("old", &expired)
        .start();
    assert_eq!(site.served("old.test"), Some(0x40), "better an expired one of its own than none");
    site.until_reason("CertificateExpired");

    for (reason, text) in [
        ("KeyMismatch", {
            let (one, other) = (pair(0x42, &["a.test"]), pair(0x42, &["a.test"]));
            secret("a", &one.certificates_pem(), &other.key_pem)
        }),
        ("CertificateMissing", secret("a", "nothing\n", &pair(0x42, &["a.test"]).key_pem)),
        ("HostMismatch", {
            let other = pair(0x42, &["b.test"]);
            secret("a", &other.certificates_pem(), &other.key_pem)
        }),
        ("CandidateExpired", {
            let expired = valid(0x42, -200, -100);
            secret("a", &expired.certificates_pem(), &expired.key_pem)
        }),
    ] {
        site.write("a.secret.yaml", text);
        site.until_reason(reason);
        assert_eq!(site.served("a.test"), Some(0x41), "{reason}");
    }

    // One that is not valid yet takes over when it is.
    site.write_secret("a", &valid(0x43, 4, 3600));
    site.until_reason("CandidateNotYetValid");
    assert_eq!(site.served("a.test"), Some(0x41));
    site.until_served("a.test", 0x43);

    // An Ingress that names a Secret which is not there yet keeps what it has; one that is there is bound at
    // once.
    site.write_secret("other", &pair(0x44, &["a.test"]));
    site.write("ingresses.yaml", ingress("a", "a.test", &["{hosts: [a.test], secretName: later}"]));
    site.until_reason("SecretNotFound");
    assert_eq!(site.served("a.test"), Some(0x43));
    site.write("ingresses.yaml", ingress("a", "a.test", &["{hosts: [a.test], secretName: other}"]));
    site.until_served("a.test", 0x44);
}

#[test]
fn pem_files_are_served_by_their_names_however_they_are_replaced() {
    let site = Plan::new().start();
    // As certbot lays them out.
    let write_pair = |folder: &str, certificate: &str, key: &str, pair: &PemPair| {
        fs::create_dir_all(site.path(folder)).unwrap();
        site.write(&format!("{folder}/{certificate}"), pair.certificates_pem());
        site.write(&format!("{folder}/{key}"), &pair.key_pem);
    };
    write_pair("certbot", "fullchain.pem", "privkey.pem", &pair(0x51, &["certbot.test"]));
    site.until_served("certbot.test", 0x51);
    write_pair("certbot", "fullchain.pem", "privkey.pem", &pair(0x52, &["certbot.test"]));
    site.until_served("certbot.test", 0x52);
    // Beside each other.
    write_pair(".", "flat.crt", "flat.key", &pair(0x53, &["flat.test", "*.flat.test"]));
    site.until_served("flat.test", 0x53);
    site.until_served("x.flat.test", 0x53);
    // Written in place.
    let in_place = pair(0x54, &["flat.test"]);
    fs::write(site.path("flat.crt"), in_place.certificates_pem()).unwrap();
    fs::write(site.path("flat.key"), in_place.key_pem).unwrap();
    site.until_served("flat.test", 0x54);

    // A pair is a Secret named after its folder.
    site.set("default-ssl-certificate", "default/certbot");
    site.until_served("unknown.test", 0x52);

    // A mounted Secret volume: the kubelet swaps the folder behind `..data`.
    let volume = site.path("volume");
    fs::create_dir(&volume).unwrap();
    for round in 0x60..0x66 {
        let pair = pair(round, &["volume.test"]);
        let data = volume.join(format!("..{round}"));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("tls.crt"), pair.certificates_pem()).unwrap();
        fs::write(data.join("tls.key"), pair.key_pem).unwrap();
        symlink(data.file_name().unwrap(), volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
        if round == 0x60 {
            for file in ["tls.crt", "tls.key"] {
                symlink(format!("..data/{file}"), volume.join(file)).unwrap();
            }
        } else {
            fs::remove_dir_all(volume.join(format!("..{}", round - 1))).unwrap();
        }
        site.until_served("volume.test", round);
    }
    assert!(!site.reasons().iter().any(|reason| reason.starts_with("Key")), "{:?}", site.reasons());
}

#[test]
fn a_host_with_two_certificates_serves_each_client_the_kind_it_can_use() {
    let leaf = |serial, algorithm| {
        Authority::new("test").leaf(&["both.test"]).serial(serial).algorithm(algorithm).issue()
    };
    let tls = ["{hosts: [both.test], secretName: rsa}", "{hosts: [both.test], secretName: ec}"];
    let site = Plan::new()
        .file("both.yaml", ingress("both", "both.test", &tls))
        .secret("rsa", &leaf(0x71, Algorithm::Rsa))
        .secret("ec", &leaf(0x72, Algorithm::EcdsaP256))
        .start();
    let served = |schemes: &[u16]| site.hello(Hello::new().name("both.test").schemes(schemes)).serial();
    assert_eq!(served(&[0x0403, 0x0804]), Some(0x72));
    assert_eq!(served(&[0x0804, 0x0403]), Some(0x72), "ECDSA before RSA, whatever the client's order");
    assert_eq!(served(&[0x0804, 0x0401]), Some(0x71));
    for (version, sigalgs, serial) in [
        ("-tls1_3", "rsa_pss_rsae_sha256", 0x71),
        ("-tls1_3", "ecdsa_secp256r1_sha256", 0x72),
        ("-tls1_2", "RSA+SHA256", 0x71),
        ("-tls1_2", "ECDSA+SHA256", 0x72),
    ] {
        let handshake = site.openssl(&["-servername", "both.test", version, "-sigalgs", sigalgs]);
        assert_eq!(handshake.serial(), Some(serial), "{version} {sigalgs}");
    }
    site.write_secret("rsa", &leaf(0x73, Algorithm::Rsa));
    eventually("the new RSA certificate", || served(&[0x0804, 0x0401]) == Some(0x73));
    assert_eq!(served(&[0x0403]), Some(0x72));
}

#[test]
fn nothing_is_left_of_hosts_that_are_gone() {
    let site = Plan::new().setting("secret-grace-period: 1s").start();
    let count = |what: &str| site.api(what)[what].as_array().unwrap().len();
    let others = count("certificates");
    let names: Vec<_> = (0..100).map(|number| format!("h{number}.gone.test")).collect();
    let mut memory = 0;
    for round in 0..4 {
        let shared = pair(0x80 + round, &["*.gone.test"]);
        let ingresses = names
            .iter()
            .map(|name| bound("shared", name).replace("name: shared,", &format!("name: \"{name}\",")));
        site.write("all.yaml", ingresses.collect::<String>());
        site.write_secret("shared", &shared);
        for name in ["h0.gone.test", "h50.gone.test", "h99.gone.test"] {
            site.until_served(name, 0x80 + round);
        }
        assert_eq!(count("certificates"), others + 1);
        site.remove("all.yaml");
        site.remove("shared.secret.yaml");
        eventually("the end of all hosts", || {
            count("certificates") == others && site.served("h0.gone.test").is_none()
        });
        if round == 0 {
            memory = site.resident();
        }
    }
    let grown = site.resident().saturating_sub(memory);
    assert!(grown < 8 * 1024, "{grown} KiB more after three rounds");
}

#[test]
fn rules_without_a_host_have_the_default_certificate_and_unused_secrets_none() {
    let site = Plan::new()
        .file("any.yaml", ingress("any", "", &["{secretName: any}"]))
        .secret("any", &pair(1, &["any.test"]))
        .start();
    assert_eq!(site.served("any.test"), None);
    site.until_reason("TlsIgnored");
    assert_eq!(site.get("any.test", "/").0, 200, "no redirect to a host without a certificate");
    // Nobody bound this name to that Secret.
    site.write_secret("stray", &pair(2, &["stray.test"]));
    site.write("marker.yaml", bound("marker", "marker.test"));
    site.until_reason("SecretNotFound");
    assert_eq!(site.served("stray.test"), None);
}

#[test]
fn what_changes_nothing_is_no_new_generation() {
    let site = Plan::new().file("a.yaml", bound("a", "a.test")).secret("a", &pair(1, &["a.test"])).start();
    let before = site.generation();
    let text = fs::read_to_string(site.path("a.yaml")).unwrap();
    site.write("a.yaml", text + "# a comment\n");
    site.write("note.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: note}\ndata: {a: b}\n");
    site.write_secret("a", &pair(2, &["a.test"]));
    site.until_served("a.test", 2);
    assert_eq!(site.generation(), before + 1, "the Secret alone");
}

#[test]
fn a_route_that_asks_for_a_protection_that_is_not_there_is_closed() {
    let annotated = ingress("a", "a.test", &[]).replace(
        "metadata: {name: a,",
        "metadata: {annotations: {nginx.ingress.kubernetes.io/auth-url: \"http://auth.test\"}, name: a,",
    );
    let site = Plan::new().file("a.yaml", annotated).file("b.yaml", ingress("b", "b.test", &[])).start();
    let (status, body) = site.get("a.test", "/");
    assert_eq!(status, 503);
    assert!(body.contains("auth-url"), "{body}");
    assert_eq!(site.get("b.test", "/").0, 200);
    site.write("a.yaml", ingress("a", "a.test", &[]));
    eventually("the open route", || site.get("a.test", "/").0 == 200);
}
