use std::collections::BTreeSet;

use super::*;
use crate::settings::field::display;
use crate::settings::value::Raw;

/// The defaults with one field set to its example.
fn mutated(field: &Field) -> Settings {
    let mut settings = Settings::default();
    (field.set)(&mut settings, &Raw::Text(field.example.into()))
        .unwrap_or_else(|invalid| panic!("the example of {}: {invalid}", field.key));
    settings
}

#[test]
fn a_change_of_any_field_is_noticed_and_classified() {
    let before = Settings::default();
    for field in FIELDS {
        let after = mutated(field);
        let changes = before.diff(&after);
        assert_eq!(changes.len(), 1, "{}: {changes:?}", field.key);
        let change = &changes[0];
        assert_eq!((change.key, change.class), (field.key, field.class));
        assert_eq!((&change.old, &change.new), (&(field.get)(&before), &(field.get)(&after)));
        assert_ne!(change.old, change.new, "{}", field.key);
    }
}

#[test]
fn a_dynamic_change_applies_and_a_restart_requiring_one_waits() {
    let running = Settings::default();
    for field in FIELDS {
        let wanted = mutated(field);
        let expected = match field.class {
            Class::Dynamic => &wanted,
            Class::Restart(_) => &running,
        };
        assert_eq!(&running.with_dynamic(&wanted), expected, "{}", field.key);
    }
}

#[test]
fn restart_is_required_for_what_is_made_at_start_only() {
    let keys: BTreeSet<_> =
        FIELDS.iter().filter(|field| field.class != Class::Dynamic).map(|field| field.key).collect();
    let expected = [
        "admin-bind-address",
        "admin-port",
        "bind-address",
        "ca",
        "ca-accounts",
        "ca-bind-address",
        "ca-cluster-id",
        "ca-dir",
        "ca-gateway-account",
        "ca-host-identities",
        "ca-ingress-certificates",
        "ca-jwks-roots",
        "ca-jwt-issuers",
        "ca-max-workload-cert-ttl",
        "ca-port",
        "ca-secret-cert-ttl",
        "ca-storage-namespace",
        "ca-token-audiences",
        "ca-trust-domain",
        "ca-trusted-node-accounts",
        "ca-workload-cert-ttl",
        "configmap",
        "controller-class",
        "election-id",
        "hbone-port",
        "http-port",
        "https-port",
        "ingress-class",
        "keep-objects",
        "kubeconfig",
        "manifests",
        "mesh-port",
        "mesh-root-namespace",
        "pem-namespace",
        "source",
        "ssl-session-ticket-secret",
        "state-dir",
        "use-proxy-protocol",
        "validating-webhook",
        "watch-namespace",
        "watch-namespace-selector",
        "workers",
    ];
    assert_eq!(keys, BTreeSet::from(expected));
}

#[test]
fn every_value_reads_back_from_its_text_and_from_json() {
    for field in FIELDS {
        for settings in [Settings::default(), mutated(field)] {
            let json = (field.get)(&settings);
            let from_json: Raw = serde_json::from_value(json.clone()).unwrap();
            for raw in [from_json, Raw::Text(display(&json))] {
                // From the other value, so that a `set` that does nothing is found out.
                let mut read =
                    if settings == Settings::default() { mutated(field) } else { Settings::default() };
                (field.set)(&mut read, &raw).unwrap_or_else(|invalid| panic!("{}: {invalid}", field.key));
                assert_eq!(read, settings, "{} from {raw:?}", field.key);
            }
        }
    }
}

#[test]
fn settings_serialize_under_their_keys() {
    let json = serde_json::to_value(Settings::default()).unwrap();
    assert_eq!(json["http-port"], 8080);
    assert_eq!(json["hsts"], true);
    assert_eq!(json["proxy-body-size"], "1m");
    assert_eq!(json["secret-grace-period"], "1m");
    assert_eq!(json["ssl-protocols"], serde_json::json!(["TLSv1.2", "TLSv1.3"]));
    assert_eq!(json.as_object().unwrap().len(), FIELDS.len());
}

#[test]
fn every_row_is_complete() {
    for field in FIELDS {
        assert!(field.doc.ends_with('.') && !field.doc.starts_with(' '), "{}: {:?}", field.key, field.doc);
        assert!(!field.doc.contains("  "), "{}", field.key);
        assert!(!field.key.contains('_'), "{}", field.key);
    }
    assert_eq!(field("http-port").unwrap().env(), "PORTCULLIS_HTTP_PORT");
    assert!(field("http_port").is_none());
}

#[test]
fn change_serializes_flat() {
    let new = Settings { http_port: 80, log_level: LogLevel::Debug, ..Settings::default() };
    let changes = serde_json::to_value(Settings::default().diff(&new)).unwrap();
    assert_eq!(
        changes,
        serde_json::json!([
            {"key": "http-port", "class": "restart", "reason": "listeners are opened before workers start",
             "old": 8080, "new": 80},
            {"key": "log-level", "class": "dynamic", "old": "info", "new": "debug"},
        ])
    );
}
