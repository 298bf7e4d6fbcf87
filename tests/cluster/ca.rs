//! The workload CA in a cluster, with the rights of `config/kubernetes/ca-rbac.yaml` and nothing more.
//!
//! Its tests share a control plane of their own, because the CA writes into every namespace. The service looks at
//! everything once an hour only, so what it does in time it was told by watches.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::{create_secret, ingress};

pub const RBAC: &str = include_str!("../../config/kubernetes/ca-rbac.yaml");

struct Cluster {
    plane: ControlPlane,
    /// Of the CA's ServiceAccount.
    kubeconfig: PathBuf,
    _service: Service,
    address: String,
}

fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    let start = || {
        let plane = ControlPlane::start()?;
        plane.namespace("istio-system");
        plane.apply(RBAC);
        let kubeconfig = kubeconfig(&plane);
        let agents = ["--trusted-node-accounts", "mesh/agent"];
        let service = Service::start(&plane, &kubeconfig, &agents);
        let address = service.address.clone();
        Some(Cluster { plane, kubeconfig, _service: service, address })
    };
    CLUSTER.get_or_init(start).as_ref()
}

/// A kubeconfig for the CA's own ServiceAccount.
pub fn kubeconfig(plane: &ControlPlane) -> PathBuf {
    let token = plane.kubectl(&["-n", "istio-system", "create", "token", "portcullis-ca"]);
    let admin = fs::read_to_string(plane.kubeconfig()).unwrap();
    let (head, _) = admin.split_once("users:").unwrap();
    let path = plane.path().join("ca.kubeconfig");
    let user = format!(
        "users: [{{ name: ca, user: {{ token: {} }} }}]\n\
         contexts: [{{ name: test, context: {{ cluster: test, user: ca, namespace: istio-system }} }}]\n\
         current-context: test\n",
        token.trim(),
    );
    fs::write(&path, head.to_owned() + &user).unwrap();
    path
}

