//! What annotations decide, while they are applied.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use ipnet::IpNet;

use super::affinity::AffinityDraft;
use super::canary::CanaryDraft;
use super::{ClientAuthDraft, Redirects, Rewriting};
use crate::settings::Settings;
use crate::snapshot::access::SourceRanges;
use crate::snapshot::cors::{Cors, Origins};
use crate::snapshot::hosts::{BackendProtocol, HttpsRedirect, RoutePolicy};
use crate::snapshot::limits::{Limits, Stated};
use crate::snapshot::redirects::{Location, Redirect};

/// Who must say a password.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthDraft {
    pub basic: bool,
    /// The Secret with the users, as the annotation has it.
    pub secret: Option<String>,
    /// Its keys are the users.
    pub is_map: bool,
    pub realm: String,
    /// A client whose network is allowed needs no password.
    pub or_source: bool,
}

impl AuthDraft {
    /// `None` where no password is asked for.
    pub fn wanted(self) -> Option<Self> {
        (self.basic || self.secret.is_some()).then_some(self)
    }
}

/// What annotations change, starting from the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDraft {
    pub ssl_redirect: bool,
    /// Wins over `ssl_redirect`.
    pub force_ssl_redirect: bool,
    pub preserve_trailing_slash: bool,
    pub permanent_redirect: Option<Location>,
    pub permanent_redirect_code: StatusCode,
    /// Wins over `permanent_redirect`.
    pub temporal_redirect: Option<Location>,
    pub temporal_redirect_code: StatusCode,
    pub relative_redirects: bool,
    pub app_root: Option<Location>,
    pub from_to_www_redirect: bool,
    pub rewriting: Rewriting,
    pub protocol: BackendProtocol,
    pub backend_mtls: bool,
    /// Empty: everybody.
    pub allowed_sources: Vec<IpNet>,
    pub denied_sources: Vec<IpNet>,
    pub auth: AuthDraft,
    pub limits: Stated,
    pub enable_cors: bool,
    pub cors: Cors,
    /// What other origins may do cannot be made out.
    pub cors_refused: bool,
    /// The annotation that should keep somebody out and whose value cannot be used.
    pub refusal: Option<&'static str>,
    pub client_auth: ClientAuthDraft,
    /// Bytes; `None` is unlimited.
    pub max_body: Option<u64>,
    pub connect_timeout: Duration,
    pub read_timeout: Duration,
    pub send_timeout: Duration,
    pub affinity: AffinityDraft,
    pub canary: CanaryDraft,
}

impl PolicyDraft {
    /// What holds without any annotation.
    pub fn new(settings: &Settings) -> Self {
        Self {
            ssl_redirect: settings.ssl_redirect,
            force_ssl_redirect: settings.force_ssl_redirect,
            preserve_trailing_slash: false,
            permanent_redirect: None,
            permanent_redirect_code: StatusCode::MOVED_PERMANENTLY,
            temporal_redirect: None,
            temporal_redirect_code: StatusCode::FOUND,
            relative_redirects: false,
            app_root: None,
            from_to_www_redirect: false,
            rewriting: Rewriting::default(),
            protocol: BackendProtocol::Http1,
            backend_mtls: false,
            allowed_sources: settings.whitelist_source_range.clone(),
            denied_sources: settings.denylist_source_range.clone(),
            auth: AuthDraft::default(),
            limits: Stated::default(),
            enable_cors: false,
            cors: Cors::default(),
            cors_refused: false,
            refusal: None,
            client_auth: ClientAuthDraft::default(),
            max_body: settings.proxy_body_size,
            connect_timeout: settings.proxy_connect_timeout,
            read_timeout: settings.proxy_read_timeout,
            send_timeout: settings.proxy_send_timeout,
            affinity: AffinityDraft::default(),
            canary: CanaryDraft::default(),
        }
    }

    /// The redirects that stand in the place of routes.
    pub fn redirects(&self) -> Redirects {
        let permanent = self.permanent_redirect.clone().map(|to| (to, self.permanent_redirect_code));
        let temporal = self.temporal_redirect.clone().map(|to| (to, self.temporal_redirect_code));
        let all = temporal.or(permanent).map(|(to, status)| {
            let location = if self.relative_redirects { to } else { to.absolute() };
            Arc::new(Redirect { status, location })
        });
        let root = self.app_root.clone().map(|path| {
            let location = path.absolute();
            Arc::new(Redirect { status: StatusCode::FOUND, location })
        });
        Redirects { all, root, www: self.from_to_www_redirect }
    }

    /// The policy of the routes.
    pub fn finish(self) -> RoutePolicy {
        let redirect = match (self.force_ssl_redirect, self.ssl_redirect) {
            (true, _) => HttpsRedirect::Always,
            (false, true) => HttpsRedirect::IfTls,
            (false, false) => HttpsRedirect::Never,
        };
        let cors = match self.cors_refused {
            true => Cors { origins: Origins::These(Box::default()), ..self.cors },
            false => self.cors,
        };
        RoutePolicy {
            redirect,
            preserve_trailing_slash: self.preserve_trailing_slash,
            protocol: match (self.backend_mtls, self.protocol) {
                // Who asks for certificates on both sides never gets a plain connection.
                (true, BackendProtocol::Http1) => BackendProtocol::Https,
                (true, BackendProtocol::H2c) => BackendProtocol::Grpcs,
                (_, protocol) => protocol,
            },
            backend_mtls: self.backend_mtls,
            cors: self.enable_cors.then(|| Arc::new(cors)),
            auth: None,
            limits: Limits::new(&self.limits),
            sources: SourceRanges::new(&self.allowed_sources, &self.denied_sources),
            max_body: self.max_body,
            connect_timeout: self.connect_timeout,
            read_timeout: self.read_timeout,
            send_timeout: self.send_timeout,
            affinity: self.affinity.finish(),
        }
    }
}
