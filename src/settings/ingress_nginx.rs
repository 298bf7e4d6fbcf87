//! Keys that ingress-nginx has in its ConfigMap and Portcullis does not have as settings.
//!
//! `load` asks here before it calls a key unknown. What merely tunes nginx is accepted with a notice; what
//! would inject configuration, or restrict access in a way that is not enforced here, is refused by name,
//! because dropping it silently would leave a gateway more open than its owner believes.

use super::value::{Raw, Scalar};
use crate::settings::field::Unit;

/// What becomes of a key of ingress-nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Means the same as this setting with this value.
    SameAs(&'static str, Raw),
    /// Accepted, and the reason why it does nothing.
    NoEffect(&'static str),
    /// An error, and the reason.
    Refused(&'static str),
}

/// What becomes of `key`, if ingress-nginx has it.
pub(super) fn treatment(key: &str, value: &Raw) -> Option<Treatment> {
    if let Some(same) = alias(key, value) {
        return Some(same);
    }
    if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == key) {
        return Some(match is_off(value) {
            true => Treatment::NoEffect("it is off, as always here"),
            false => Treatment::Refused(reason),
        });
    }
    NO_EFFECT
        .iter()
        .find(|(prefix_or_key, _)| match prefix_or_key.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => *prefix_or_key == key,
        })
        .map(|(_, reason)| Treatment::NoEffect(reason))
}

/// Keys that are another way to write one of our settings.
fn alias(key: &str, value: &Raw) -> Option<Treatment> {
    let Raw::Text(text) = value else { return None };
    let text = text.trim();
    let (setting, value) = match key {
        "disable-access-log" => ("access-log", (!bool::read(text, Unit::None)?).to_string()),
        "error-log-level" => ("log-level", log_level(text)?.to_owned()),
        _ => return None,
    };
    Some(Treatment::SameAs(setting, Raw::Text(value)))
}

/// The levels of nginx, in ours.
fn log_level(nginx: &str) -> Option<&'static str> {
    Some(match nginx {
        "emerg" | "alert" | "crit" | "error" => "error",
        "warn" => "warn",
        "notice" | "info" => "info",
        "debug" => "debug",
        _ => return None,
    })
}

/// Whether a refused key asks for nothing.
fn is_off(value: &Raw) -> bool {
    match value {
        Raw::Text(text) => text.trim().is_empty() || bool::read(text.trim(), Unit::None) == Some(false),
        Raw::List(items) => items.is_empty(),
        Raw::Map(entries) => entries.is_empty(),
    }
}

const SNIPPET: &str = "snippets of nginx configuration cannot be run";
const FIREWALL: &str = "there is no web application firewall";
const ACCESS: &str =
    "it restricts access and is not enforced for the whole gateway; use the annotation on each Ingress";

const REFUSED: &[(&str, &str)] = &[
    ("main-snippet", SNIPPET),
    ("http-snippet", SNIPPET),
    ("server-snippet", SNIPPET),
    ("location-snippet", SNIPPET),
    ("stream-snippet", SNIPPET),
    ("global-auth-snippet", SNIPPET),
    ("allow-snippet-annotations", SNIPPET),
    ("enable-modsecurity", FIREWALL),
    ("modsecurity-snippet", FIREWALL),
    ("enable-owasp-modsecurity-crs", FIREWALL),
    ("block-user-agents", ACCESS),
    ("block-referers", ACCESS),
    ("global-auth-url", ACCESS),
];

const NGINX_ONLY: &str = "it tunes nginx itself";
const NOT_HERE: &str = "Portcullis does not have it";

