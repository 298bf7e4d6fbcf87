use std::time::Duration;

use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::snapshot::access::SourceRanges;
use crate::snapshot::affinity::{AffinityMode, SameSite, SessionCookie};
use crate::snapshot::client_auth::VerifyClient;
use crate::snapshot::cors::{Cors, Origins};
use crate::snapshot::hosts::{BackendProtocol, HttpsRedirect};
use crate::snapshot::redirects::Asked;
use crate::snapshot::search::NoPattern;
use crate::store::objects::ObjectName;

const NGINX: &str = "nginx.ingress.kubernetes.io";

fn metadata<K: Into<String>, V: Into<String>>(annotations: impl IntoIterator<Item = (K, V)>) -> Metadata {
    Metadata {
        name: ObjectName::new("shop", "web"),
        created: None,
        labels: Default::default(),
        annotations: annotations.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
    }
}

fn nginx(name: &str, value: &str) -> Metadata {
    metadata([(format!("{NGINX}/{name}"), value)])
}

fn policy(metadata: &Metadata, settings: &Settings) -> RoutePolicy {
    effects(metadata, settings).policy
}

fn policy_of(name: &str, value: &str) -> RoutePolicy {
    policy(&nginx(name, value), &Settings::default())
}

fn reasons(metadata: &Metadata) -> Vec<(Severity, &'static str)> {
    let findings = diagnose(metadata, &Settings::default());
    findings.iter().map(|finding| (finding.severity, finding.reason)).collect()
}

#[test]
fn without_annotations_the_settings_hold() {
    let settings = Settings {
        proxy_body_size: None,
        proxy_read_timeout: Duration::from_secs(7),
        force_ssl_redirect: true,
        ..Settings::default()
    };
    let policy = policy(&metadata([("other.example/x", "y")]), &settings);
    assert_eq!(policy.max_body, None);
    assert_eq!(policy.read_timeout, Duration::from_secs(7));
    assert_eq!(policy.redirect, HttpsRedirect::Always);
    assert_eq!(policy.protocol, BackendProtocol::Http1);
}

#[test]
fn annotations_have_their_effect() {
    assert_eq!(policy_of("ssl-redirect", "false").redirect, HttpsRedirect::Never);
    assert_eq!(policy_of("ssl-redirect", "t").redirect, HttpsRedirect::IfTls);
    assert_eq!(policy_of("force-ssl-redirect", "true").redirect, HttpsRedirect::Always);
    assert_eq!(policy_of("backend-protocol", "https").protocol, BackendProtocol::Https);
    assert_eq!(policy_of("backend-protocol", "GRPC").protocol, BackendProtocol::H2c);
    assert_eq!(policy_of("backend-protocol", " GRPCS ").protocol, BackendProtocol::Grpcs);
    assert_eq!(policy_of("proxy-body-size", "0").max_body, None);
    assert_eq!(policy_of("proxy-body-size", "8m").max_body, Some(8 << 20));
    assert_eq!(policy_of("proxy-body-size", "10").max_body, Some(10));
    assert_eq!(policy_of("proxy-connect-timeout", "2").connect_timeout, Duration::from_secs(2));
    assert_eq!(policy_of("proxy-read-timeout", "3600").read_timeout, Duration::from_secs(3600));
    assert_eq!(policy_of("proxy-send-timeout", "120").send_timeout, Duration::from_secs(120));
}

