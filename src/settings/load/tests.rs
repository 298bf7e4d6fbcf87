use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::settings::choices::LogLevel;
use crate::store::objects::{Metadata, ObjectName};

fn text(value: &str) -> Raw {
    Raw::Text(value.into())
}

fn environment(variables: &[(&str, &str)]) -> Inputs {
    let environment = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Inputs { environment, ..Inputs::default() }
}

fn config_map(data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: Metadata {
            name: ObjectName::new("ingress", "settings"),
            created: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        },
        data: data.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
    }
}

/// Loads a file with this text, in a folder that lives as long as the call.
fn load_file(name: &str, content: &str) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, content).unwrap();
    let loaded = Inputs { file: Some(file), ..Inputs::default() }.load();
    loaded.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

#[test]
fn nothing_given_means_defaults() {
    let loaded = Inputs::default().load().unwrap();
    assert_eq!(loaded, Loaded { settings: Settings::default(), notices: Vec::new() });
    assert_eq!(load_file("settings.yaml", "").unwrap(), loaded);
    assert_eq!(load_file("settings.yaml", "# nothing\n").unwrap(), loaded);
    assert_eq!(load_file("settings.yaml", "{}").unwrap(), loaded);
}

#[test]
fn flag_beats_environment_beats_file_beats_config_map() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    std::fs::write(&file, "http-port: 2\nhttps-port: 2\nadmin-port: 2").unwrap();
    let everywhere = [("http-port", "1"), ("https-port", "1"), ("admin-port", "1"), ("workers", "1")];
    let mut inputs = environment(&[("PORTCULLIS_HTTP_PORT", "3"), ("PORTCULLIS_HTTPS_PORT", "33")]);
    inputs.file = Some(file);
    inputs.config_map = Some(config_map(&everywhere));
    inputs.flags = vec![("http-port", text("4"))];
    let settings = inputs.load().unwrap().settings;
    assert_eq!(
        (settings.http_port, settings.https_port, settings.admin_port, settings.workers),
        (4, 33, 2, 1)
    );
}

#[test]
fn a_file_takes_every_form_of_a_value() {
    let yaml = r#"
http-port: 80
enable-ocsp: "false"
hsts: false
secret-grace-period: "500ms"
proxy-read-timeout: 90
proxy-body-size: 8m
client-max-header-bytes: 32k
ssl-protocols: [TLSv1.3]
ocsp-allowed-cidrs:
  - 10.0.0.0/8
  - fd00::/8
proxy-real-ip-cidr: "10.0.0.0/8, 192.0.2.7"
ocsp-responder-overrides:
  http://ocsp.example.com: http://127.0.0.1:9000
default-ssl-certificate: ingress/default
state-dir:
log-level: debug
"#;
    let settings = load_file("settings.yaml", yaml).unwrap().settings;
    assert_eq!(settings.http_port, 80);
    assert!(!settings.enable_ocsp && !settings.hsts);
    assert_eq!(settings.secret_grace_period.as_millis(), 500);
    assert_eq!(settings.proxy_read_timeout.as_secs(), 90);
    assert_eq!(settings.proxy_body_size, Some(8 << 20));
    assert_eq!(settings.client_max_header_bytes, 32 << 10);
    assert_eq!(settings.ssl_protocols.len(), 1);
    assert_eq!(settings.ocsp_allowed_cidrs.len(), 2);
    assert_eq!(settings.proxy_real_ip_cidr.len(), 2);
    assert_eq!(settings.ocsp_responder_overrides["http://ocsp.example.com"].authority(), "127.0.0.1:9000");
    assert_eq!(settings.default_ssl_certificate, Some(ObjectName::new("ingress", "default")));
    assert_eq!(settings.state_dir, None);
    assert_eq!(settings.log_level, LogLevel::Debug);
}

#[test]
fn a_file_may_be_json() {
    let json = "{\n\t\"http-port\": 80,\n\t\"enable-ocsp\": false,\n\t\"bind-address\": [\"127.0.0.1\"]\n}";
    let settings = load_file("settings.json", json).unwrap().settings;
    assert_eq!((settings.http_port, settings.enable_ocsp, settings.bind_address.len()), (80, false, 1));
}

#[test]
fn what_was_serialized_loads_as_the_same() {
    let settings = Settings { http_port: 80, proxy_body_size: None, ..Settings::default() };
    let json = serde_json::to_string_pretty(&settings).unwrap();
    assert_eq!(load_file("settings.json", &json).unwrap().settings, settings);
}