/// A command on the cluster.
fn command(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.args(["ca", "--source=kubernetes", "--output=json", "--kubeconfig"]).arg(kubeconfig);
    command.args(arguments);
    command
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a program until its input ends: with the test process at the latest, however that ends.
const WATCHDOG: &str = r#""$0" "$@" </dev/null & read -r _; kill -KILL $! 2>/dev/null; wait"#;

/// `portcullis ca serve`.
pub struct Service {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Service {
    pub fn start(plane: &ControlPlane, kubeconfig: &Path, more: &[&str]) -> Self {
        let log = plane.path().join(format!("ca-{}.log", fastrand::u32(..)));
        let serve = ["serve", "--grpc-address=127.0.0.1:0", "--resync=1h"];
        let service = command(kubeconfig, &[&serve, more].concat());
        let mut child = Command::new("sh")
            .args(["-c", WATCHDOG])
            .arg(service.get_program())
            .args(service.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap_or_default().to_owned();
        assert!(!port.is_empty(), "{}", fs::read_to_string(&log).unwrap());
        Self { child, address: format!("localhost:{port}"), log }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the CA\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl Cluster {
    fn get(&self, namespace: &str, kind: &str, name: &str) -> Result<Value, String> {
        let text = self.plane.try_kubectl(&["-n", namespace, "get", kind, name, "-o", "json"], "")?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// The object, as soon as there is one that `good` likes.
    #[track_caller]
    fn expect(&self, namespace: &str, kind: &str, name: &str, good: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{kind} {namespace}/{name}"), || match self.get(namespace, kind, name)? {
            object if good(&object) => Ok(object),
            other => Err(other.to_string()),
        })
    }

    fn account(&self, namespace: &str, name: &str) {
        self.plane.kubectl(&["-n", namespace, "create", "serviceaccount", name]);
    }

    /// A token in a file.
    fn token(&self, namespace: &str, account: &str, more: &[&str]) -> String {
        let create = ["-n", namespace, "create", "token", account];
        let token = self.plane.kubectl(&[&create, more].concat());
        let path = self.plane.path().join(format!("token-{}", fastrand::u64(..)));
        fs::write(&path, token).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn csr(&self, token: &str, more: &[&str]) -> Output {
        let csr = ["csr", "--address", &self.address, "--token", token];
        command(&self.kubeconfig, &[&csr, more].concat()).output().unwrap()
    }
}

#[test]
fn one_root_for_all_starters() {
    // Its roots would go into all namespaces, in place of those that other tests look for.
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("race");
    let admin = plane.kubeconfig();
    let start = || command(&admin, &["--storage-namespace=race", "init"]).stdout(Stdio::piped()).spawn();
    let secret = || -> Value {
        let get = ["-n", "race", "get", "secret", "istio-ca-secret", "-o", "json"];
        serde_json::from_str(&plane.kubectl(&get)).unwrap()
    };
    let starters: Vec<_> = (0..8).map(|_| start().unwrap()).collect();
    let serials: Vec<_> = starters
        .into_iter()
        .map(|starter| json(&starter.wait_with_output().unwrap())["signing"]["serial"].to_string())
        .collect();
    assert!(serials.iter().all(|serial| *serial == serials[0]), "{serials:?}");
    let first = secret();
    assert_eq!(first["type"], "istio.io/ca-root");
    let keys: Vec<_> = first["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "key.pem", "root-cert.pem"]);

    // A rotation is one more write of the same Secret, which keeps what is not ours.
    plane.kubectl(&["-n", "race", "label", "secret", "istio-ca-secret", "theirs=kept"]);
    let rotated = json(&command(&admin, &["--storage-namespace=race", "rotate"]).output().unwrap());
    assert_eq!(rotated["roots"].as_array().unwrap().len(), 2);
    assert_eq!(secret()["metadata"]["labels"]["theirs"], "kept");
}

#[test]
fn the_roots_are_in_every_namespace_and_healed_after_a_hand_edit() {
    let Some(cluster) = cluster() else { return };
    let map = "istio-ca-root-cert";
    cluster.plane.namespace("roots");
    let good = |map: &Value| map["data"]["root-cert.pem"].as_str().is_some_and(|pem| pem.contains("BEGIN"));
    let first = cluster.expect("roots", "configmap", map, good);
    cluster.expect("kube-system", "configmap", map, good);
    let edit = r#"{"data": {"root-cert.pem": "edited", "theirs": "kept"}}"#;
    cluster.plane.kubectl(&["-n", "roots", "patch", "configmap", map, "--type=merge", "-p", edit]);
    let healed = cluster.expect("roots", "configmap", map, good);
    assert_eq!(healed["data"]["root-cert.pem"], first["data"]["root-cert.pem"]);
    assert_eq!(healed["data"]["theirs"], "kept");
    cluster.plane.kubectl(&["-n", "roots", "delete", "configmap", map]);
    cluster.expect("roots", "configmap", map, good);
    for ignored in ["kube-public", "kube-node-lease"] {
        assert!(cluster.get(ignored, "configmap", map).unwrap_err().contains("NotFound"), "{ignored}");
    }
}

#[test]
fn an_account_has_a_secret_for_as_long_as_it_lives() {
    let Some(cluster) = cluster() else { return };
    cluster.plane.namespace("accounts");
    cluster.account("accounts", "web");
    let first = cluster.expect("accounts", "secret", "istio.web", |_| true);
    assert_eq!(first["type"], "istio.io/key-and-cert");
    let account = cluster.get("accounts", "serviceaccount", "web").unwrap();
    assert_eq!(first["metadata"]["ownerReferences"][0]["uid"], account["metadata"]["uid"]);

    cluster.plane.kubectl(&["-n", "accounts", "delete", "secret", "istio.web"]);
    let again = |secret: &Value| secret["metadata"]["uid"] != first["metadata"]["uid"];
    cluster.expect("accounts", "secret", "istio.web", again);

    cluster.plane.kubectl(&["-n", "accounts", "delete", "serviceaccount", "web"]);
    eventually("the Secret outlives its account", || match cluster.get("accounts", "secret", "istio.web") {
        Err(error) if error.contains("NotFound") => Ok(()),
        other => Err(format!("{:?}", other.is_ok())),
    });

    // A Secret of somebody else under the name is left alone.
    let theirs = ["-n", "accounts", "create", "secret", "generic", "istio.db", "--from-literal=a=b"];
    cluster.plane.kubectl(&theirs);
    cluster.account("accounts", "db");
    cluster.account("accounts", "last");
    cluster.expect("accounts", "secret", "istio.last", |_| true);
    assert_eq!(cluster.get("accounts", "secret", "istio.db").unwrap()["type"], "Opaque");
}

#[test]
fn a_token_for_us_gets_a_certificate_and_one_for_others_does_not() {
    let Some(cluster) = cluster() else { return };
    cluster.plane.namespace("callers");
    cluster.account("callers", "web");
    let token = cluster.token("callers", "web", &["--audience=istio-ca"]);
    let got = json(&cluster.csr(&token, &[]));
    assert_eq!(got["certificate"]["uris"][0], "spiffe://cluster.local/ns/callers/sa/web");

    for audience in ["--audience=https://kubernetes.default.svc", "--audience=vault"] {
        let refused = cluster.csr(&cluster.token("callers", "web", &[audience]), &[]);
        assert_eq!(refused.status.code(), Some(1), "{audience}");
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains("request authenticate failure"), "{words}");
    }
    cluster.plane.kubectl(&["-n", "callers", "delete", "serviceaccount", "web"]);
    // The API server remembers for some seconds what it said about a token.
    eventually("a token outlives its account", || match cluster.csr(&token, &[]).status.code() {
        Some(1) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_node_agent_gets_certificates_of_workloads_on_its_node_and_no_others() {
    let Some(cluster) = cluster() else { return };
    let pod = |namespace: &str, account: &str, node: &str| {
        cluster.plane.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{ namespace: {namespace}, name: {account} }}\n\
             spec: {{ serviceAccountName: {account}, nodeName: {node}, containers: [{{ name: c, image: i }}] }}\n"
        ));
    };
    for (namespace, account, node) in [("mesh", "agent", "n1"), ("near", "web", "n1"), ("far", "web", "n2")] {
        cluster.plane.namespace(namespace);
        cluster.account(namespace, account);
        pod(namespace, account, node);
    }
    let bound = ["--audience=istio-ca", "--bound-object-kind=Pod", "--bound-object-name=agent"];
    let token = cluster.token("mesh", "agent", &bound);
    let near = "spiffe://cluster.local/ns/near/sa/web";
    let got = eventually("the agent is refused", || {
        let output = cluster.csr(&token, &["--impersonate", near]);
        output.status.success().then(|| json(&output)).ok_or("refused".to_owned())
    });
    assert_eq!(got["certificate"]["uris"], serde_json::json!([near]));
    let far = cluster.csr(&token, &["--impersonate", "spiffe://cluster.local/ns/far/sa/web"]);
    assert_eq!(far.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&far.stderr).contains("impersonation"));
    let unbound = cluster.token("mesh", "agent", &["--audience=istio-ca"]);
    assert_eq!(cluster.csr(&unbound, &["--impersonate", near]).status.code(), Some(1));
}

#[test]
fn another_replica_takes_over_when_the_one_that_writes_is_gone() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("istio-system");
    plane.apply(RBAC);
    let kubeconfig = kubeconfig(&plane);
    let holder = || {
        let lease = ["-n", "istio-system", "get", "lease", "portcullis-ca-leader", "-o"];
        plane.try_kubectl(&[&lease[..], &["jsonpath={.spec.holderIdentity}"]].concat(), "")
    };
    let first = Service::start(&plane, &kubeconfig, &[]);
    let leader = eventually("nobody leads", holder);
    let _second = Service::start(&plane, &kubeconfig, &[]);
    drop(first);
    eventually("nobody took over", || match holder()? {
        now if now != leader => Ok(()),
        _ => Err("the same".to_owned()),
    });
    plane.namespace("after");
    eventually("nobody writes", || {
        plane.try_kubectl(&["-n", "after", "get", "configmap", "istio-ca-root-cert"], "").map(drop)
    });
}

#[test]
fn a_plugged_in_ca_in_a_secret_signs_and_an_incomplete_one_is_no_reason_for_a_root_of_our_own() {
    let Some(cluster) = cluster() else { return };
    let admin = cluster.plane.kubeconfig();
    let issued = |namespace: &str| {
        let storage = format!("--storage-namespace={namespace}");
        command(&admin, &[&storage, "issue", "--spiffe", "spiffe://cluster.local/ns/a/sa/b"])
            .output()
            .unwrap()
    };
    let root = cluster.get("istio-system", "secret", "istio-ca-secret").unwrap();
    let data = |key: &str| root["data"][key].as_str().unwrap().to_owned();
    let (certificate, key) = (data("ca-cert.pem"), data("ca-key.pem"));

    let secret = |namespace: &str, data: &str| {
        cluster.plane.namespace(namespace);
        cluster.plane.apply(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{ namespace: {namespace}, name: cacerts }}\ndata: {data}\n"
        ));
    };
    let whole = format!(
        "{{ ca-cert.pem: {certificate}, ca-key.pem: {key}, root-cert.pem: {certificate}, cert-chain.pem: {certificate} }}"
    );
    secret("plugged", &whole);
    let from_plugged = json(&issued("plugged"));
    assert_eq!(from_plugged["root_cert"], json(&issued("istio-system"))["root_cert"]);
    assert!(cluster.get("plugged", "secret", "istio-ca-secret").unwrap_err().contains("NotFound"));

    secret("partial", &format!("{{ ca-cert.pem: {certificate}, root-cert.pem: {certificate} }}"));
    for command in [&["init"][..], &["issue", "--spiffe", "spiffe://cluster.local/ns/a/sa/b"]] {
        let output =
            self::command(&admin, &[&["--storage-namespace=partial"], command].concat()).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains("ca-key.pem, cert-chain.pem"), "{words}");
    }
    assert!(cluster.get("partial", "secret", "istio-ca-secret").unwrap_err().contains("NotFound"));
}

