//! Alerts and dashboard that are shipped ask for metrics that exist, with labels that they have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::site::{Plan, eventually, ingress};

/// What Prometheus adds to every series of a pod.
const ADDED: &[&str] = &["pod", "job", "instance", "le"];

/// Type and labels of every metric, from docs/metrics.md.
fn metrics() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = fs::read_to_string("docs/metrics.md").unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let labels = cells[3].split(", ").map(str::to_owned).collect();
        (cells[1].clone(), (cells[2].clone(), labels))
    })
    .collect()
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// What is wrong with the metrics in a query: names, labels that are selected by, labels that are summed by.
fn faults(query: &str) -> Vec<String> {
    let metrics = metrics();
    let mut faults = Vec::new();
    let mut known: BTreeSet<&str> = ADDED.iter().copied().collect();
    let mut found = 0;
    let starts = query.char_indices().filter(|(at, character)| {
        is_word(*character) && !query[..*at].ends_with(|before: char| is_word(before) || before == '$')
    });
    for (at, _) in starts {
        let rest = &query[at..];
        let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        if !["portcullis_", "nginx_ingress_", "process_"].iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        found += 1;
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let metric = match (metrics.get(name), histogram.and_then(|name| metrics.get(name))) {
            (Some((kind, labels)), _) if kind != "histogram" => labels,
            (None, Some((kind, labels))) if kind == "histogram" => labels,
            _ => {
                faults.push(format!("there is no series {name}"));
                continue;
            }
        };
        known.extend(metric.iter().map(String::as_str));
        let selector = rest[name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for matcher in selector.iter().flat_map(|(inside, _)| inside.split(',')) {
            let label = matcher.split(['=', '!']).next().unwrap().trim();
            if !metric.contains(label) && !ADDED.contains(&label) {
                faults.push(format!("{name} has no label {label}"));
            }
        }
    }
    for by in query.split(" by (").skip(1) {
        for label in by.split(')').next().unwrap().split(',').map(str::trim) {
            if !known.contains(label) {
                faults.push(format!("nothing here has a label {label}"));
            }
        }
    }
    if found == 0 {
        faults.push("no metric of ours".into());
    }
    faults
}

#[test]
fn queries_that_ask_for_nothing_are_noticed() {
    assert_eq!(faults("portcullis_watch_up{source=\"secrets\"} == 0"), [""; 0]);
    for (query, fault) in [
        ("portcullis_watch_down == 0", "no series portcullis_watch_down"),
        ("portcullis_watch_up{kind=\"secrets\"}", "no label kind"),
        ("sum by (secret) (portcullis_watch_up)", "label secret"),
        ("rate(nginx_ingress_controller_request_duration_seconds[5m])", "no series"),
        ("portcullis_watch_up_bucket", "no series"),
        ("up == 0", "no metric"),
    ] {
        assert!(faults(query).iter().any(|it| it.contains(fault)), "{query}: {:?}", faults(query));
    }
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    let text = fs::read_to_string("config/kubernetes/optional/prometheus-rule.yaml").unwrap();
    let rule: Value = serde_saphyr::from_str(&text).unwrap();
    let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
    for alert in rules {
        let query = alert["expr"].as_str().unwrap();
        assert_eq!(faults(query), [""; 0], "{query}");
        assert!(alert["annotations"]["summary"].is_string() && alert["labels"]["severity"].is_string());
    }
    let alerts: Vec<_> = rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    for alert in ["PortcullisCertificateExpires", "PortcullisWatchDown", "PortcullisSettingsRejected"] {
        assert!(alerts.contains(&alert), "{alert}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let text = fs::read_to_string("config/kubernetes/optional/grafana-dashboard.json").unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables =
        variables.filter(|variable| variable["type"] == "query").map(|variable| &variable["query"]);
    for query in targets.map(|target| &target["expr"]).chain(variables) {
        let query = query.as_str().unwrap();
        assert_eq!(faults(query), [""; 0], "{query}");
    }
}

#[test]
fn series_of_requests_tell_the_pod() {
    let plan = Plan::new().file("a.yaml", ingress("a", "a.test", &[]));
    let site = plan.variable("POD_NAME", "edge-0").variable("POD_NAMESPACE", "ingress").start();
    assert_eq!(site.get("a.test", "/").0, 200);
    let is_counted = |line: &&str| line.starts_with("nginx_ingress_controller_requests{");
    let requests = || site.metrics().lines().find(is_counted).map(str::to_owned);
    eventually("the request is counted", || requests().is_some());
    let requests = requests().unwrap();
    for label in ["controller_namespace=\"ingress\"", "controller_pod=\"edge-0\""] {
        assert!(requests.contains(label), "{requests}");
    }
}
