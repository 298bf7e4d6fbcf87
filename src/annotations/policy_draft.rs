//! A route policy while annotations are applied to it.

use std::time::Duration;

use crate::settings::Settings;
use crate::snapshot::hosts::{BackendProtocol, HttpsRedirect, RoutePolicy};

/// What annotations change, starting from the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDraft {
    pub ssl_redirect: bool,
    /// Wins over `ssl_redirect`.
    pub force_ssl_redirect: bool,
    pub protocol: BackendProtocol,
    pub backend_mtls: bool,
    /// Bytes; `None` is unlimited.
    pub max_body: Option<u64>,
    pub connect_timeout: Duration,
    pub read_timeout: Duration,
    pub send_timeout: Duration,
}

impl PolicyDraft {
    /// What holds without any annotation.
    pub fn new(settings: &Settings) -> Self {
        Self {
            ssl_redirect: settings.ssl_redirect,
            force_ssl_redirect: settings.force_ssl_redirect,
            protocol: BackendProtocol::Http1,
            backend_mtls: false,
            max_body: settings.proxy_body_size,
            connect_timeout: settings.proxy_connect_timeout,
            read_timeout: settings.proxy_read_timeout,
            send_timeout: settings.proxy_send_timeout,
        }
    }

    pub fn finish(self) -> RoutePolicy {
        let redirect = match (self.force_ssl_redirect, self.ssl_redirect) {
            (true, _) => HttpsRedirect::Always,
            (false, true) => HttpsRedirect::IfTls,
            (false, false) => HttpsRedirect::Never,
        };
        RoutePolicy {
            redirect,
            protocol: match (self.backend_mtls, self.protocol) {
                // Who asks for certificates on both sides never gets a plain connection.
                (true, BackendProtocol::Http1) => BackendProtocol::Https,
                (true, BackendProtocol::H2c) => BackendProtocol::Grpcs,
                (_, protocol) => protocol,
            },
            backend_mtls: self.backend_mtls,
            max_body: self.max_body,
            connect_timeout: self.connect_timeout,
            read_timeout: self.read_timeout,
            send_timeout: self.send_timeout,
        }
    }
}
