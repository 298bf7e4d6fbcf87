//! The exposition read back, its bounds, and that `docs/metrics.md` tells of every family.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use proptest::prelude::*;

use super::exposition::Exposition;
use super::families::{FAMILIES, Kind};
use super::render;
use crate::admin::fixtures::{Gateway, observe};
use crate::names::object::ObjectName;
use crate::settings::Settings;
use crate::snapshot::clusters::Endpoint;
use crate::snapshot::paths::PathMatch;
use crate::snapshot::policies::{Action, PolicySet, STATIC_STRICT};
use crate::snapshot::workloads::Workload;
use crate::telemetry::policy_stats::TriedOut;
use crate::telemetry::route_stats::Observation;

/// A sample as it is read back.
#[derive(Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads the text format as Prometheus does, and insists on what it insists on: one HELP and TYPE for each
/// family, right before its samples, and no series twice.
fn parse(text: &str) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut announced = HashSet::new();
    let mut family = (String::new(), String::new());
    let mut series = HashSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(!help.is_empty());
            assert!(announced.insert(name.to_owned()), "{name} is announced twice");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            family = (name.to_owned(), kind.to_owned());
            continue;
        }
        let sample = parse_sample(line);
        let suffix = sample.name.strip_prefix(&family.0).unwrap_or_else(|| panic!("{line} after {family:?}"));
        match family.1.as_str() {
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
            "gauge" | "counter" => assert_eq!(suffix, "", "{line}"),
            kind => panic!("{kind} is no type"),
        }
        let (key, _) = line.rsplit_once(' ').unwrap();
        assert!(series.insert(key.to_owned()), "{key} occurs twice");
        samples.push(sample);
    }
    samples
}

fn parse_sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let value = value.parse().unwrap();
    let Some((name, labels)) = series.split_once('{') else {
        return Sample { name: series.into(), labels: BTreeMap::new(), value };
    };
    let mut rest = labels.strip_suffix('}').unwrap();
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"").unwrap();
        let mut text = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => text.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    other => panic!("\\{other} is no escape"),
                }),
                (_, plain) => text.push(plain),
            }
        };
        assert!(labels.insert(label.to_owned(), text).is_none(), "{label} occurs twice: {line}");
        rest = quoted[end + 1..].trim_start_matches(',');
    }
    Sample { name: name.into(), labels, value }
}

fn scrape(gateway: Gateway) -> Vec<Sample> {
    parse(&render(&gateway.state().0, 1_800_000_000))
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let fits = |sample: &&Sample| {
        sample.name == name
            && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|v| v == value))
    };
    let mut found = samples.iter().filter(fits);
    let first = found.next()?;
    assert!(found.next().is_none(), "{name} {labels:?} is not one sample");
    Some(first.value)
}