#[test]
fn redirects_of_all_requests_and_of_the_root() {
    let redirects = |annotations: &[(&str, &str)]| {
        let own = annotations.iter().map(|(name, value)| (format!("{NGINX}/{name}"), *value));
        effects(&metadata(own), &Settings::default()).redirects
    };
    let all = |annotations: &[(&str, &str)]| {
        let redirect = redirects(annotations).all.unwrap();
        let asked = Asked { https: false, host: Some("a.test"), port: None, path: "/x", query: None };
        (redirect.status.as_u16(), redirect.location.fill(&asked).unwrap())
    };
    let (old, new) = (("permanent-redirect", "https://b.test"), ("temporal-redirect", "/new"));
    assert_eq!(all(&[old]), (301, "https://b.test".into()));
    assert_eq!(all(&[old, ("permanent-redirect-code", "308")]), (308, "https://b.test".into()));
    assert_eq!(all(&[old, new]), (302, "http://a.test/new".into()));
    assert_eq!(all(&[new, ("temporal-redirect-code", "307")]), (307, "http://a.test/new".into()));
    assert_eq!(all(&[new, ("relative-redirects", "true")]), (302, "/new".into()));
    assert_eq!(redirects(&[("permanent-redirect-code", "308")]), Redirects::default());
    assert!(redirects(&[("from-to-www-redirect", "true")]).www);
    assert_eq!(redirects(&[("app-root", "/app")]).root.unwrap().status.as_u16(), 302);
    assert!(policy_of("preserve-trailing-slash", "true").preserve_trailing_slash);
}

#[test]
fn forced_redirects_win_over_none() {
    let both = metadata([
        (format!("{NGINX}/ssl-redirect"), "false"),
        (format!("{NGINX}/force-ssl-redirect"), "true"),
    ]);
    assert_eq!(policy(&both, &Settings::default()).redirect, HttpsRedirect::Always);
}

#[test]
fn our_own_prefix_wins_and_another_one_can_be_set() {
    let both = metadata([
        (format!("{NGINX}/proxy-read-timeout"), "1"),
        ("portcullis.dev/proxy-read-timeout".into(), "2"),
        ("mine.example/proxy-read-timeout".into(), "3"),
    ]);
    assert_eq!(policy(&both, &Settings::default()).read_timeout, Duration::from_secs(2));
    let settings = Settings { annotations_prefix: "mine.example".into(), ..Settings::default() };
    let mine = metadata([("mine.example/proxy-read-timeout", "3")]);
    assert_eq!(policy(&mine, &settings).read_timeout, Duration::from_secs(3));
}

#[test]
fn certificates_are_asked_for_under_our_own_prefix_alone() {
    assert_eq!(reasons(&metadata([("portcullis.dev/issue-certificate", "true")])), []);
    let foreign = nginx("issue-certificate", "true");
    assert!(!issue_certificate::is_asked_for(&foreign.annotations));
    assert_eq!(reasons(&foreign), [(Severity::Warning, "UnknownAnnotation")]);
    let message = &diagnose(&foreign, &Settings::default())[0].message;
    assert!(message.ends_with("did you mean portcullis.dev/issue-certificate?"), "{message}");
}

#[test]
fn a_bad_value_is_ignored_alone_and_reported() {
    let bad = metadata([
        (format!("{NGINX}/proxy-body-size"), "8 bananas"),
        (format!("{NGINX}/proxy-read-timeout"), "30"),
    ]);
    let policy = policy(&bad, &Settings::default());
    assert_eq!(policy.max_body, Settings::default().proxy_body_size);
    assert_eq!(policy.read_timeout, Duration::from_secs(30));

    let findings = diagnose(&bad, &Settings::default());
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].severity, findings[0].reason), (Severity::Error, "InvalidAnnotation"));
    assert_eq!(findings[0].field, r#"metadata.annotations["nginx.ingress.kubernetes.io/proxy-body-size"]"#);
    assert!(findings[0].message.contains("a size such as `8m`"), "{}", findings[0].message);
}

