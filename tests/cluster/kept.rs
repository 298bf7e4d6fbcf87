//! Objects that survive the gateway while the API server is away, in the state directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use portcullis::testing::ports;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::rights::{RBAC, kubeconfig};
use super::secrets::{create_secret, ingress};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push(path),
        }
    }
    files
}

/// Whether each of these kinds is served from the disk, by the status and by the metric.
fn stale(gateway: &Gateway) -> [bool; 2] {
    let status = gateway.status();
    let sources = status["sources"].as_array().unwrap();
    let metrics = gateway.admin("/metrics").unwrap().body;
    ["secrets", "ingresses"].map(|kind| {
        let source = sources.iter().find(|source| source["name"] == kind).unwrap();
        let stale = source["stale_since"].is_string();
        let sample = format!("portcullis_source_stale{{source=\"{kind}\"}} {}", u8::from(stale));
        assert!(metrics.contains(&sample), "{sample} is not in {metrics}");
        stale
    })
}

#[test]
fn a_start_without_the_api_server_serves_what_was_there_before() {
    let Some(mut plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    let hosts = ["typed.example.com", "named.example.com", "later.example.com"];
    let [typed, named, later] = hosts.map(|host| authority.issue(host));
    plane.namespace("kept");
    plane.apply(&Backend::start("kept").manifest("kept", "web"));
    create_secret(&plane, "kept", "typed", &typed);
    plane.apply(&ingress("kept", "typed", hosts[0], "typed"));
    // One that is not of the type that is watched as a whole.
    let paths = named.write(plane.path(), "named").map(|it| it.split_once('=').unwrap().1.to_owned());
    let [certificate, key] = [("tls.crt", 0), ("tls.key", 1)]
        .map(|(name, at): (_, usize)| format!("--from-file={name}={}", paths[at]));
    plane.kubectl(&["-n", "kept", "create", "secret", "generic", "named", &certificate, &key]);
    plane.apply(&ingress("kept", "named", hosts[1], "named"));
    // And one that is not there at all holds nobody up.
    plane.apply(&ingress("kept", "missing", "missing.example.com", "nowhere"));

    let state = tempfile::tempdir_in(plane.path()).unwrap();
    let objects = state.path().join("objects");
    let settings = plane.path().join("settings.yaml");
    fs::write(&settings, "restart-timeout: 2s\n").unwrap();
    let flags =
        [format!("--state-dir={}", state.path().display()), format!("--settings={}", settings.display())];
    let flags = flags.each_ref().map(String::as_str);
    let mut gateway = Gateway::start(&plane.kubeconfig(), &flags);
    let serves_both = |gateway: &Gateway| {
        gateway.expect_https(&authority, hosts[0], &typed.certificate);
        gateway.expect_https(&authority, hosts[1], &named.certificate);
    };
    serves_both(&gateway);
    let written = [
        "secrets/kept/typed",
        "secrets.named/kept/named",
        "ingresses/kept/missing",
        "ingresses/.label",
        "endpointslices/.label",
        "secrets/.label",
        "secrets.named/.label",
    ];
    eventually("not everything is kept", || {
        let missing = written.iter().find(|name| !objects.join(name).is_file());
        missing.map_or(Ok(()), |name| Err(format!("{name} in {:?}", files(&objects))))
    });
    assert_eq!(fs::metadata(&objects).unwrap().permissions().mode() & 0o777, 0o700);
    for file in files(&objects) {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    assert_eq!(stale(&gateway), [false, false]);

    // A planned restart has to see the API server: what serves knows more than the disk.
    plane.kill_api_server();
    let (_, generation) = gateway.serving();
    gateway.hang_up();
    let status = gateway.until("the new one is given up", |status| status["last_restart_error"].is_string());
    let error = status["last_restart_error"].as_str().unwrap();
    assert!(error.contains("waiting for the first list of") && error.contains("secrets ("), "{error}");
    assert_eq!(gateway.serving().1, generation);
    serves_both(&gateway);
    assert_eq!(stale(&gateway), [false, false]);

    // A crash of what serves, and one of everything.
    gateway.kill_worker();
    serves_both(&gateway);
    assert_eq!(stale(&gateway), [true, true]);
    gateway.kill();
    let gateway = Gateway::start(&plane.kubeconfig(), &flags);
    serves_both(&gateway);
    assert_eq!(stale(&gateway), [true, true]);
    let found = gateway.admin_json("/api/v1/diagnostics").to_string();
    assert!(found.contains("StaleObjects"), "{found}");

    plane.start_api_server();
    plane.kubectl(&["-n", "kept", "delete", "ingress", "typed"]);
    create_secret(&plane, "kept", "later", &later);
    plane.apply(&ingress("kept", "later", hosts[2], "later"));
    gateway.expect_https(&authority, hosts[2], &later.certificate);
    gateway.expect_http(hosts[0], 404);
    gateway.expect_https(&authority, hosts[1], &named.certificate);
    eventually("it is still stale", || match stale(&gateway) {
        [false, false] => Ok(()),
        stale => Err(format!("{stale:?}")),
    });
    eventually("what has gone stays on disk", || match objects.join("ingresses/kept/typed").exists() {
        true => Err("it is there".into()),
        false => Ok(()),
    });
}

#[test]
fn what_is_not_to_be_kept_is_not() {
    let Some(plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    let pair = authority.issue("unkept.example.com");
    plane.namespace("unkept");
    plane.apply(&Backend::start("unkept").manifest("unkept", "web"));
    create_secret(&plane, "unkept", "tls", &pair);
    plane.apply(&ingress("unkept", "web", "unkept.example.com", "tls"));
    let state = tempfile::tempdir_in(plane.path()).unwrap();
    let settings = plane.path().join("settings.yaml");
    fs::write(&settings, "keep-objects: true\n").unwrap();
    let flags =
        [format!("--state-dir={}", state.path().display()), format!("--settings={}", settings.display())];
    let gateway = Gateway::start(&plane.kubeconfig(), &flags.each_ref().map(String::as_str));
    gateway.expect_https(&authority, "unkept.example.com", &pair.certificate);
    let secret = state.path().join("objects/secrets/unkept/tls");
    eventually("it is not kept", || if secret.exists() { Ok(()) } else { Err("not yet".into()) });

    let (_, before) = gateway.serving();
    fs::write(&settings, "keep-objects: false\n").unwrap();
    eventually("no new generation", || match gateway.serving() {
        (_, now) if now > before => Ok(()),
        (_, now) => Err(format!("generation {now}")),
    });
    let events = plane.kubectl(&["get", "events", "--all-namespaces"]);
    assert!(!events.contains("RestartPending"), "there is no ConfigMap to say it about: {events}");
    eventually("keys stay on disk", || match state.path().join("objects").exists() {
        true => Err(format!("{:?}", files(state.path()))),
        false => Ok(()),
    });
    gateway.expect_https(&authority, "unkept.example.com", &pair.certificate);
}

/// With the rights for one namespace IngressClasses cannot be seen, and policies are kinds that nobody has brought.
#[test]
fn what_could_not_be_seen_before_holds_up_no_start_without_the_api_server() {
    let Some(mut plane) = ControlPlane::start() else { return };
    plane.namespace("portcullis");
    plane.apply(RBAC);
    plane.kubectl(&["delete", "clusterrolebinding", "portcullis"]);
    plane.namespace("partly");
    let account = "--serviceaccount=portcullis:portcullis";
    for namespace in ["partly", "istio-system"] {
        let _ = plane.try_kubectl(&["create", "namespace", namespace], "");
        let bind =
            ["-n", namespace, "create", "rolebinding", "portcullis", "--clusterrole=portcullis", account];
        plane.kubectl(&bind);
    }
    plane.apply(&Backend::start("partly").manifest("partly", "web"));
    let manifest = ingress("partly", "web", "partly.example.com", "none");
    plane.apply(&manifest.replace("  tls: [{ hosts: [partly.example.com], secretName: none }]\n", ""));

    let state = tempfile::tempdir_in(plane.path()).unwrap();
    let objects = state.path().join("objects");
    let [mesh] = ports::free();
    let flags = [
        format!("--state-dir={}", state.path().display()),
        "--watch-namespace=partly".to_owned(),
        format!("--mesh-port={mesh}"),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let mut gateway = Gateway::start(&kubeconfig(&plane, "portcullis"), &flags);
    gateway.expect_http("partly.example.com", 200);
    eventually("not everything is kept", || {
        let all = [
            "ingresses@partly/.label",
            "endpointslices@partly/.label",
            "peerauthentications@istio-system/.label",
        ];
        let missing = all.iter().find(|name| !objects.join(name).is_file());
        missing.map_or(Ok(()), |name| Err(format!("{name} in {:?}", files(&objects))))
    });

    plane.kill_api_server();
    gateway.crash();
    let gateway = Gateway::start(&plane.path().join("portcullis-portcullis.kubeconfig"), &flags);
    gateway.expect_http("partly.example.com", 200);

    plane.start_api_server();
    eventually("something is stale", || {
        let stale = gateway.general_findings().into_iter().filter(|(_, reason, _)| reason == "StaleObjects");
        match stale.collect::<Vec<_>>() {
            stale if stale.is_empty() => Ok(()),
            stale => Err(format!("{stale:?}")),
        }
    });
}