#[test]
fn dashboards_made_for_ingress_nginx_find_what_they_ask_for() {
    let mut gateway = Gateway::sample();
    gateway.view.pod = Some(ObjectName::new("ingress", "portcullis-0"));
    gateway.view.leader = Some(true);
    let samples = scrape(gateway);
    let requests = "nginx_ingress_controller_requests";
    let labels = [
        ("status", "200"),
        ("method", "GET"),
        ("path", "/"),
        ("namespace", "shop"),
        ("ingress", "web"),
        ("service", "web-service"),
        ("canary", ""),
        ("host", "shop.example.com"),
        ("controller_class", "portcullis.dev/ingress-controller"),
        ("controller_namespace", "ingress"),
        ("controller_pod", "portcullis-0"),
    ];
    assert_eq!(value(&samples, requests, &labels), Some(1.0));
    assert_eq!(value(&samples, requests, &[("host", "_unknown"), ("status", "404")]), Some(1.0));
    let shop = [("host", "shop.example.com")];
    let duration = "nginx_ingress_controller_request_duration_seconds";
    assert_eq!(value(&samples, &format!("{duration}_count"), &shop), Some(2.0));
    assert_eq!(value(&samples, &format!("{duration}_sum"), &shop), Some(0.06));
    for (bound, count) in [("0.025", 0.0), ("0.05", 2.0), ("+Inf", 2.0)] {
        let bucket = [("host", "shop.example.com"), ("le", bound)];
        assert_eq!(value(&samples, &format!("{duration}_bucket"), &bucket), Some(count), "{bound}");
    }
    let size = [("host", "shop.example.com"), ("le", "1000")];
    assert_eq!(value(&samples, "nginx_ingress_controller_request_size_bucket", &size), Some(2.0));
    assert_eq!(value(&samples, "nginx_ingress_controller_response_size_bucket", &size), Some(0.0));

    let certificate = [("host", "*.shop.example.com"), ("namespace", "shop"), ("secret_name", "tls")];
    let expires = value(&samples, "nginx_ingress_controller_ssl_expire_time_seconds", &certificate).unwrap();
    assert!(expires > 1_700_000_000.0);
    let info = [
        ("host", "blog.example.com"),
        ("issuer_common_name", "Example \"Issuing\" CA"),
        ("public_key_algorithm", "RSA"),
    ];
    assert_eq!(value(&samples, "nginx_ingress_controller_ssl_certificate_info", &info), Some(1.0));
    let default = [("host", "_"), ("secret_name", "")];
    assert!(value(&samples, "nginx_ingress_controller_ssl_expire_time_seconds", &default).is_some());

    let orphan = [("namespace", "blog"), ("ingress", "gone"), ("type", "no-endpoint")];
    assert_eq!(value(&samples, "nginx_ingress_controller_orphan_ingress", &orphan), Some(1.0));
    for (name, expected) in [
        ("nginx_ingress_controller_config_last_reload_successful", 1.0),
        ("nginx_ingress_controller_leader_election_status", 1.0),
        ("nginx_ingress_controller_nginx_process_connections", 1.0),
        ("nginx_ingress_controller_build_info", 1.0),
        ("portcullis_generation", 7.0),
        ("portcullis_restart_pending", 1.0),
        ("portcullis_ready", 1.0),
    ] {
        assert_eq!(value(&samples, name, &[]), Some(expected), "{name}");
    }
    for (class, expected) in [("dynamic", 5.0), ("restart", 1.0), ("rejected", 2.0)] {
        let changes = value(&samples, "portcullis_config_changes_total", &[("class", class)]);
        assert_eq!(changes, Some(expected), "{class}");
    }
    let finding = [("severity", "error"), ("reason", "SecretNotFound")];
    assert_eq!(value(&samples, "portcullis_diagnostics", &finding), Some(1.0));
    let failure = [("reason", "not_tls")];
    assert_eq!(value(&samples, "portcullis_tls_handshake_failures_total", &failure), Some(1.0));
}

#[test]
fn a_refused_edit_shows_where_alerts_look() {
    let mut gateway = Gateway::sample();
    gateway.view.settings.error = Some("settings.yaml:2: unknown setting".into());
    let samples = scrape(gateway);
    assert_eq!(value(&samples, "nginx_ingress_controller_config_last_reload_successful", &[]), Some(0.0));
}

#[test]
fn routes_that_share_their_labels_are_one_series() {
    let mut gateway = Gateway::new(Settings::default());
    let endpoints = [Endpoint::Address(([192, 0, 2, 1], 80).into())];
    for kind in [PathMatch::Exact, PathMatch::Prefix] {
        let stats = gateway.add_route("a.example.com", (kind, "/x"), "a/web", &endpoints);
        observe(&stats, &Method::GET, 200);
    }
    let samples = scrape(gateway);
    let labels = [("host", "a.example.com"), ("path", "/x")];
    assert_eq!(value(&samples, "nginx_ingress_controller_requests", &labels), Some(2.0));
    assert_eq!(value(&samples, "nginx_ingress_controller_request_size_count", &labels), Some(2.0));
}