#[test]
fn values_out_of_range_are_refused() {
    for (name, value) in [
        ("ssl-redirect", "yes"),
        ("ssl-redirect", ""),
        ("proxy-body-size", "-1"),
        ("proxy-body-size", "+1"),
        ("proxy-body-size", "m"),
        ("proxy-body-size", "8t"),
        ("proxy-body-size", "99999999999999g"),
        ("proxy-read-timeout", "0"),
        ("proxy-read-timeout", "+5"),
        ("proxy-read-timeout", "5s"),
        ("proxy-read-timeout", "99999999999"),
        ("permanent-redirect", "b.test"),
        ("permanent-redirect", "https://b.test\r\nX: y"),
        ("temporal-redirect", "//b.test"),
        ("temporal-redirect", "https://$remote_addr"),
        ("permanent-redirect-code", "304"),
        ("temporal-redirect-code", "200"),
        ("app-root", "app"),
        ("app-root", "/$host"),
        ("app-root", "//b.test"),
        ("use-regex", "on"),
        ("rewrite-target", "https://b.test/$1"),
        ("x-forwarded-prefix", "shop"),
        ("upstream-vhost", "b.test/x"),
        ("service-upstream", "on"),
        ("server-alias", "b.test, c.test/x"),
        ("default-backend", "other/sorry"),
        ("whitelist-source-range", "10.0.0.0/33"),
        ("allowlist-source-range", "10.0.0.0/8, localhost"),
        ("denylist-source-range", "10.0.0.0/8;"),
        ("denylist-source-range", ", ,"),
        ("limit-rps", "-1"),
        ("limit-rpm", "many"),
        ("limit-connections", "99999999999"),
        ("limit-burst-multiplier", "1.5"),
        ("limit-whitelist", "all"),
        ("auth-type", "digest"),
        ("auth-type", "Basic"),
        ("auth-secret-type", "file"),
        ("auth-realm", "x\r\ny"),
        ("satisfy", "one"),
        ("enable-cors", "on"),
        ("cors-allow-origin", "shop.test"),
        ("cors-allow-origin", "https://*"),
        ("cors-allow-methods", "GET; PUT"),
        ("cors-allow-headers", "X-A,,X-B"),
        ("cors-expose-headers", "X-A\r\nX: y"),
        ("cors-max-age", "1h"),
        ("backend-protocol", "FCGI"),
        ("backend-protocol", "HTTP; return 200"),
        ("affinity", "ip"),
        ("affinity-mode", "sticky"),
        ("session-cookie-name", "a b"),
        ("session-cookie-name", "a=b"),
        ("session-cookie-name", "a;b"),
        ("session-cookie-max-age", "0"),
        ("session-cookie-max-age", "-1"),
        ("session-cookie-expires", "1h"),
        ("session-cookie-path", "shop"),
        ("session-cookie-path", "/; Domain=evil.test"),
        ("session-cookie-path", "/a\r\nSet-Cookie: x=y"),
        ("session-cookie-domain", "a.test; Secure"),
        ("session-cookie-domain", "a.test:80"),
        ("session-cookie-domain", "a.test."),
        ("session-cookie-domain", "[::1]"),
        ("session-cookie-samesite", "Relaxed"),
        ("session-cookie-secure", "yes"),
        ("affinity-canary-behavior", "none"),
        ("canary-by-header", "X Canary"),
        ("canary-by-header-value", "a\r\nb"),
        ("canary-by-header-pattern", "(?=x)"),
        ("canary-by-cookie", "a;b"),
        ("canary-weight", "-1"),
        ("canary-weight", "10%"),
        ("canary-weight-total", "+100"),
    ] {
        assert_eq!(reasons(&nginx(name, value)), [(Severity::Error, "InvalidAnnotation")], "{name}: {value}");
    }
}

#[test]
fn names_that_have_no_effect_are_reported_by_kind() {
    for (name, expected) in [
        ("custom-http-errors", Some((Severity::Warning, "UnsupportedAnnotation"))),
        ("auth-url", Some((Severity::Error, "UnsupportedAnnotation"))),
        ("server-snippet", Some((Severity::Error, "SnippetRefused"))),
        ("proxy-buffering", None),
        ("no-such-thing-at-all", Some((Severity::Warning, "UnknownAnnotation"))),
    ] {
        assert_eq!(reasons(&nginx(name, "on")), Vec::from_iter(expected), "{name}");
    }
    assert_eq!(reasons(&metadata([("cert-manager.io/issuer", "x")])), []);
}

