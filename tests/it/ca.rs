//! `portcullis ca` as its users meet it: commands on a state directory, and the CSR service called by a client
//! that was generated from the `.proto` in another language.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use portcullis::testing::client::Client;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_portcullis");

/// A state directory and the commands on it.
struct State {
    folder: tempfile::TempDir,
}

impl State {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(["ca", "--state-dir"]).arg(self.path("state")).args(arguments);
        command.current_dir(self.folder.path()).output().unwrap()
    }

    /// The JSON a command prints; it must succeed.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn code(&self, arguments: &[&str]) -> i32 {
        self.run(arguments).status.code().unwrap()
    }

    /// Writes the CA's trusted roots to `roots.pem`.
    fn export_roots(&self) -> PathBuf {
        let path = self.path("state/configmaps/istio-system/istio-security.json");
        wait_for(|| path.exists());
        self.json(&["issue", "--spiffe", "spiffe://cluster.local/ns/a/sa/b", "--out", "export"]);
        self.path("export/root-cert.pem")
    }
}

fn wait_for(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "what was waited for did not happen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn openssl_verifies(roots: &Path, chain: &Path) -> bool {
    let mut command = Command::new("openssl");
    command.args(["verify", "-x509_strict", "-CAfile"]).arg(roots).arg("-untrusted").args([chain, chain]);
    command.output().expect("openssl is needed for this test").status.success()
}

#[test]
fn init_issue_verify_and_rotate() {
    let state = State::new();
    assert_eq!(state.code(&["show"]), 1, "there is no root yet");
    let first = state.json(&["init"]);
    assert_eq!(first["mode"], "self-signed");
    assert_eq!(first["secret"], "istio-system/istio-ca-secret");
    assert_eq!(state.json(&["init"])["signing"]["serial"], first["signing"]["serial"]);

    let web = "spiffe://cluster.local/ns/shop/sa/web";
    let issued = state.json(&["issue", "--spiffe", web, "--dns", "web.shop", "--out", "web"]);
    assert_eq!(issued["certificate"]["uris"][0], web);
    assert!(issued["key"].is_null(), "a key that went to a file is not printed");
    let old = ["verify", "web/cert-chain.pem"];
    assert_eq!(state.code(&old), 0);
    assert!(openssl_verifies(&state.path("web/root-cert.pem"), &state.path("web/cert-chain.pem")));

    let rotated = state.json(&["rotate"]);
    assert_ne!(rotated["signing"]["serial"], first["signing"]["serial"]);
    assert_eq!(rotated["roots"].as_array().unwrap().len(), 2);
    assert_eq!(state.json(&["rotate", "--if-due"])["signing"]["serial"], rotated["signing"]["serial"]);
    state.json(&["issue", "--spiffe", web, "--out", "new"]);
    assert_eq!(state.code(&old), 0, "an old leaf with the new bundle");
    let new_with_old = ["verify", "new/cert-chain.pem", "--roots", "web/root-cert.pem"];
    assert_eq!(state.code(&new_with_old), 0, "a new leaf with the old root");
}