#[test]
fn inside_of_the_gateway_it_signs_with_the_plugged_in_ca_for_hosts_that_ask() {
    let Some(plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    plane.namespace("istio-system");
    plane.namespace("hosts");
    let [certificate, key] = authority.files();
    let file = |name: &str, content: &str| {
        let path = plane.path().join(name);
        fs::write(&path, content).unwrap();
        format!("--from-file={name}={}", path.display())
    };
    let mut files =
        ["ca-cert.pem", "cert-chain.pem", "root-cert.pem"].map(|name| file(name, &certificate)).to_vec();
    files.push(file("ca-key.pem", &key));
    let mut create = vec!["-n", "istio-system", "create", "secret", "generic", "cacerts"];
    create.extend(files.iter().map(String::as_str));
    plane.kubectl(&create);

    plane.apply(&Backend::start("hosts").manifest("hosts", "web"));
    let asking = |name: &str, host: &str, secret: &str| {
        let annotations = r#"annotations: { portcullis.dev/issue-certificate: "true" }"#;
        let named = format!("name: {name}, {annotations}");
        ingress("hosts", "web", host, secret).replacen("name: web", &named, 1)
    };
    let theirs = authority.issue("theirs.example.com");
    create_secret(&plane, "hosts", "theirs", &theirs);
    plane.apply(&asking("theirs", "theirs.example.com", "theirs"));
    plane.apply(&asking("ours", "ours.example.com", "ours"));
    let gateway = Gateway::start(&plane.kubeconfig(), &["--ca=true", "--ca-port=0"]);
    let served = || match gateway.https(&authority, "ours.example.com")? {
        answer if answer.status == 200 => answer.certificate.ok_or("no certificate".to_owned()),
        answer => Err(format!("{answer:?}")),
    };
    let first = eventually("the host is not served", served);
    gateway.expect_https(&authority, "theirs.example.com", &theirs.certificate);

    plane.kubectl(&["-n", "hosts", "delete", "secret", "ours"]);
    eventually("the Secret is not made anew", || match served()? {
        now if now != first => Ok(()),
        _ => Err("the old certificate".to_owned()),
    });
    plane.kubectl(&["-n", "hosts", "delete", "ingress", "ours"]);
    eventually("the Secret outlives the Ingress", || {
        match plane.try_kubectl(&["-n", "hosts", "get", "secret", "ours"], "") {
            Err(error) if error.contains("NotFound") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let own = ["-n", "istio-system", "get", "secret", "istio-ca-secret"];
    assert!(plane.try_kubectl(&own, "").unwrap_err().contains("NotFound"), "no root of our own");
    let metrics = gateway.admin("/metrics").unwrap().body;
    assert!(metrics.contains("\nportcullis_ca_host_certificate_count 2\n"), "{metrics}");
}