#[test]
fn a_protection_that_is_not_there_closes_routes_unless_it_asks_for_nothing() {
    for (name, value, closes) in [
        ("auth-url", "http://auth.test/verify", true),
        ("auth-url", " ", false),
        ("enable-modsecurity", "False", false),
        ("configuration-snippet", "deny all;", true),
        ("stream-snippet", "server {}", false),
        ("proxy-cookie-path", "/$1", false),
    ] {
        let metadata = nginx(name, value);
        let found: Vec<_> = unsupported_protections(&metadata, &Settings::default()).collect();
        assert_eq!(found, Vec::from_iter(closes.then_some(name)), "{name}: {value:?}");
    }
    let harmless = nginx("enable-modsecurity", "false");
    assert_eq!(reasons(&harmless), []);
    let own = metadata([("portcullis.dev/auth-url", "http://auth.test")]);
    assert!(unsupported_protections(&own, &Settings::default()).eq(["auth-url"]));
    assert!(protects_host("server-snippet") && !protects_host("auth-url"));
}

#[test]
fn what_is_asked_of_clients_is_read_as_it_is_written() {
    let draft = |annotations: &[(&str, &str)]| {
        let named = annotations.iter().map(|(name, value)| (format!("{NGINX}/auth-tls-{name}"), *value));
        effects(&metadata(named), &Settings::default()).client_auth
    };
    assert_eq!(draft(&[]), ClientAuthDraft::default());
    let all = draft(&[
        ("secret", " shop/ca "),
        ("verify-client", "optional_no_ca"),
        ("verify-depth", "3"),
        ("match-cn", "CN=(a|b)"),
        ("pass-certificate-to-upstream", "true"),
        ("error-page", "https://a.test/no?from=$request_uri"),
    ]);
    assert_eq!((all.secret.as_deref(), all.depth, all.pass_certificate), (Some("shop/ca"), Some(3), true));
    assert_eq!((all.verify, all.protection()), (Some(VerifyClient::OptionalNoCa), Some("auth-tls-match-cn")));
    assert!(all.subject.unwrap().unwrap().is_match(b"O=x,CN=b") && all.error_page.is_some());
    // What cannot be used leaves what is stricter, or is told to `compile`.
    for (name, value) in
        [("verify-client", "Off"), ("verify-depth", "0"), ("verify-depth", "-1"), ("error-page", "no")]
    {
        assert_eq!(draft(&[(name, value)]), ClientAuthDraft::default(), "{name}: {value}");
        let reasons = reasons(&nginx(&format!("auth-tls-{name}"), value));
        assert_eq!(reasons, [(Severity::Error, "InvalidAnnotation")], "{name}: {value}");
    }
    assert_eq!(
        draft(&[("secret", ""), ("match-cn", " ")]),
        ClientAuthDraft::default(),
        "empty asks for nothing"
    );
    assert_eq!(draft(&[("match-cn", "(")]).subject, Some(Err(NoPattern)));
    assert_eq!(draft(&[("verify-client", "off")]).protection(), None);
    assert_eq!(draft(&[("verify-client", "optional")]).protection(), Some("auth-tls-verify-client"));
}

#[test]
fn a_protection_that_cannot_be_made_out_closes_routes_and_says_so() {
    let effects = |annotations: &[(&str, &str)]| {
        let own = annotations.iter().map(|(name, value)| (format!("{NGINX}/{name}"), *value));
        effects(&metadata(own), &Settings::default())
    };
    for name in ["whitelist-source-range", "allowlist-source-range", "denylist-source-range"] {
        assert_eq!(effects(&[(name, "x")]).refusal, Some(name));
        assert_eq!(effects(&[(name, "::/0")]).refusal, None);
        let message = &diagnose(&nginx(name, "x"), &Settings::default())[0].message;
        assert!(message.ends_with("Requests are refused (503) rather than served without it."), "{message}");
    }
    for name in ["limit-rps", "limit-rpm", "limit-connections", "auth-type"] {
        assert_eq!(effects(&[(name, "x")]).refusal, Some(name));
    }
    // In whichever order they are applied.
    let cors =
        [("cors-allow-methods", ";"), ("cors-allow-origin", "https://a.test"), ("enable-cors", "true")];
    let rules = effects(&cors).policy.cors.unwrap();
    assert_eq!(rules.origins, Origins::These(Box::default()));
    let message = &diagnose(&nginx("cors-allow-origin", "a.test"), &Settings::default())[0].message;
    assert!(message.ends_with("No other origin is allowed until that is repaired."), "{message}");
}

