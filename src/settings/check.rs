//! What the values of settings must be beyond their type: ranges, and what goes together.
//!
//! `load` runs it over the merged settings, so no `Settings` that anyone else sees breaks one of these rules.

use std::time::Duration;

use super::Settings;
use super::choices::{ForwardClientCert, Source};
use super::schema::field;

/// A rule that is broken: the key it is about, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub key: &'static str,
    pub reason: &'static str,
}

/// Every rule that `settings` break.
pub(super) fn broken_rules(settings: &Settings) -> Vec<Broken> {
    let s = settings;
    let mut broken = Vec::new();
    let mut rule = |key, holds: bool, reason| {
        if !holds {
            broken.push(Broken { key, reason });
        }
    };

    for (key, count) in [
        ("max-handshakes", s.max_handshakes),
        ("max-connections", s.max_connections),
        ("ocsp-concurrency", s.ocsp_concurrency),
        ("client-max-header-count", s.client_max_header_count),
        ("http2-max-concurrent-streams", s.http2_max_concurrent_streams as usize),
    ] {
        rule(key, count > 0, "must be at least 1");
    }
    for (key, time) in [
        ("restart-timeout", s.restart_timeout),
        ("ssl-session-timeout", s.ssl_session_timeout),
        ("tls-handshake-timeout", s.tls_handshake_timeout),
        ("ocsp-timeout", s.ocsp_timeout),
        ("client-header-timeout", s.client_header_timeout),
        ("client-body-timeout", s.client_body_timeout),
        ("proxy-protocol-header-timeout", s.proxy_protocol_header_timeout),
        ("ca-workload-cert-ttl", s.ca_workload_cert_ttl),
        ("ca-max-workload-cert-ttl", s.ca_max_workload_cert_ttl),
        ("ca-secret-cert-ttl", s.ca_secret_cert_ttl),
        ("proxy-connect-timeout", s.proxy_connect_timeout),
        ("proxy-read-timeout", s.proxy_read_timeout),
        ("proxy-send-timeout", s.proxy_send_timeout),
        ("hbone-idle-timeout", s.hbone_idle_timeout),
    ] {
        rule(key, time > Duration::ZERO, "must be longer than 0");
    }
    for (key, name) in [
        ("ingress-class", &s.ingress_class),
        ("controller-class", &s.controller_class),
        ("pem-namespace", &s.pem_namespace),
        ("annotations-prefix", &s.annotations_prefix),
        ("validating-webhook-configuration", &s.validating_webhook_configuration),
        ("election-id", &s.election_id),
        ("mesh-root-namespace", &s.mesh_root_namespace),
        ("mesh-trust-domain", &s.mesh_trust_domain),
        ("ca-storage-namespace", &s.ca_storage_namespace),
        ("ca-trust-domain", &s.ca_trust_domain),
    ] {
        rule(key, !name.contains(char::is_whitespace), "must be one word");
    }

    use ForwardClientCert::{AlwaysForwardOnly, AppendForward, ForwardOnly};
    rule(
        "forward-client-cert-cidr",
        !s.forward_client_cert_cidr.is_empty()
            || !matches!(s.forward_client_cert, AlwaysForwardOnly | AppendForward | ForwardOnly),
        "must name at least one network where forward-client-cert passes on what clients send",
    );
    rule("annotations-prefix", !s.annotations_prefix.contains('/'), "must not contain a slash");
    rule("workers", s.workers <= MAX_WORKERS, "must be at most 1024");
    rule("client-max-header-bytes", s.client_max_header_bytes >= 4096, "must be at least 4k");
    for (key, code) in [
        ("limit-req-status-code", s.limit_req_status_code),
        ("limit-conn-status-code", s.limit_conn_status_code),
    ] {
        rule(key, matches!(code, 400..=599), "must be from 400 to 599");
    }
    rule(
        "http-redirect-code",
        matches!(s.http_redirect_code, 301 | 302 | 303 | 307 | 308),
        "must be 301, 302, 303, 307 or 308",
    );
    rule("ssl-protocols", !s.ssl_protocols.is_empty(), "must name at least one version");
    rule("bind-address", !s.bind_address.is_empty(), "must name at least one address");
    rule(
        "no-tls-redirect-locations",
        s.no_tls_redirect_locations.iter().all(|path| path.starts_with('/')),
        "must be paths that start with a slash",
    );
    if let Some(proxy) = &s.ocsp_proxy {
        rule("ocsp-proxy", !proxy.https, "must start with http://");
    }
    rule(
        "ocsp-responder-overrides",
        s.ocsp_responder_overrides.keys().all(|url| url.contains("://") && !url.contains('@')),
        "must be pairs of URLs without users and passwords",
    );
    rule(
        "ca-secret-cert-ttl",
        s.ca_secret_cert_ttl >= Duration::from_secs(3600),
        "must be at least 1h: certificates are replaced at half of their life, and 10 minutes before its end",
    );
    rule(
        "ca-jwt-issuers",
        s.ca_jwt_issuers.values().all(|keys| !keys.contains("://") || keys.starts_with("https://")),
        "must be pairs of an issuer and a file or an https URL",
    );
    if let Some(namespace) = &s.watch_namespace {
        rule("watch-namespace", !namespace.contains([',', '/', ' ']), "must be one namespace");
    }

    for (index, (key, port)) in s.listeners().enumerate() {
        let is_taken = s.listeners().take(index).any(|(_, other)| other == port);
        rule(key, !is_taken, "must be a port that no other setting has");
    }
    broken
}

