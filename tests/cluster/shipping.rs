//! What is shipped, against the API server: the kustomization, what is optional beside it, and the Helm chart. Helm
//! itself is built by `e2e/helm/build.sh`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::thread;
use std::time::Duration;

use portcullis::testing::ports;
use serde_json::Value;

use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::rights::kubeconfig_of;
use super::secrets::ingress;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A definition of a kind of the Prometheus Operator that takes any object of it.
fn operator_kind(kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{ name: {plural}.monitoring.coreos.com }}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{ kind: {kind}, plural: {plural}, singular: {singular}, listKind: {kind}List }}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{ openAPIV3Schema: {{ type: object, x-kubernetes-preserve-unknown-fields: true }} }}
---"#,
        singular = kind.to_lowercase(),
    )
}

/// A control plane where namespace `portcullis` exists, as server-side dry runs need it to.
fn plane() -> Option<ControlPlane> {
    let plane = ControlPlane::start()?;
    plane.kubectl(&["apply", "-f", &format!("{ROOT}/config/kubernetes/namespace.yaml")]);
    plane.apply(&["ServiceMonitor", "PrometheusRule"].map(operator_kind).concat());
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    Some(plane)
}

/// What the API server would make of a manifest, object by object. Unknown fields are errors.
fn dry_run(plane: &ControlPlane, manifest: &str) -> Vec<Value> {
    let arguments = ["apply", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-"];
    let text = plane.try_kubectl(&arguments, manifest).unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    let objects: Value = serde_json::from_str(&text).unwrap();
    match objects["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![objects],
    }
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = of_kind(objects, kind).into_iter().find(|object| object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The pods that a workload would have pass the strictest Pod Security Standard, which the namespace enforces.
fn expect_restricted(plane: &ControlPlane, template: &Value) {
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "portcullis", "name": "of-template", "labels": template["metadata"]["labels"] },
        "spec": template["spec"],
    });
    let create = ["create", "--dry-run=server", "-f", "-"];
    plane.try_kubectl(&create, &pod.to_string()).unwrap_or_else(|error| panic!("{error}\n{pod}"));
    // The check can fail.
    let mut root = pod;
    root["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"] = serde_json::json!([]);
    let refused = plane.try_kubectl(&create, &root.to_string()).unwrap_err();
    assert!(refused.contains("PodSecurity"), "{refused}");
}