#[test]
fn routes_without_requests_have_no_series() {
    let mut gateway = Gateway::new(Settings::default());
    gateway.route("a.example.com", "/", "a/web");
    let samples = scrape(gateway);
    assert!(samples.iter().all(|sample| !sample.labels.contains_key("path")));
}

/// Whatever strangers send ends up as host `_unknown`, method `OTHER` and the class of a status.
#[test]
fn no_client_can_add_series_without_bound() {
    let gateway = Gateway::new(Settings::default());
    for number in 0..200_000_u32 {
        let method = Method::from_bytes(format!("M{number}").as_bytes()).unwrap();
        let status = StatusCode::from_u16(u16::try_from(200 + number % 400).unwrap()).unwrap();
        let worker = &gateway.workers[number as usize % 2];
        let duration = Duration::from_micros(u64::from(number));
        worker.unrouted.observe(&Observation {
            method: &method,
            status,
            duration,
            upstream: None,
            received: 0,
            sent: 0,
        });
        worker.handshakes_failed.count(&format!("reason {number}"));
    }
    let samples = scrape(gateway);
    assert!(samples.len() < 250, "{} series", samples.len());
    let unknown = samples.iter().filter(|sample| sample.name == "nginx_ingress_controller_requests");
    assert_eq!(unknown.map(|sample| sample.value).sum::<f64>(), 200_000.0);
    let methods: HashSet<_> = samples.iter().filter_map(|sample| sample.labels.get("method")).collect();
    assert_eq!(methods, HashSet::from([&"OTHER".to_owned()]));
}

#[test]
fn each_route_with_requests_adds_the_same_number_of_series() {
    let count = |hosts: usize| {
        let mut gateway = Gateway::new(Settings::default());
        for number in 0..hosts {
            let stats = gateway.route(&format!("h{number}.example.com"), "/", "a/web");
            observe(&stats, &Method::GET, 200);
        }
        let text = render(&gateway.state().0, 0);
        text.lines().filter(|line| line.contains("path=\"/\"")).count()
    };
    assert_eq!(count(1_000), 1_000 * count(1));
}

#[test]
fn what_policies_lack_and_what_they_would_have_said_is_counted() {
    let mut gateway = Gateway::new(Settings::default());
    let key = ObjectName::new("istio-system", STATIC_STRICT);
    let policies = Arc::new(PolicySet::default().workload("shop", &[key]));
    let workload = Workload { pod: None, principal: None, host_network: false, hbone: false, policies };
    gateway.snapshot.workloads.by_address.insert([10, 0, 0, 1].into(), [workload].into());
    let tried = TriedOut { policy: ObjectName::new("shop", "tried"), action: Action::Deny, matches: true };
    for worker in &gateway.workers {
        worker.policies.add_tried_out([(tried.clone(), 3)].into_iter());
    }
    gateway.workers[1].tunnels.denied.add_one();
    let samples = scrape(gateway);
    assert_eq!(value(&samples, "portcullis_policy_dangling_keys", &[]), Some(1.0));
    let labels = [("policy", "tried"), ("action", "DENY"), ("matched", "true")];
    assert_eq!(value(&samples, "portcullis_policy_dry_run_total", &labels), Some(6.0));
    assert_eq!(value(&samples, "portcullis_hbone_tunnels_total", &[("result", "denied")]), Some(1.0));
}

#[test]
fn parts_with_metrics_of_their_own_are_appended() {
    let mut registry = prometheus_client::registry::Registry::default();
    let counter: prometheus_client::metrics::counter::Counter = Default::default();
    counter.inc();
    registry.register("portcullis_ca_signed", "Certificates signed", counter);
    let (mut state, _view) = Gateway::sample().state();
    state.registry = Some(Arc::new(registry));
    let samples = parse(&render(&state, 0));
    assert_eq!(value(&samples, "portcullis_ca_signed_total", &[]), Some(1.0));
}