/// Combinations that are valid and hardly meant, as a key and what to do about it.
pub(super) fn doubts(settings: &Settings) -> Vec<Broken> {
    let mut doubts = Vec::new();
    if settings.use_forwarded_headers && settings.proxy_real_ip_cidr.is_empty() {
        doubts.push(Broken {
            key: "use-forwarded-headers",
            reason: "has no effect while `proxy-real-ip-cidr` is empty: no peer is trusted",
        });
    }
    if settings.configmap.is_some() && settings.source == Source::Directory {
        doubts.push(Broken {
            key: "configmap",
            reason: "has no effect with the directory source: settings belong into the settings file there",
        });
    }
    if settings.ca && settings.source == Source::Directory && settings.state_dir.is_none() {
        doubts.push(Broken {
            key: "ca",
            reason: "cannot start without `state-dir` where there is no cluster: the CA keeps its key there",
        });
    }
    if settings.watch_namespace.is_some() && settings.watch_namespace_selector.is_some() {
        doubts.push(Broken {
            key: "watch-namespace-selector",
            reason: "can only take away what `watch-namespace` names",
        });
    }
    if settings.source == Source::Directory {
        let default = Settings::default();
        let given = KUBERNETES_ONLY.iter().filter_map(|key| field(key));
        let given = given.filter(|field| (field.get)(settings) != (field.get)(&default));
        doubts.extend(given.map(|field| Broken {
            key: field.key,
            reason: "has no effect with the directory source: it is about an API server",
        }));
    }
    if settings.ssl_ciphers.iter().any(|name| name.starts_with("DHE-")) {
        doubts.push(Broken {
            key: "ssl-ciphers",
            reason: "names DHE suites, which the TLS library does not have: they are left out",
        });
    }
    if settings.proxy_real_ip_cidr.iter().any(|network| network.prefix_len() == 0) {
        doubts.push(Broken {
            key: "proxy-real-ip-cidr",
            reason: "trusts every peer: any client can claim any address",
        });
    }
    doubts
}

/// What is read with the Kubernetes source alone.
const KUBERNETES_ONLY: &[&str] = &[
    "kubeconfig",
    "watch-namespace",
    "watch-namespace-selector",
    "validating-webhook",
    "validating-webhook-configuration",
    "keep-objects",
    "publish-status-address",
    "publish-service",
    "report-node-internal-ip-address",
    "election-id",
    "update-status-on-shutdown",
];