/// The arguments of the only container after `serve`.
fn arguments(workload: &Value) -> Vec<&str> {
    let arguments = workload["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let mut arguments = arguments.iter().map(|argument| argument.as_str().unwrap());
    assert_eq!(arguments.next(), Some("serve"));
    arguments.collect()
}

/// Runs a gateway with the arguments of a workload, as its Service Account: whether it takes them, and gets ready
/// with the rights it has. `unwatched` are the kinds that it may miss.
fn run_as_shipped(plane: &ControlPlane, workload: &Value, ports: [u16; 3], unwatched: &[&str]) -> Gateway {
    let state = tempfile::tempdir().unwrap();
    // What cannot be the same on this machine.
    let replace = |argument: &str| match argument.split_once('=') {
        Some((key @ "--state-dir", _)) => format!("{key}={}", state.path().display()),
        Some((key @ "--admin-bind-address", _)) => format!("{key}=127.0.0.1"),
        _ => argument.to_owned(),
    };
    let mut all: Vec<_> = arguments(workload).into_iter().map(replace).collect();
    for (key, port) in ["--http-port", "--https-port", "--admin-port"].into_iter().zip(ports) {
        if !all.iter().any(|argument| argument.starts_with(key)) {
            all.push(format!("{key}={port}"));
        }
    }
    all.push("--workers=1".into());
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let kubeconfig = kubeconfig_of(plane, "portcullis", "portcullis");
    let gateway = Gateway::start_as_told(&kubeconfig, &all, ports);
    gateway.wait_until_ready();
    let diagnostics = gateway.admin_json("/api/v1/diagnostics");
    for finding in diagnostics["diagnostics"].as_array().unwrap() {
        let message = finding["message"].as_str().unwrap();
        let expected = unwatched.iter().any(|kind| message.contains(kind));
        assert!(finding["reason"] != "NotWatched" || expected, "{diagnostics}");
    }
    gateway
}

/// Runs what the CronJob runs, as its Service Account.
fn rotate_as_shipped(plane: &ControlPlane, job: &Value) {
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().unwrap();
    let arguments = pod["containers"][0]["args"].as_array().unwrap().iter();
    let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments.map(|argument| argument.as_str().unwrap()))
        .arg(format!("--kubeconfig={}", kubeconfig_of(plane, "portcullis", account).display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_kustomization_is_accepted_and_its_arguments_run() {
    let Some(plane) = plane() else { return };
    let rendered = plane.kubectl(&["kustomize", &format!("{ROOT}/config/kubernetes")]);
    let objects = dry_run(&plane, &rendered);
    for kind in [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "IngressClass",
        "ConfigMap",
        "Deployment",
        "Service",
        "PodDisruptionBudget",
        "Namespace",
    ] {
        assert_eq!(of_kind(&objects, kind).len(), 1, "{kind}");
    }
    let deployment = named(&objects, "Deployment", "portcullis");
    expect_restricted(&plane, &deployment["spec"]["template"]);
    let selector = &deployment["spec"]["selector"]["matchLabels"];
    for (kind, path) in [("Service", "/spec/selector"), ("PodDisruptionBudget", "/spec/selector/matchLabels")]
    {
        assert_eq!(named(&objects, kind, "portcullis").pointer(path), Some(selector), "{kind}");
    }

    plane.kubectl(&["apply", "-k", &format!("{ROOT}/config/kubernetes")]);
    run_as_shipped(&plane, deployment, ports::free(), &[]);
}

#[test]
fn what_is_optional_is_accepted() {
    let Some(plane) = plane() else { return };
    let folder = Path::new(ROOT).join("config/kubernetes/optional");
    let mut seen = Vec::new();
    for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "yaml") {
            let objects = dry_run(&plane, &fs::read_to_string(&file).unwrap());
            for job in of_kind(&objects, "CronJob") {
                expect_restricted(&plane, &job["spec"]["jobTemplate"]["spec"]["template"]);
            }
            seen.extend(objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()));
        }
    }
    for kind in ["HorizontalPodAutoscaler", "CronJob", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"] {
        assert!(seen.iter().any(|it| it == kind), "{kind} of {seen:?}");
    }
}

/// Helm; `None` where it has not been built and that is all right.
fn helm() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(Path::new(ROOT).join("target"), PathBuf::from);
    let helm = target.join("helm/helm");
    if helm.exists() {
        return Some(helm);
    }
    assert!(std::env::var_os("CI").is_none(), "no Helm in {}: run e2e/helm/build.sh", helm.display());
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let _ = writeln!(std::io::stderr(), "tests of the chart left out: run e2e/helm/build.sh");
    });
    None
}

fn template(helm: &Path, values: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    Command::new(helm)
        .args(["template", "portcullis", "-n", "portcullis", "-f"])
        .arg(file)
        .arg(Path::new(ROOT).join("config/helm/portcullis"))
        // Helm keeps caches and settings in the home folder.
        .env("HOME", folder.path())
        .output()
        .unwrap()
}