#[test]
fn lists_of_networks_take_the_place_of_those_of_the_settings() {
    let networks = |text: &str| vec![text.parse::<IpNet>().unwrap()];
    let settings = Settings {
        whitelist_source_range: networks("10.0.0.0/8"),
        denylist_source_range: networks("10.1.0.0/16"),
        ..Settings::default()
    };
    let sources = |annotations: &[(&str, &str)]| {
        let own = annotations.iter().map(|(name, value)| (format!("{NGINX}/{name}"), *value));
        effects(&metadata(own), &settings).policy.sources
    };
    let (allow, deny) = (networks("10.0.0.0/8"), networks("10.1.0.0/16"));
    assert_eq!(sources(&[]), SourceRanges::new(&allow, &deny));
    assert_eq!(sources(&[("whitelist-source-range", "")]), SourceRanges::new(&allow, &deny));
    let all = SourceRanges::new(&networks("0.0.0.0/0"), &deny);
    assert_eq!(sources(&[("whitelist-source-range", "0.0.0.0/0")]), all);
    let both = [("allowlist-source-range", "0.0.0.0/0"), ("whitelist-source-range", "::/0")];
    assert_eq!(sources(&both), all);
    assert_eq!(policy(&metadata([("x", "y")]), &Settings::default()).sources, None);
}

#[test]
fn a_password_is_asked_for_by_type_or_secret() {
    let auth = |name, value| effects(&nginx(name, value), &Settings::default()).auth;
    assert_eq!(auth("auth-realm", "x"), None);
    assert_eq!(auth("auth-type", ""), None);
    assert_eq!(auth("auth-secret", ""), None);
    assert_eq!(auth("auth-type", "basic"), Some(AuthDraft { basic: true, ..AuthDraft::default() }));
    assert_eq!(auth("auth-secret", "users").unwrap().secret.as_deref(), Some("users"));
}

#[test]
fn cors_and_limits_are_there_where_they_are_asked_for() {
    assert_eq!(policy_of("cors-allow-origin", "https://a.test").cors, None);
    assert_eq!(policy_of("enable-cors", "true").cors.as_deref(), Some(&Cors::default()));
    assert_eq!(policy_of("limit-burst-multiplier", "3").limits, None);
    assert_eq!(policy_of("limit-rps", "0").limits, None);
    let rate = policy_of("limit-rps", "10").limits.unwrap().per_second.unwrap();
    assert_eq!((rate.interval, rate.burst), (100_000_000, 5_000_000_000));
}

#[test]
fn a_misspelt_name_gets_a_suggestion() {
    let message = |name| diagnose(&nginx(name, "x"), &Settings::default())[0].message.clone();
    assert!(message("proxy-body-sise").contains("did you mean proxy-body-size?"));
    assert!(message("ssl-redirects").contains("did you mean ssl-redirect?"));
    assert!(!message("entirely-different").contains("did you mean"));
    assert!(!message(&"a".repeat(100_000)).contains("did you mean"));
}

#[test]
fn a_canary_is_told_by_its_annotation() {
    assert!(is_canary(&nginx("canary", "true"), &Settings::default()));
    assert!(!is_canary(&nginx("canary", "false"), &Settings::default()));
    assert!(!is_canary(&nginx("canary-weight", "10"), &Settings::default()));
}