/// More threads than any machine has cores; a typing error rather than a wish.
const MAX_WORKERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::responder::Target;

    #[test]
    fn defaults_break_no_rule_and_raise_no_doubt() {
        assert_eq!(broken_rules(&Settings::default()), []);
        assert_eq!(doubts(&Settings::default()), []);
    }

    #[test]
    fn each_rule_names_its_key() {
        let settings = Settings {
            workers: 100_000,
            max_handshakes: 0,
            proxy_read_timeout: Duration::ZERO,
            http_redirect_code: 200,
            limit_req_status_code: 200,
            limit_conn_status_code: 600,
            ssl_protocols: Vec::new(),
            bind_address: Vec::new(),
            https_port: 8080,
            ocsp_proxy: Target::parse("https://proxy").ok(),
            ingress_class: "two words".into(),
            no_tls_redirect_locations: vec!["healthz".into()],
            ..Settings::default()
        };
        let keys: Vec<_> = broken_rules(&settings).iter().map(|broken| broken.key).collect();
        assert_eq!(
            keys,
            [
                "max-handshakes",
                "proxy-read-timeout",
                "ingress-class",
                "workers",
                "limit-req-status-code",
                "limit-conn-status-code",
                "http-redirect-code",
                "ssl-protocols",
                "bind-address",
                "no-tls-redirect-locations",
                "ocsp-proxy",
                "https-port",
            ]
        );
    }

    #[test]
    fn every_listener_has_a_port_of_its_own() {
        let broken = |settings| -> Vec<_> { broken_rules(&settings).iter().map(|rule| rule.key).collect() };
        let plain = Settings::default;
        assert_eq!(broken(Settings { admin_port: 8443, ..plain() }), ["admin-port"]);
        assert_eq!(broken(Settings { mesh_port: Some(8443), ..plain() }), ["mesh-port"]);
        assert_eq!(broken(Settings { hbone_port: Some(10254), ..plain() }), ["hbone-port"]);
        assert_eq!(broken(Settings { ca: true, ca_port: 8080, ..plain() }), ["ca-port"]);
        assert_eq!(broken(Settings { ca: false, ca_port: 8080, ..plain() }), [""; 0]);
        let webhook = "127.0.0.1:8060".parse().ok();
        assert_eq!(broken(Settings { validating_webhook: webhook, ..plain() }), [""; 0]);
        let webhook_at_ca = Settings { ca: true, validating_webhook: webhook, ..plain() };
        assert_eq!(broken(webhook_at_ca), ["validating-webhook"]);
    }

    #[test]
    fn ports_chosen_by_the_system_may_all_be_zero() {
        let settings = Settings { http_port: 0, https_port: 0, admin_port: 0, ..Settings::default() };
        assert_eq!(broken_rules(&settings), []);
    }

    #[test]
    fn a_config_map_without_a_cluster_is_doubted() {
        let configmap = Some(crate::names::object::ObjectName::new("a", "b"));
        let mut settings = Settings { configmap, ..Settings::default() };
        assert_eq!(doubts(&settings)[0].key, "configmap");
        settings.source = Source::Kubernetes;
        assert_eq!(doubts(&settings), []);
    }

    #[test]
    fn what_only_a_cluster_has_is_doubted_without_one() {
        let mut settings = Settings {
            watch_namespace: Some("shop".into()),
            publish_status_address: Some("192.0.2.1".into()),
            keep_objects: false,
            ..Settings::default()
        };
        let keys: Vec<_> = doubts(&settings).iter().map(|doubt| doubt.key).collect();
        assert_eq!(keys, ["watch-namespace", "keep-objects", "publish-status-address"]);
        settings.source = Source::Kubernetes;
        assert_eq!(doubts(&settings), []);
        assert!(KUBERNETES_ONLY.iter().all(|key| field(key).is_some()));
    }

    #[test]
    fn ciphers_that_are_left_out_are_told() {
        let ciphers = |name: &str| Settings { ssl_ciphers: vec![name.into()], ..Settings::default() };
        assert_eq!(doubts(&ciphers("DHE-RSA-AES128-GCM-SHA256"))[0].key, "ssl-ciphers");
        assert_eq!(doubts(&ciphers("ECDHE-RSA-AES128-GCM-SHA256")), []);
    }

    #[test]
    fn trusting_everyone_is_doubted() {
        let everyone = vec!["0.0.0.0/0".parse().unwrap()];
        let settings = Settings { proxy_real_ip_cidr: everyone, ..Settings::default() };
        assert_eq!(doubts(&settings)[0].key, "proxy-real-ip-cidr");
    }

    #[test]
    fn a_ca_without_a_place_for_its_key_is_doubted() {
        let settings = Settings { ca: true, ..Settings::default() };
        assert_eq!(doubts(&settings)[0].key, "ca");
        let settings = Settings { source: Source::Kubernetes, ..settings };
        assert_eq!(doubts(&settings), []);
    }
}