fn rendered(helm: &Path, values: &str) -> String {
    let output = template(helm, values);
    assert!(output.status.success(), "{}\n{values}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sets of values as people have them for ingress-nginx, with what they say about what comes out.
const VALUES: &[&str] = &[
    "{}",
    "controller: { kind: DaemonSet, hostPort: { enabled: true }, service: { type: ClusterIP } }",
    "controller: { hostNetwork: true, containerPort: { http: 80, https: 443 }, publishService: { enabled: false } }",
    "controller: { scope: { enabled: true, namespace: portcullis } }",
    "controller: { ingressClassResource: { name: nginx, controllerValue: k8s.io/ingress-nginx, default: true } }",
    r#"
controller:
  replicaCount: 3
  image: { registry: registry.example.com, tag: 0.1.0, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  config: { hsts-max-age: 63072000, ssl-protocols: TLSv1.3, use-forwarded-headers: "true" }
  extraArgs: { default-ssl-certificate: portcullis/default, workers: 2 }
  extraEnvs: [{ name: PORTCULLIS_LOG_LEVEL, value: debug }]
  podAnnotations: { example.com/a: b }
  tolerations: [{ key: edge, operator: Exists }]
  affinity: { nodeAffinity: {} }
  minAvailable: 1
  resources: { limits: { memory: 1Gi } }
  updateStrategy: { rollingUpdate: { maxUnavailable: 1 } }
  sessionTickets: { enabled: true }
  networkPolicy: { enabled: true }
  autoscaling: { enabled: true, targetMemoryUtilizationPercentage: 80 }
  service: { annotations: { example.com/lb: nlb }, loadBalancerSourceRanges: [192.0.2.0/24], loadBalancerClass: example.com/lb }
  metrics: { enabled: true, serviceMonitor: { enabled: true, additionalLabels: { release: prometheus } }, prometheusRule: { enabled: true } }
imagePullSecrets: [{ name: registry }]
"#,
    "controller: { service: { type: NodePort, nodePorts: { http: 30080, https: 30443 } } }",
    "controller: { admissionWebhooks: { enabled: true, failurePolicy: Fail }, networkPolicy: { enabled: true } }",
    "{ rbac: { create: false }, serviceAccount: { create: false, name: other } }",
];

#[test]
fn the_chart_is_accepted_with_the_values_of_ingress_nginx() {
    let (Some(helm), Some(plane)) = (helm(), plane()) else { return };
    for values in VALUES {
        let objects = dry_run(&plane, &rendered(&helm, values));
        let kind = if values.contains("DaemonSet") { "DaemonSet" } else { "Deployment" };
        let pods = &named(&objects, kind, "portcullis")["spec"]["template"];
        // Ports of the host are what the strictest standard is there to forbid.
        if !values.contains("host") {
            expect_restricted(&plane, pods);
        }
    }
    let all = dry_run(&plane, &rendered(&helm, VALUES[5]));
    for kind in ["HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor", "CronJob"] {
        assert_eq!(of_kind(&all, kind).len(), 1, "{kind}");
    }
    for job in of_kind(&all, "CronJob") {
        expect_restricted(&plane, &job["spec"]["jobTemplate"]["spec"]["template"]);
    }
    let data = &named(&all, "ConfigMap", "portcullis")["data"];
    assert_eq!(data["hsts-max-age"], "63072000");
    assert_eq!(data["ssl-session-ticket-secret"], "portcullis/portcullis-session-tickets");
    let rules = &named(&all, "PrometheusRule", "portcullis")["spec"]["groups"][0]["rules"];
    assert!(rules.as_array().unwrap().len() > 5, "{rules}");
    let low = dry_run(&plane, &rendered(&helm, VALUES[2]));
    let container = &named(&low, "Deployment", "portcullis")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["securityContext"]["capabilities"]["add"], serde_json::json!(["NET_BIND_SERVICE"]));
}

#[test]
fn the_chart_and_the_kustomization_agree() {
    let (Some(helm), Some(plane)) = (helm(), plane()) else { return };
    let chart = dry_run(&plane, &rendered(&helm, "{}"));
    let base = dry_run(&plane, &plane.kubectl(&["kustomize", &format!("{ROOT}/config/kubernetes")]));
    for kind in ["ClusterRole", "Role"] {
        let [ours, theirs] = [&base, &chart].map(|objects| &named(objects, kind, "portcullis")["rules"]);
        assert!(ours.as_array().is_some_and(|rules| !rules.is_empty()));
        assert_eq!(ours, theirs, "{kind}");
    }
    let same = [
        "/spec/template/spec/containers/0/securityContext",
        "/spec/template/spec/containers/0/lifecycle",
        "/spec/template/spec/terminationGracePeriodSeconds",
        "/spec/template/spec/securityContext",
        "/spec/template/spec/containers/0/resources",
        "/spec/template/spec/volumes",
        "/spec/strategy",
        "/spec/replicas",
    ];
    let [ours, theirs] = [&base, &chart].map(|objects| named(objects, "Deployment", "portcullis"));
    for path in same {
        assert!(ours.pointer(path).is_some(), "{path}");
        assert_eq!(ours.pointer(path), theirs.pointer(path), "{path}");
    }
    let ports = |objects: &[Value]| named(objects, "Service", "portcullis")["spec"]["ports"].clone();
    let plain = |mut ports: Value| {
        // The node ports of a dry run are drawn by lot.
        ports.as_array_mut().unwrap().iter_mut().for_each(|port| drop(port["nodePort"].take()));
        ports
    };
    assert_eq!(plain(ports(&base)), plain(ports(&chart)));
}

#[test]
fn a_gateway_runs_with_the_arguments_and_rights_of_the_chart() {
    let (Some(helm), Some(plane)) = (helm(), plane()) else { return };
    plane.namespace("only");
    let everywhere = ("{ enabled: false }", &[][..]);
    let one_namespace = ("{ enabled: true, namespace: only }", &["ingressclasses", "namespaces"][..]);
    for (scope, unwatched) in [everywhere, one_namespace] {
        let ports @ [http, https, admin] = ports::free();
        let values = format!(
            "controller: {{ containerPort: {{ http: {http}, https: {https} }}, metrics: {{ port: {admin} }}, \
             ingressClassResource: {{ name: nginx, controllerValue: k8s.io/ingress-nginx }}, scope: {scope}, \
             sessionTickets: {{ enabled: true }} }}"
        );
        let manifest = rendered(&helm, &values);
        plane.apply(&manifest);
        let objects = dry_run(&plane, &manifest);
        let deployment = named(&objects, "Deployment", "portcullis");
        let arguments = arguments(deployment);
        assert!(arguments.contains(&"--ingress-class=nginx"), "{arguments:?}");
        if !unwatched.is_empty() {
            plane.kubectl(&["delete", "clusterrolebinding", "portcullis"]);
        }
        let gateway = run_as_shipped(&plane, deployment, ports, unwatched);
        let missed = || gateway.reasons("portcullis", "portcullis-session-tickets");
        if unwatched.is_empty() {
            assert_eq!(missed(), ["SecretNotFound"]);
        }
        // Made the first time, and changed the second.
        rotate_as_shipped(&plane, named(&objects, "CronJob", "portcullis-session-tickets"));
        eventually("the keys are not found", || match missed() {
            reasons if reasons.is_empty() && gateway.log().contains("session ticket keys") => Ok(()),
            reasons => Err(format!("{reasons:?}")),
        });
        thread::sleep(Duration::from_secs(1)); // Keys are named by the second.
    }
}

#[test]
fn one_namespace_only_takes_no_right_from_the_webhook_and_from_the_status() {
    let (Some(helm), Some(plane)) = (helm(), plane()) else { return };
    plane.namespace("only");
    plane.namespace("edge");
    plane.apply(
        "apiVersion: v1\nkind: Service\nmetadata: { namespace: edge, name: balancer }\n\
         spec: { type: LoadBalancer, ports: [{ port: 443 }] }\n",
    );
    let balancer = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.30"}]}}}"#;
    plane.patch_status("edge", "service", "balancer", balancer);
    plane.apply(&ingress("only", "web", "only.example.com", "tls"));
    let [http, https, admin, webhook] = ports::free();
    let values = format!(
        "controller: {{ containerPort: {{ http: {http}, https: {https} }}, metrics: {{ port: {admin} }}, \
         scope: {{ enabled: true, namespace: only }}, publishService: {{ pathOverride: edge/balancer }}, \
         admissionWebhooks: {{ enabled: true, port: {webhook} }} }}"
    );
    let manifest = rendered(&helm, &values);
    plane.apply(&manifest);
    let deployment = dry_run(&plane, &manifest);
    let deployment = named(&deployment, "Deployment", "portcullis");
    let unwatched = ["ingressclasses", "namespaces"];
    let _gateway = run_as_shipped(&plane, deployment, [http, https, admin], &unwatched);
    let get = |arguments: &[&str]| plane.kubectl(&[&["get"], arguments].concat());
    eventually("what is written", || {
        let bundle = [
            "validatingwebhookconfiguration",
            "portcullis",
            "-o",
            "jsonpath={.webhooks[*].clientConfig.caBundle}",
        ];
        let status = ["-n", "only", "ingress", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
        match (!get(&bundle).is_empty(), &*get(&status)) {
            (true, "203.0.113.30") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn values_that_mean_nothing_here_are_refused_by_name() {
    let Some(helm) = helm() else { return };
    for (values, named) in [
        ("defaultBackend: { enabled: true }", "defaultBackend"),
        ("tcp: { 9000: default/db:9000 }", "tcp"),
        ("udp: { 53: default/dns:53 }", "udp"),
        ("controller: { allowSnippetAnnotations: true }", "allowSnippetAnnotations"),
        ("controller: { admissionWebhooks: { failurePolicy: Maybe } }", "failurePolicy"),
        ("controller: { replicas: 3 }", "replicas"),
        ("controller: { scope: { enabled: true } }", "scope"),
        ("controller: { kind: StatefulSet }", "kind"),
        ("contoller: {}", "contoller"),
    ] {
        let output = template(&helm, values);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(named), "{values}: {error}");
    }
}