#[test]
fn affinity_is_asked_for_by_its_own_annotation_and_told_by_the_rest() {
    let affinity = |annotations: &[(&str, &str)]| {
        let own = annotations.iter().map(|(name, value)| (format!("{NGINX}/{name}"), *value));
        policy(&metadata(own), &Settings::default()).affinity
    };
    assert_eq!(affinity(&[("session-cookie-name", "route"), ("affinity-mode", "persistent")]), None);
    let plain = affinity(&[("affinity", "cookie")]).unwrap();
    assert_eq!((plain.mode, plain.change_on_failure), (AffinityMode::Balanced, false));
    assert_eq!(plain.cookie, SessionCookie::default());
    let full = affinity(&[
        ("affinity", "cookie"),
        ("affinity-mode", "persistent"),
        ("session-cookie-change-on-failure", "true"),
        ("session-cookie-name", "route"),
        ("session-cookie-max-age", "60"),
        ("session-cookie-expires", "120"),
        ("session-cookie-path", "/shop"),
        ("session-cookie-domain", ".a.test"),
        ("session-cookie-samesite", "strict"),
        ("session-cookie-secure", "false"),
        ("session-cookie-conditional-samesite-none", "true"),
    ]);
    let full = full.unwrap();
    assert_eq!((full.mode, full.change_on_failure), (AffinityMode::Persistent, true));
    let cookie = SessionCookie {
        name: "route".into(),
        path: Some("/shop".into()),
        domain: Some(".a.test".into()),
        max_age: Some(60),
        expires: Some(120),
        same_site: Some(SameSite::Strict),
        conditional_same_site_none: true,
        secure: Some(false),
    };
    assert_eq!(full.cookie, cookie);
}

#[test]
fn annotations_that_a_canary_has_in_common_with_its_main_ingress_are_no_matter_there() {
    let canary = |name: &str, value: &str| {
        reasons(&metadata([(format!("{NGINX}/canary"), "true"), (format!("{NGINX}/{name}"), value)]))
    };
    assert_eq!(canary("auth-url", "http://auth.test"), []);
    assert_eq!(canary("configuration-snippet", "deny all;"), []);
    assert_eq!(canary("proxy-body-size", "8 bananas"), []);
    assert_eq!(canary("canary-weight", "10"), []);
    assert_eq!(canary("canary-weight", "much"), [(Severity::Error, "InvalidAnnotation")]);
    assert_eq!(canary("canary-wieght", "10"), [(Severity::Warning, "UnknownAnnotation")]);
    assert_eq!(canary("session-cookie-name", "a b"), [(Severity::Error, "InvalidAnnotation")]);
}

#[test]
fn every_annotation_takes_its_own_example_and_has_one_name() {
    let mut names: Vec<_> = FOREIGN.iter().map(|(name, _)| *name).collect();
    assert!(names.is_sorted());
    for annotation in ANNOTATIONS {
        let mut draft = PolicyDraft::new(&Settings::default());
        assert_eq!(annotation.apply(annotation.example(), &mut draft), Ok(()), "{}", annotation.name());
        names.push(annotation.name());
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a name occurs twice");
}

#[test]
fn the_documentation_is_fresh() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/annotations.md");
    if std::env::var_os("PORTCULLIS_UPDATE_DOCS").is_some() {
        std::fs::write(file, documentation()).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(written == documentation(), "run PORTCULLIS_UPDATE_DOCS=1 cargo test --lib annotations");
}

proptest! {
    #[test]
    fn no_value_panics_and_a_refused_one_changes_nothing(value in "\\PC{0,40}|[0-9+-]{0,30}[kmgKMG]?") {
        for annotation in ANNOTATIONS {
            let before = PolicyDraft::new(&Settings::default());
            let mut draft = before.clone();
            if annotation.apply(&value, &mut draft).is_err() {
                prop_assert_eq!(draft, before);
            }
        }
    }

    #[test]
    fn messages_are_short_and_printable(name in "(?s).{0,300}", value in "(?s).{0,300}") {
        for name in ["proxy-body-size", &name] {
            for finding in diagnose(&nginx(name, &value), &Settings::default()) {
                prop_assert!(finding.message.len() < 2_000 && !finding.message.chars().any(char::is_control));
                prop_assert!(!finding.field.chars().any(char::is_control));
            }
        }
    }
}