#[test]
fn rotate_key_walks_through_its_phases() {
    let state = State::new();
    state.json(&["init"]);
    state.json(&["issue", "--spiffe", "spiffe://cluster.local/ns/a/sa/b", "--out", "old"]);
    assert_eq!(state.json(&["rotate-key"])["rollover"]["phase"], "trust");
    let shown = state.json(&["show"]);
    assert_eq!(shown["rollover"]["phase"], "trust");
    assert_eq!(shown["rollover"]["waiting_for"].as_array().unwrap().len(), 1);
    let refused = state.run(&["rotate-key"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has not reached everyone"));
    assert_eq!(state.json(&["rotate-key", "--settle", "0s"])["rollover"]["phase"], "sign");
    assert_eq!(state.code(&["verify", "old/cert-chain.pem"]), 0);
    assert!(state.json(&["rotate-key", "--settle", "0s"])["rollover"].is_null());
    assert_eq!(state.code(&["verify", "old/cert-chain.pem"]), 1, "the old key is out");
}

#[test]
fn wrong_usage_and_wrong_input_have_codes_and_reasons() {
    let state = State::new();
    assert_eq!(state.code(&["issue"]), 2);
    assert_eq!(state.code(&["no-such-command"]), 2);
    assert_eq!(state.code(&["issue", "--spiffe", "x", "--ttl", "1y"]), 2);
    state.json(&["init"]);
    let output = state.run(&["issue", "--spiffe", "spiffe://cluster.local/ns/a,b/sa/c"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("a,b"));
    assert_eq!(state.code(&["issue", "--spiffe", "spiffe://td/ns/a/sa/b", "--ttl", "91d"]), 1);
    assert_eq!(state.code(&["verify", "missing.pem"]), 1);
}

#[test]
fn a_broken_secret_is_refused_and_left_alone() {
    let state = State::new();
    state.json(&["init"]);
    let path = state.path("state/secrets/istio-system/istio-ca-secret.json");
    let mut secret: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    secret["data"]["ca-key.pem"] = "Z2FyYmFnZQ==".into();
    std::fs::write(&path, secret.to_string()).unwrap();
    for command in ["init", "show", "rotate", "rotate-key"] {
        let output = state.run(&[command]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains("istio-ca-secret") && words.contains("ca-key.pem"), "{words}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), secret.to_string());
}

/// A running `ca serve`; stopped with the test.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    fn start(state: &State, arguments: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["ca", "--state-dir"])
            .arg(state.path("state"))
            .args(["serve", "--grpc-address", "127.0.0.1:0", "--resync", "1s"])
            .args(arguments)
            .current_dir(state.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        Self { child, address: format!("localhost:{port}") }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_keeps_secrets_for_accounts_and_follows_a_rotation() {
    let state = State::new();
    std::fs::create_dir(state.path("manifests")).unwrap();
    let account = |name: &str| format!("kind: ServiceAccount\nmetadata: {{name: {name}, namespace: shop}}\n");
    std::fs::write(state.path("manifests/web.yaml"), account("web")).unwrap();
    let _service = Service::start(&state, &["--manifests", "manifests"]);
    let secret = |name: &str| state.path(&format!("state/secrets/shop/istio.{name}.json"));
    wait_for(|| secret("web").exists());
    wait_for(|| state.path("state/configmaps/shop/istio-ca-root-cert.json").exists());

    std::fs::write(state.path("manifests/db.yaml"), account("db")).unwrap();
    wait_for(|| secret("db").exists());
    std::fs::remove_file(state.path("manifests/db.yaml")).unwrap();
    wait_for(|| !secret("db").exists());

    let before = std::fs::read(secret("web")).unwrap();
    state.json(&["rotate"]);
    wait_for(|| std::fs::read(secret("web")).is_ok_and(|now| now != before));
}

#[test]
fn a_broken_file_holds_up_nothing_but_itself() {
    let state = State::new();
    std::fs::create_dir(state.path("manifests")).unwrap();
    let account = |name: &str| format!("kind: ServiceAccount\nmetadata: {{name: {name}, namespace: shop}}\n");
    for name in ["web", "db"] {
        std::fs::write(state.path(&format!("manifests/{name}.yaml")), account(name)).unwrap();
    }
    let secret = |name: &str| state.path(&format!("state/secrets/shop/istio.{name}.json"));
    let map = state.path("state/configmaps/shop/istio-ca-root-cert.json");
    let good = |path: &Path| {
        std::fs::read(path)
            .is_ok_and(|text| serde_json::from_slice::<Value>(&text).is_ok_and(|it| it["data"].is_object()))
    };
    let service = Service::start(&state, &["--manifests", "manifests"]);
    wait_for(|| good(&secret("web")) && good(&secret("db")) && good(&map));

    // Files of the CA's own are made anew.
    for path in [secret("web"), map.clone()] {
        std::fs::write(path, "{").unwrap();
    }
    wait_for(|| good(&secret("web")) && good(&map));

    // A manifest stays what it was, and the others are followed.
    std::fs::write(state.path("manifests/db.yaml"), "kind: [\n").unwrap();
    std::fs::write(state.path("manifests/api.yaml"), account("api")).unwrap();
    std::fs::remove_file(secret("web")).unwrap();
    wait_for(|| good(&secret("web")) && good(&secret("api")));
    assert!(good(&secret("db")));

    // Who starts with it does not take its account for gone.
    drop(service);
    std::fs::remove_file(secret("web")).unwrap();
    let _service = Service::start(&state, &["--manifests", "manifests"]);
    wait_for(|| good(&secret("web")));
    assert!(good(&secret("db")));
    std::fs::remove_file(state.path("manifests/db.yaml")).unwrap();
    wait_for(|| !secret("db").exists());
}

#[test]
fn a_plugged_in_ca_that_is_not_there_is_not_replaced_by_a_root_of_our_own() {
    let state = State::new();
    std::fs::create_dir(state.path("empty")).unwrap();
    for folder in ["empty", "absent"] {
        let arguments = ["--ca-dir", folder, "serve", "--grpc-address", "127.0.0.1:0"];
        let output = state.run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{folder}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains(&format!("{folder}: no plugged-in CA found")), "{words}");
        assert!(!state.path("state/secrets/istio-system/istio-ca-secret.json").exists());
    }
}

#[test]
fn csr_command_gets_and_renews_a_certificate() {
    let state = State::new();
    let _python = Python::run(&["issuer"], state.folder.path(), &[]);
    let service = Service::start(&state, &["--jwt-issuer", "https://issuer.test", "--jwks", "jwks.json"]);
    let token = Python::run(&["token"], state.folder.path(), &[]);
    std::fs::write(state.path("token"), token).unwrap();
    state.export_roots();
    let got = state.json(&["csr", "--address", &service.address, "--token", "token", "--out", "one"]);
    assert_eq!(got["certificate"]["uris"][0], "spiffe://cluster.local/ns/shop/sa/web");
    assert_eq!(state.code(&["verify", "one/cert-chain.pem"]), 0);
    let identity = ["--client-cert", "one/cert-chain.pem", "--client-key", "one/key.pem"];
    let renew = [&["csr", "--address", &service.address, "--out", "two"][..], &identity].concat();
    assert_eq!(state.json(&renew)["certificate"]["uris"], got["certificate"]["uris"]);
    std::fs::write(state.path("token"), "no.such.token").unwrap();
    let refused = state.run(&["csr", "--address", &service.address, "--token", "token"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("request authenticate failure"));
}

#[test]
fn a_python_client_speaks_to_the_service() {
    let state = State::new();
    Python::run(&["issuer"], state.folder.path(), &[]);
    let service = Service::start(&state, &["--jwt-issuer", "https://issuer.test", "--jwks", "jwks.json"]);
    let roots = state.export_roots();
    let answer = Python::run(&["run"], state.folder.path(), &[&service.address, roots.to_str().unwrap()]);
    let answer: Value = serde_json::from_str(&answer).unwrap();

    for (scenario, life) in
        [("token", 86_400), ("rsa", 86_400), ("hour", 3600), ("renewal", 86_400), ("longest", 90 * 86_400)]
    {
        let got = &answer[scenario];
        assert_eq!(got["uris"], serde_json::json!(["spiffe://cluster.local/ns/shop/sa/web"]), "{scenario}");
        assert_eq!(got["dns"], serde_json::json!([]), "{scenario}");
        assert_eq!((&got["ca"], &got["subject"]), (&Value::Bool(false), &Value::from("")), "{scenario}");
        assert_eq!((&got["same_key"], &got["san_critical"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(got["elements"], 2, "{scenario}: the leaf and the bundle, a root that signs has no chain");
        assert_eq!(got["life"], life + 120, "{scenario}");
        let file = |name: &str, text: &Value| {
            let path = state.path(name);
            std::fs::write(&path, text.as_str().unwrap()).unwrap();
            path
        };
        let (chain, roots) = (file("chain.pem", &got["certificate"]), file("bundle.pem", &got["roots"]));
        assert!(openssl_verifies(&roots, &chain), "{scenario}");
    }
    for scenario in ["no_credentials", "wrong_audience", "expired", "user", "garbage_token"] {
        assert_eq!(answer[scenario]["code"], "UNAUTHENTICATED", "{scenario}");
        assert_eq!(answer[scenario]["details"], "request authenticate failure", "{scenario}");
    }
    assert_eq!(answer["impersonation"]["code"], "UNAUTHENTICATED");
    assert_eq!(answer["impersonation"]["details"], "request impersonation authentication failure");
    for (scenario, words) in [
        ("too_long", "max allowed TTL"),
        ("garbage_csr", "not properly encoded"),
        ("tampered_csr", "not signed by the key"),
        ("weak_csr", "too weak"),
        ("huge_csr", "more than"),
    ] {
        assert_eq!(answer[scenario]["code"], "INVALID_ARGUMENT", "{scenario}");
        let details = answer[scenario]["details"].as_str().unwrap();
        assert!(details.contains(words), "{scenario}: {details}");
    }
}

#[test]
fn numbers_are_on_a_port_of_their_own_and_follow_a_rotation() {
    let state = State::new();
    state.json(&["init", "--ca-ttl", "100d"]);
    let mut child = Command::new(BINARY)
        .args(["ca", "--state-dir"])
        .arg(state.path("state"))
        .args(["serve", "--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    let _service = Service { child, address: String::new() };
    let get = |path: &str| {
        let mut client = Client::plain(address.parse().unwrap());
        let answer = client.get("localhost", path);
        (answer.status, String::from_utf8(answer.body).unwrap())
    };
    let end = || -> u64 {
        let (status, text) = get("/metrics");
        assert_eq!(status, 200);
        let line = text.lines().find_map(|it| it.strip_prefix("citadel_server_root_cert_expiry_timestamp "));
        line.unwrap().parse().unwrap()
    };
    let before = end();
    state.json(&["rotate", "--ca-ttl", "200d"]);
    wait_for(|| end() > before + 90 * 86_400);
    assert_eq!(get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get("/elsewhere").0, 404);
}

/// The client in `e2e/ca`, in an environment of its own below `target`, made when it is missing.
struct Python;

impl Python {
    fn run(command: &[&str], folder: &Path, more: &[&str]) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut process = Command::new(Self::environment(root));
        process.arg(root.join("e2e/ca/client.py")).args(command).arg(folder).args(more);
        let output = process.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The interpreter that has the packages of `e2e/ca/requirements.txt`; they come from the Python package index.
    fn environment(root: &Path) -> PathBuf {
        static MADE: OnceLock<PathBuf> = OnceLock::new();
        MADE.get_or_init(|| {
            let folder = root.join("target/e2e-venv");
            let complete = folder.join("complete");
            if !complete.exists() {
                let requirements = root.join("e2e/ca/requirements.txt");
                Self::must(Command::new("python3").args(["-m", "venv"]).arg(&folder));
                let mut install = Command::new(folder.join("bin/pip"));
                Self::must(install.args(["install", "--quiet", "--requirement"]).arg(requirements));
                std::fs::write(complete, "").unwrap();
            }
            folder.join("bin/python")
        })
        .clone()
    }

    fn must(command: &mut Command) {
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("{command:?} (install python3 and its venv): {error}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