#[test]
fn all_problems_of_a_file_are_told_with_their_lines() {
    let yaml = "\
http-prot: 80
https-port: 70000
secret-grace-period: soon
enable-ocsp: yes
ocsp-allowed-cidrs:
  - 10.0.0.0/8
  - everywhere
something-else: 1
";
    insta::assert_snapshot!(load_file("settings.yaml", yaml).unwrap_err(), @r#"
    settings.yaml:1: http-prot: unknown setting; did you mean http-port?
    settings.yaml:2: https-port: "70000" is not a whole number from 0 to 65535
    settings.yaml:3: secret-grace-period: "soon" is not a time such as 500ms, 6s, 1m or 2h, a year at most
    settings.yaml:4: enable-ocsp: "yes" is not true or false
    settings.yaml:5: ocsp-allowed-cidrs: "everywhere" is not a network such as 10.0.0.0/8 or 2001:db8::/32
    settings.yaml:8: something-else: unknown setting
    "#);
}

#[test]
fn what_is_no_flat_map_is_told_with_its_line() {
    let files = [
        "http-port: 80\nhttp-port: 81\n",
        "http-port: [80\n",
        "- http-port\n",
        "just text\n",
        "manifests:\n  - [a]\n",
        "hsts: true\n---\nhsts: false\n",
        "hsts: true\n\thttp-port: 80\n",
    ];
    let errors = files.map(|content| load_file("settings.yaml", content).unwrap_err());
    insta::assert_snapshot!(errors.join("\n"), @"
    settings.yaml:2: duplicate mapping key `http-port` is not allowed here
    settings.yaml:1: unclosed bracket '['
    settings.yaml:1: expected mapping start
    settings.yaml:1: expected mapping start
    settings.yaml:2: expected a scalar, found a list or map
    settings.yaml:3: only single YAML document expected but multiple found
    settings.yaml:1: while scanning a plain scalar, found a tab
    ");
}

/// YAML takes some names for numbers.
#[test]
fn names_keep_their_spelling() {
    let settings =
        load_file("settings.yaml", "watch-namespace: 007\ningress-class: \"1.10\"").unwrap().settings;
    assert_eq!((settings.watch_namespace.as_deref(), &*settings.ingress_class), (Some("007"), "1.10"));
    let error = load_file("settings.yaml", "\ningress-class: 1.10").unwrap_err();
    assert!(error.starts_with("settings.yaml:2: "), "{error}");
    assert!(error.contains("put it in quotes"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error =
        Inputs { file: Some("/nowhere/settings.yaml".into()), ..Inputs::default() }.load().unwrap_err();
    assert!(error.to_string().starts_with("cannot read settings file /nowhere/settings.yaml: "), "{error}");
}

#[test]
fn problems_name_the_flag_or_variable_they_are_about() {
    let mut inputs = environment(&[("PORTCULLIS_LOG_LEVEL", "loud")]);
    inputs.flags = vec![("workers", text("many"))];
    let error = inputs.load().unwrap_err().to_string();
    assert!(error.contains("PORTCULLIS_LOG_LEVEL: \"loud\" is not one of error, warn"), "{error}");
    assert!(error.contains("--workers: \"many\" is not a whole number"), "{error}");
}

#[test]
fn rules_between_settings_name_where_the_value_came_from() {
    let inputs = environment(&[("PORTCULLIS_HTTP_REDIRECT_CODE", "200"), ("PORTCULLIS_HTTP_PORT", "8443")]);
    insta::assert_snapshot!(inputs.load().unwrap_err(), @r#"
    PORTCULLIS_HTTP_REDIRECT_CODE: "200" must be 301, 302, 303, 307 or 308
    https-port: "8443" must be a port that no other setting has
    "#);
}

#[test]
fn variables_that_kubernetes_makes_for_services_are_no_settings() {
    let inputs = environment(&[
        ("PORTCULLIS_HTTP_PORT", "tcp://10.0.0.1:80"),
        ("PORTCULLIS_HTTP_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("PORTCULLIS_SERVICE_HOST", "10.0.0.1"),
        ("PORTCULLIS_SERVICE_PORT_HTTPS", "443"),
        ("PORTCULLIS_PORT", "tcp://10.0.0.1:443"),
        ("PORTCULLIS_WORKERS", ""),
        ("PORTCULLIS_SETTINGS", "/read/elsewhere"),
        ("HTTP_PORT", "nobody's"),
    ]);
    assert_eq!(inputs.load().unwrap(), Inputs::default().load().unwrap());
}

#[test]
fn an_unknown_variable_is_a_notice() {
    let loaded = environment(&[("PORTCULLIS_HTTP_PROT", "80")]).load().unwrap();
    let notices: Vec<_> = loaded.notices.iter().map(Notice::to_string).collect();
    assert_eq!(notices, ["PORTCULLIS_HTTP_PROT: unknown setting; did you mean http-port?"]);
}

#[test]
fn a_config_map_of_ingress_nginx_is_understood() {
    let data = [
        ("ssl-protocols", "TLSv1.2 TLSv1.3"),
        ("ssl-ecdh-curve", "auto"),
        ("use-http2", "false"),
        ("proxy-body-size", "0"),
        ("keep-alive", "30"),
        ("worker-processes", "auto"),
        ("disable-access-log", "true"),
        ("error-log-level", "notice"),
        ("allow-snippet-annotations", "false"),
    ];
    let loaded = Inputs { config_map: Some(config_map(&data)), ..Inputs::default() }.load().unwrap();
    let settings = &loaded.settings;
    assert!(!settings.use_http2 && !settings.access_log);
    assert_eq!((settings.proxy_body_size, settings.keep_alive.as_secs()), (None, 30));
    let notices: Vec<_> = loaded.notices.iter().map(Notice::to_string).collect();
    insta::assert_snapshot!(notices.join("\n"), @r"
    ConfigMap ingress/settings: allow-snippet-annotations: has no effect: it is off, as always here
    ConfigMap ingress/settings: worker-processes: has no effect: the number of workers is the setting `workers`
    ");
}

#[test]
fn a_config_map_with_snippets_is_refused_by_name() {
    let data =
        [("http-snippet", "proxy_cache_path /x;"), ("block-referers", "evil.example"), ("source", "x")];
    let error = Inputs { config_map: Some(config_map(&data)), ..Inputs::default() }.load().unwrap_err();
    insta::assert_snapshot!(error, @r"
    ConfigMap ingress/settings: block-referers: not supported: it restricts access and is not enforced for the whole gateway; use the annotation on each Ingress
    ConfigMap ingress/settings: http-snippet: not supported: snippets of nginx configuration cannot be run
    ConfigMap ingress/settings: source: is needed before the ConfigMap can be read; give it elsewhere
    ");
}

#[test]
fn notices_serialize_with_their_place() {
    let notice = Notice {
        origin: Origin::File(Arc::new("/etc/settings.yaml".into()), 3),
        key: "geoip-path".into(),
        message: "has no effect".into(),
    };
    assert_eq!(
        serde_json::to_value(&notice).unwrap(),
        serde_json::json!({"origin": "/etc/settings.yaml:3", "key": "geoip-path", "message": "has no effect"})
    );
}

#[test]
fn a_password_in_a_proxy_url_is_refused_and_not_repeated() {
    for setting in [
        "ocsp-proxy: http://user:hunter2@proxy:3128",
        "ocsp-proxy: user:hunter2@proxy",
        "ocsp-responder-overrides: { \"http://a/\": \"http://user:hunter2@b/\" }",
        "ocsp-responder-overrides: [\"http://a/=http://user:hunter2@b/\"]",
        "ocsp-responder-overrides: [\"http://user:hunter2@b/\"]",
        "ocsp-responder-overrides: { \"http://user:hunter2@a/\": \"http://b/\" }",
    ] {
        let error = load_file("settings.yaml", setting).unwrap_err();
        assert!(error.starts_with("settings.yaml:1: ocsp-") && error.contains('…'), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn urls_that_cannot_be_asked_are_errors_that_name_key_value_and_expectation() {
    for (setting, expected) in [
        ("ocsp-proxy: proxy:3128", "ocsp-proxy: \"proxy:3128\" is not a URL such as http://"),
        ("ocsp-proxy: https://proxy/", "ocsp-proxy: \"https://proxy/\" must start with http://"),
        ("ocsp-proxy: http://proxy:22", "ocsp-proxy: \"http://proxy:22\" is not a URL such as http://"),
        (
            "ocsp-responder-overrides: { \"http://a/\": \"ftp://b/\" }",
            "ocsp-responder-overrides: \"ftp://b/\" is not a URL such as http://",
        ),
        (
            "ocsp-responder-overrides: { a: \"http://b/\" }",
            "ocsp-responder-overrides: \"a=http://b/\" must be pairs of URLs",
        ),
    ] {
        let error = load_file("settings.yaml", setting).unwrap_err();
        assert!(error.starts_with(&format!("settings.yaml:1: {expected}")), "{error}");
    }
}

proptest! {
    #[test]
    fn no_file_panics(content in "[a-z0-9:\\-\\[\\]{}&*!|>'\"#%@ \n\t,?~.]{0,120}") {
        let _ = document::parse(Path::new("settings.yaml"), &content);
    }
}
