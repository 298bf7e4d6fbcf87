//! Annotations of ingress-nginx that have no effect here, and what is said about each.

use crate::diagnostics::Severity;

/// What happens to an annotation that is known but not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It tunes nginx; nothing is lost without it.
    NoEffect,
    /// Not supported yet.
    Unsupported,
    /// Not supported yet, and what it should keep out would get in: the routes of the Ingress are closed,
    /// unless the value is empty or this one, which asks for nothing.
    Protection { off: &'static str },
    /// Configuration code of nginx, which is never run. It may be what keeps somebody out, so it closes the
    /// routes of the Ingress too.
    Code,
    /// Configuration code for what no route is part of.
    UnrelatedCode,
}

impl Treatment {
    /// Severity, reason and message for an annotation called `name`; nothing for one that does no harm.
    pub(super) fn finding(self, name: &str, value: &str) -> Option<(Severity, &'static str, String)> {
        match self {
            Self::NoEffect => None,
            Self::Protection { .. } | Self::Code if !self.closes_routes(value) => None,
            Self::Unsupported => Some((
                Severity::Warning,
                "UnsupportedAnnotation",
                format!("{name} is not supported yet; it has no effect."),
            )),
            Self::Protection { .. } => Some((
                Severity::Error,
                "UnsupportedAnnotation",
                format!(
                    "{name} is not supported yet; requests are refused (503) rather than served without this \
                     protection."
                ),
            )),
            Self::Code => Some((
                Severity::Error,
                "SnippetRefused",
                format!(
                    "{name} is code for nginx and never run. It may protect something, so requests are refused \
                     (503); use annotations for what it does."
                ),
            )),
            Self::UnrelatedCode => {
                Some((Severity::Error, "SnippetRefused", format!("{name} is code for nginx and never run.")))
            }
        }
    }

    /// Whether an Ingress with this annotation is better not served.
    pub(super) fn closes_routes(self, value: &str) -> bool {
        match self {
            Self::Protection { off } => !value.is_empty() && !value.eq_ignore_ascii_case(off),
            Self::Code => !value.is_empty(),
            Self::NoEffect | Self::Unsupported | Self::UnrelatedCode => false,
        }
    }
}

/// Every such annotation by name, in alphabetical order.
pub const FOREIGN: &[(&str, Treatment)] = &[
    ("add-base-url", Treatment::Unsupported),
    ("auth-always-set-cookie", Treatment::Unsupported),
    ("auth-cache-duration", Treatment::Unsupported),
    ("auth-cache-key", Treatment::Unsupported),
    ("auth-keepalive", Treatment::Unsupported),
    ("auth-keepalive-requests", Treatment::Unsupported),
    ("auth-keepalive-share-vars", Treatment::Unsupported),
    ("auth-keepalive-timeout", Treatment::Unsupported),
    ("auth-method", Treatment::Unsupported),
    ("auth-proxy-set-headers", Treatment::Unsupported),
    ("auth-request-redirect", Treatment::Unsupported),
    ("auth-response-headers", Treatment::Unsupported),
    ("auth-signin", Treatment::Unsupported),
    ("auth-signin-redirect-param", Treatment::Unsupported),
    ("auth-snippet", Treatment::Code),
    ("auth-url", Treatment::Protection { off: "" }),
    ("base-url-scheme", Treatment::Unsupported),
    ("client-body-buffer-size", Treatment::Unsupported),
    ("configuration-snippet", Treatment::Code),
    ("connection-proxy-header", Treatment::Unsupported),
    ("custom-headers", Treatment::Unsupported),
    ("custom-http-errors", Treatment::Unsupported),
    ("disable-proxy-intercept-errors", Treatment::Unsupported),
    ("enable-access-log", Treatment::NoEffect),
    ("enable-global-auth", Treatment::Unsupported),
    ("enable-modsecurity", Treatment::Protection { off: "false" }),
    ("enable-opentelemetry", Treatment::Unsupported),
    ("enable-opentracing", Treatment::Unsupported),
    ("enable-owasp-core-rules", Treatment::Protection { off: "false" }),
    ("enable-rewrite-log", Treatment::Unsupported),
    ("fastcgi-index", Treatment::Unsupported),
    ("fastcgi-params-configmap", Treatment::Unsupported),
    ("global-rate-limit", Treatment::Protection { off: "0" }),
    ("global-rate-limit-ignored-cidrs", Treatment::Unsupported),
    ("global-rate-limit-key", Treatment::Unsupported),
    ("global-rate-limit-window", Treatment::Unsupported),
    ("grpc-backend", Treatment::Unsupported),
    ("http2-push-preload", Treatment::Unsupported),
    ("limit-rate", Treatment::Unsupported),
    ("limit-rate-after", Treatment::Unsupported),
    ("load-balance", Treatment::Unsupported),
    ("mirror-host", Treatment::Unsupported),
    ("mirror-request-body", Treatment::Unsupported),
    ("mirror-target", Treatment::Unsupported),
    ("modsecurity-snippet", Treatment::Code),
    ("modsecurity-transaction-id", Treatment::Unsupported),
    ("opentelemetry-operation-name", Treatment::Unsupported),
    ("opentelemetry-trust-incoming-span", Treatment::Unsupported),
    ("proxy-buffer-size", Treatment::NoEffect),
    ("proxy-buffering", Treatment::NoEffect),
    ("proxy-buffers-number", Treatment::NoEffect),
    ("proxy-busy-buffers-size", Treatment::Unsupported),
    ("proxy-cookie-domain", Treatment::Unsupported),
    ("proxy-cookie-path", Treatment::Unsupported),
    ("proxy-http-version", Treatment::Unsupported),
    ("proxy-max-temp-file-size", Treatment::Unsupported),
    ("proxy-next-upstream", Treatment::Unsupported),
    ("proxy-next-upstream-timeout", Treatment::Unsupported),
    ("proxy-next-upstream-tries", Treatment::Unsupported),
    ("proxy-redirect-from", Treatment::Unsupported),
    ("proxy-redirect-to", Treatment::Unsupported),
    ("proxy-request-buffering", Treatment::NoEffect),
    ("proxy-ssl-ciphers", Treatment::Unsupported),
    ("proxy-ssl-name", Treatment::Unsupported),
    ("proxy-ssl-protocols", Treatment::Unsupported),
    ("proxy-ssl-secret", Treatment::Unsupported),
    ("proxy-ssl-server-name", Treatment::Unsupported),
    ("proxy-ssl-verify", Treatment::Unsupported),
    ("proxy-ssl-verify-depth", Treatment::Unsupported),
    ("secure-backends", Treatment::Unsupported),
    ("secure-verify-ca-secret", Treatment::Unsupported),
    ("server-snippet", Treatment::Code),
    ("ssl-ciphers", Treatment::Unsupported),
    ("ssl-passthrough", Treatment::Unsupported),
    ("ssl-prefer-server-ciphers", Treatment::Unsupported),
    ("stream-snippet", Treatment::UnrelatedCode),
    ("upstream-hash-by", Treatment::Unsupported),
    ("upstream-hash-by-subset", Treatment::Unsupported),
    ("upstream-hash-by-subset-size", Treatment::Unsupported),
    ("use-port-in-redirects", Treatment::Unsupported),
];