/// A name that ends in `*` stands for all keys that start with it.
const NO_EFFECT: &[(&str, &str)] = &[
    ("lua-shared-dicts", NGINX_ONLY),
    ("worker-processes", "the number of workers is the setting `workers`"),
    ("worker-cpu-affinity", NGINX_ONLY),
    ("max-worker-connections", "connections per worker are the setting `max-connections`"),
    ("max-worker-open-files", NGINX_ONLY),
    ("server-name-hash-max-size", NGINX_ONLY),
    ("server-name-hash-bucket-size", NGINX_ONLY),
    ("map-hash-bucket-size", NGINX_ONLY),
    ("variables-hash-bucket-size", NGINX_ONLY),
    ("variables-hash-max-size", NGINX_ONLY),
    ("proxy-headers-hash-max-size", NGINX_ONLY),
    ("proxy-headers-hash-bucket-size", NGINX_ONLY),
    ("reuse-port", "every worker has sockets of its own, always"),
    ("enable-aio-write", NGINX_ONLY),
    ("enable-multi-accept", NGINX_ONLY),
    ("grpc-buffer-size-kb", NGINX_ONLY),
    ("client-header-buffer-size", NGINX_ONLY),
    ("client-body-buffer-size", NGINX_ONLY),
    ("large-client-header-buffers", "the size of request heads is the setting `client-max-header-bytes`"),
    ("proxy-buffer-size", NGINX_ONLY),
    ("proxy-buffers-number", NGINX_ONLY),
    ("proxy-busy-buffers-size", NGINX_ONLY),
    ("proxy-buffering", "bodies are streamed, always"),
    ("proxy-request-buffering", "bodies are streamed, always"),
    ("ssl-buffer-size", "records grow with the connection"),
    ("ssl-dh-param", "finite-field key exchange is not offered"),
    ("ssl-session-cache", "sessions are resumed with tickets alone"),
    ("ssl-session-cache-size", "sessions are resumed with tickets alone"),
    (
        "ssl-session-ticket-key",
        "ticket keys of replicas are in the Secret that the setting `ssl-session-ticket-secret` names",
    ),
    ("ssl-early-data", "early data can be replayed and is not accepted"),
    ("http2-max-field-size", "nginx itself ignores it"),
    ("http2-max-header-size", "nginx itself ignores it"),
    ("http2-max-requests", "nginx itself ignores it"),
    ("disable-ipv6", "the addresses are the setting `bind-address`"),
    ("disable-ipv6-dns", NOT_HERE),
    ("enable-real-ip", "peers to believe are the setting `proxy-real-ip-cidr`"),
    ("access-log-path", "logs go to the standard output"),
    ("error-log-path", "logs go to the standard error"),
    ("log-format-*", "the form of log lines is the setting `log-format`"),
    ("syslog-*", NOT_HERE),
    ("enable-syslog", NOT_HERE),
    ("geoip*", NOT_HERE),
    ("use-geoip*", NOT_HERE),
    ("otel-*", NOT_HERE),
    ("opentelemetry-*", NOT_HERE),
    ("enable-opentelemetry", NOT_HERE),
    ("enable-brotli", NOT_HERE),
    ("brotli-*", NOT_HERE),
    ("use-gzip", NOT_HERE),
    ("gzip-*", NOT_HERE),
    ("keep-alive-requests", "connections are not limited in requests"),
    ("upstream-keepalive-requests", "connections are not limited in requests"),
    ("upstream-keepalive-time", NOT_HERE),
    (
        "proxy-next-upstream",
        "what may be tried again follows from the request and the setting `retry-non-idempotent`",
    ),
    ("proxy-next-upstream-timeout", NOT_HERE),
    ("custom-http-errors", NOT_HERE),
    ("add-headers", NOT_HERE),
    ("proxy-set-headers", NOT_HERE),
    ("hide-headers", NOT_HERE),
    ("forwarded-for-header", NOT_HERE),
    ("forwarded-for-proxy-protocol-header", NOT_HERE),
    ("generate-request-id", NOT_HERE),
    ("load-balance", "it is an annotation of an Ingress"),
    ("skip-access-log-urls", NOT_HERE),
    ("annotations-risk-level", "annotations cannot inject configuration"),
    ("annotation-value-word-blocklist", "annotations cannot inject configuration"),
    ("allow-cross-namespace-resources", "a Secret of another namespace is never used"),
    ("strict-validate-path-type", "paths are validated, always"),
    ("global-allowed-response-headers", NOT_HERE),
    ("global-auth-*", "it goes with `global-auth-url`"),
    ("no-auth-locations", "it goes with `global-auth-url`"),
    ("relative-redirects", NOT_HERE),
    ("ssl-prefer-server-ciphers", "the server's order counts, always"),
    ("proxy-ssl-location-only", NGINX_ONLY),
    ("proxy-stream-*", NOT_HERE),
    ("proxy-cookie-*", "it is an annotation of an Ingress"),
    ("proxy-http-version", NGINX_ONLY),
    ("proxy-redirect-*", NOT_HERE),
    ("proxy-add-original-uri-header", NOT_HERE),
    ("use-port-in-redirects", NOT_HERE),
    ("ignore-invalid-headers", "invalid headers are refused, always"),
    ("merge-slashes", NOT_HERE),
    ("debug-connections", NOT_HERE),
    ("default-type", NOT_HERE),
    ("bind-address-ipv4", "the addresses are the setting `bind-address`"),
    ("bind-address-ipv6", "the addresses are the setting `bind-address`"),
];

#[cfg(test)]
mod tests;