#[test]
fn names_of_families_follow_the_rules() {
    let mut names = HashSet::new();
    for family in FAMILIES {
        let name = family.name;
        assert!(names.insert(name), "{name} is there twice");
        assert!(["nginx_ingress_controller_", "portcullis_", "process_"].iter().any(|p| name.starts_with(p)));
        assert!(!family.help.contains(['\\', '\n']) && family.help.ends_with('.'), "{name}");
        // ingress-nginx breaks the rule, and its names are kept.
        let is_counter = family.kind == Kind::Counter && !name.starts_with("nginx_ingress_controller_");
        assert_eq!(
            name.ends_with("_total"),
            is_counter
                || name.starts_with("nginx_ingress_controller_nginx_process_") && name.ends_with("_total"),
            "{name}"
        );
    }
}

proptest! {
    #[test]
    fn any_label_value_is_read_back(value in any::<String>()) {
        let mut out = Exposition::new(&[("controller_pod", &value)]);
        out.family(&super::families::CONNECTIONS).add(&[&value], 1);
        // A carriage return is no line break to Prometheus, but to `lines` it is one before a line feed.
        let text = out.into_text();
        let sample = parse_sample(text.split('\n').nth(2).unwrap());
        prop_assert_eq!(&sample.labels["state"], &value);
        prop_assert_eq!(&sample.labels["controller_pod"], &value);
    }
}

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated from the table in src/admin/metrics/families.rs: PORTCULLIS_UPDATE_DOCS=1 cargo test --lib admin::metrics -->

`/metrics` on the admin port, in the Prometheus text format.

- Metrics that ingress-nginx has keep its names and labels (`nginx_ingress_controller_…`), so its dashboards and alerts
  go on working. They carry `controller_class` and, in a pod that knows its name, `controller_namespace` and
  `controller_pod`. `canary` is the backend of a canary as `namespace-service-port`, and else empty, which is as good as
  absent to Prometheus; `service` is the Service that was asked, so that of the canary where there is one.
- Histograms of requests have no `status` and `method` labels; `nginx_ingress_controller_requests` has both.
- The number of series follows from the configuration alone. `host` is a host of an Ingress (`_` for rules without a
  host) and `_unknown` for anything else a client asks for; `path` is the path of the Ingress; an unusual method counts
  as `OTHER`, and when one route has seen 24 combinations of method and status, later ones count as `OTHER` and
  the class of the status (`4xx`).
- A route that has had no request has no series. A route that goes takes its series with it.
- Memory, processor time and file descriptors are the `process_…` metrics that Prometheus clients usually have. The
  workload CA, where it is switched on, adds metrics under the names that Istio's has.

Not here, because nothing in Portcullis corresponds to them: `success` and `errors` (reloads of nginx),
`header_duration_seconds` and `connect_duration_seconds`, the connection states `reading`, `writing`, `waiting` and
`handled`.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// What the OCSP source adds by itself.
const OF_THE_OCSP_SOURCE: &str = "\
| `portcullis_ocsp_fetches_total` | counter | `result` | Attempts to get an OCSP response, by result. |
| `portcullis_ocsp_fetch_duration_seconds` | histogram |  | Time of an attempt from name resolution to the last byte. |
";

fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for family in FAMILIES {
        let kind = format!("{:?}", family.kind).to_lowercase();
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(page, "| `{}` | {kind} | {} | {} |", family.name, labels.join(", "), family.help).unwrap();
    }
    page + OF_THE_OCSP_SOURCE
}

#[test]
fn the_documentation_tells_of_every_family() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    if std::env::var_os("PORTCULLIS_UPDATE_DOCS").is_some() {
        std::fs::write(&file, markdown()).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(written == markdown(), "run PORTCULLIS_UPDATE_DOCS=1 cargo test --lib admin::metrics");
}
