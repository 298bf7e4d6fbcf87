//! Annotations of an Ingress: one unit struct for each, one list of them all.
//!
//! `compile` asks for the effects on an Ingress and, apart from that, for what there is to say about its
//! annotations. Documentation, warnings and the suggestion for a misspelt name all come from [`ANNOTATIONS`]
//! and [`FOREIGN`]. A value that cannot be used is ignored alone: the setting or the default holds, unless the
//! annotation keeps somebody out and says what holds then.

mod affinity;
mod affinity_canary_behavior;
mod affinity_mode;
mod allowlist_source_range;
mod app_root;
mod auth_realm;
mod auth_secret;
mod auth_secret_type;
mod auth_tls_error_page;
mod auth_tls_match_cn;
mod auth_tls_pass_certificate_to_upstream;
mod auth_tls_secret;
mod auth_tls_verify_client;
mod auth_tls_verify_depth;
mod auth_type;
mod backend_mtls;
mod backend_protocol;
mod canary;
mod canary_by_cookie;
mod canary_by_header;
mod canary_by_header_pattern;
mod canary_by_header_value;
mod canary_weight;
mod canary_weight_total;
mod client_auth;
mod cors_allow_credentials;
mod cors_allow_headers;
mod cors_allow_methods;
mod cors_allow_origin;
mod cors_expose_headers;
mod cors_max_age;
mod default_backend;
mod denylist_source_range;
mod documentation;
mod enable_cors;
mod force_ssl_redirect;
mod foreign;
mod from_to_www_redirect;
pub mod issue_certificate;
mod limit_allowlist;
mod limit_burst_multiplier;
mod limit_connections;
mod limit_rpm;
mod limit_rps;
mod limit_whitelist;
mod permanent_redirect;
mod permanent_redirect_code;
mod policy_draft;
mod preserve_trailing_slash;
mod proxy_body_size;
mod proxy_connect_timeout;
mod proxy_read_timeout;
mod proxy_send_timeout;
mod relative_redirects;
mod rewrite_target;
mod satisfy;
mod server_alias;
mod service_upstream;
mod session_cookie_change_on_failure;
mod session_cookie_conditional_samesite_none;
mod session_cookie_domain;
mod session_cookie_expires;
mod session_cookie_max_age;
mod session_cookie_name;
mod session_cookie_path;
mod session_cookie_samesite;
mod session_cookie_secure;
mod ssl_redirect;
mod temporal_redirect;
mod temporal_redirect_code;
#[cfg(test)]
mod tests;
mod upstream_vhost;
mod use_regex;
mod values;
mod whitelist_source_range;
mod x_forwarded_prefix;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use client_auth::ClientAuthDraft;
pub use documentation::documentation;
pub use foreign::{FOREIGN, Treatment};
pub use policy_draft::{AuthDraft, PolicyDraft};
pub use upstream_vhost::BackendHost;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::names::annotation::{DEFAULT_BACKEND, SERVER_ALIAS};
use crate::settings::Settings;
use crate::snapshot::canary::CanaryRules;
use crate::snapshot::hosts::RoutePolicy;
use crate::snapshot::redirects::Redirect;
use crate::snapshot::rewrites::{Target, Template};
use crate::store::objects::{Kind, Metadata, is_subdomain};

/// The prefix of annotations that are our own; those of ingress-nginx are understood under it too.
pub const OWN_PREFIX: &str = "portcullis.dev";

/// Every annotation that has an effect, in the order of the documentation.
pub const ANNOTATIONS: &[&dyn Annotation] = &[
    &ssl_redirect::SslRedirect,
    &force_ssl_redirect::ForceSslRedirect,
    &preserve_trailing_slash::PreserveTrailingSlash,
    &permanent_redirect::PermanentRedirect,
    &permanent_redirect_code::PermanentRedirectCode,
    &temporal_redirect::TemporalRedirect,
    &temporal_redirect_code::TemporalRedirectCode,
    &relative_redirects::RelativeRedirects,
    &app_root::AppRoot,
    &from_to_www_redirect::FromToWwwRedirect,
    &use_regex::UseRegex,
    &rewrite_target::RewriteTarget,
    &x_forwarded_prefix::XForwardedPrefix,
    &upstream_vhost::UpstreamVhost,
    &service_upstream::ServiceUpstream,
    &server_alias::ServerAlias,
    &default_backend::DefaultBackend,
    &whitelist_source_range::WhitelistSourceRange,
    &allowlist_source_range::AllowlistSourceRange,
    &denylist_source_range::DenylistSourceRange,
    &auth_type::AuthType,
    &auth_secret::AuthSecret,
    &auth_secret_type::AuthSecretType,
    &auth_realm::AuthRealm,
    &satisfy::Satisfy,
    &limit_rps::LimitRps,
    &limit_rpm::LimitRpm,
    &limit_connections::LimitConnections,
    &limit_burst_multiplier::LimitBurstMultiplier,
    &limit_whitelist::LimitWhitelist,
    &limit_allowlist::LimitAllowlist,
    &enable_cors::EnableCors,
    &cors_allow_origin::CorsAllowOrigin,
    &cors_allow_methods::CorsAllowMethods,
    &cors_allow_headers::CorsAllowHeaders,
    &cors_expose_headers::CorsExposeHeaders,
    &cors_allow_credentials::CorsAllowCredentials,
    &cors_max_age::CorsMaxAge,
    &auth_tls_secret::AuthTlsSecret,
    &auth_tls_verify_client::AuthTlsVerifyClient,
    &auth_tls_verify_depth::AuthTlsVerifyDepth,
    &auth_tls_match_cn::AuthTlsMatchCn,
    &auth_tls_pass_certificate_to_upstream::AuthTlsPassCertificateToUpstream,
    &auth_tls_error_page::AuthTlsErrorPage,
    &backend_protocol::BackendProtocol,
    &backend_mtls::BackendMtls,
    &issue_certificate::IssueCertificate,
    &proxy_body_size::ProxyBodySize,
    &proxy_connect_timeout::ProxyConnectTimeout,
    &proxy_read_timeout::ProxyReadTimeout,
    &proxy_send_timeout::ProxySendTimeout,
    &affinity::Affinity,
    &affinity_mode::AffinityMode,
    &session_cookie_name::SessionCookieName,
    &session_cookie_max_age::SessionCookieMaxAge,
    &session_cookie_expires::SessionCookieExpires,
    &session_cookie_path::SessionCookiePath,
    &session_cookie_domain::SessionCookieDomain,
    &session_cookie_samesite::SessionCookieSamesite,
    &session_cookie_conditional_samesite_none::SessionCookieConditionalSamesiteNone,
    &session_cookie_secure::SessionCookieSecure,
    &session_cookie_change_on_failure::SessionCookieChangeOnFailure,
    &canary::Canary,
    &canary_by_header::CanaryByHeader,
    &canary_by_header_value::CanaryByHeaderValue,
    &canary_by_header_pattern::CanaryByHeaderPattern,
    &canary_by_cookie::CanaryByCookie,
    &canary_weight::CanaryWeight,
    &canary_weight_total::CanaryWeightTotal,
    &affinity_canary_behavior::AffinityCanaryBehavior,
];

/// One annotation.
pub trait Annotation: Sync {
    /// Its name, without the prefix.
    fn name(&self) -> &'static str;
    /// What it does, in one or two sentences.
    fn doc(&self) -> &'static str;
    /// What its value may be, to go after "must be".
    fn expects(&self) -> &'static str;
    fn example(&self) -> &'static str;
    /// What holds without it.
    fn default(&self) -> &'static str;
    /// Takes `value`, without blanks around it, into account. On an error `draft` is as it was.
    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError>;
    /// What becomes of a value that cannot be used.
    fn unusable(&self) -> Unusable {
        Unusable::Ignored
    }
    /// What of a value that can be used has no effect all the same.
    fn without_effect(&self, _value: &str) -> Option<String> {
        None
    }
}

/// What becomes of a value that cannot be used.
#[derive(Clone, Copy)]
pub enum Unusable {
    /// What holds without the annotation.
    Ignored,
    /// The annotation must not be left out, most often because it keeps somebody out: this is done in its place, and told.
    Strict { apply: fn(&mut PolicyDraft), consequence: &'static str },
}

/// What is said where [`Unusable::Strict`] closes the routes of the Ingress.
const CLOSES: &str = "Requests are refused (503) rather than served without it";

/// Why the value of an annotation cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    #[error("not a value it may have")]
    Value,
    #[error("a value that Portcullis does not support")]
    Unsupported,
}

/// The same where pages of other origins could do more than they should.
const NO_ORIGIN: &str = "No other origin is allowed until that is repaired";

/// What the annotations of an Ingress decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    pub policy: RoutePolicy,
    /// The annotation that must not be left out and whose value cannot be used: no route is to be served.
    pub refusal: Option<&'static str>,
    pub redirects: Redirects,
    /// Who must say a password, for `compile` to look up.
    pub auth: Option<AuthDraft>,
    pub client_auth: ClientAuthDraft,
    /// Which requests are the canary's, where the Ingress is one.
    pub canary: Option<Arc<CanaryRules>>,
    pub rewriting: Rewriting,
}

/// How the paths of an Ingress are meant, and what requests are changed into.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewriting {
    /// Paths are regular expressions; a target says the same of paths that are another text.
    pub use_regex: bool,
    pub target: Option<Arc<Target>>,
    /// X-Forwarded-Prefix.
    pub prefix: Option<Arc<Template>>,
    /// The Host of backends.
    pub host: Option<BackendHost>,
}

/// Redirects that stand in the place of routes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Redirects {
    /// For every request.
    pub all: Option<Arc<Redirect>>,
    /// For exactly `/`.
    pub root: Option<Arc<Redirect>>,
    /// To the hosts of the Ingress, from the same with or without `www.`.
    pub www: bool,
}

/// What the annotations of an Ingress decide; `settings` hold where they are silent.
pub fn effects(metadata: &Metadata, settings: &Settings) -> Effects {
    let mut draft = PolicyDraft::new(settings);
    for annotation in ANNOTATIONS {
        if let Some(value) = find(&metadata.annotations, settings, annotation.name()) {
            // `diagnose` reports a value that is refused here.
            if annotation.apply(value.trim(), &mut draft).is_err()
                && let Unusable::Strict { apply, .. } = annotation.unusable()
            {
                apply(&mut draft);
            }
        }
    }
    let (redirects, refusal, auth) = (draft.redirects(), draft.refusal, draft.auth.clone().wanted());
    let (client_auth, canary) = (std::mem::take(&mut draft.client_auth), draft.canary.finish());
    let rewriting = std::mem::take(&mut draft.rewriting);
    Effects { redirects, refusal, auth, client_auth, canary, rewriting, policy: draft.finish() }
}

/// The policy of an Ingress without annotations.
pub fn plain_policy(settings: &Settings) -> RoutePolicy {
    PolicyDraft::new(settings).finish()
}

/// The annotations that should keep somebody out and cannot, for whose sake the routes of this Ingress are not
/// to be served.
pub fn unsupported_protections(
    metadata: &Metadata,
    settings: &Settings,
) -> impl Iterator<Item = &'static str> {
    let closes = |name, treatment: &Treatment| {
        find(&metadata.annotations, settings, name).is_some_and(|value| treatment.closes_routes(value.trim()))
    };
    FOREIGN.iter().filter(move |(name, treatment)| closes(name, treatment)).map(|(name, _)| *name)
}

/// Whether a protection is one of the whole host, with the routes that other Ingresses have there, and not only
/// of the routes of the Ingress that asks for it.
pub fn protects_host(annotation: &str) -> bool {
    annotation == "server-snippet"
}

/// How findings name an annotation of an Ingress.
pub fn field_of(metadata: &Metadata, settings: &Settings, name: &str) -> String {
    let has = |prefix: &str| metadata.annotations.contains_key(&format!("{prefix}/{name}"));
    let prefix = if has(OWN_PREFIX) { OWN_PREFIX } else { &settings.annotations_prefix };
    format!("metadata.annotations[{}]", quoted(&format!("{prefix}/{name}")))
}

/// Whether this Ingress is a canary: it takes some requests of another one and brings no routes of its own.
pub fn is_canary(metadata: &Metadata, settings: &Settings) -> bool {
    find(&metadata.annotations, settings, "canary")
        .is_some_and(|value| values::boolean(value.trim()) == Ok(true))
}

/// Whether backends are reached by the addresses of their Services.
pub fn service_upstream(metadata: &Metadata, settings: &Settings) -> bool {
    let value = find(&metadata.annotations, settings, service_upstream::NAME);
    value.and_then(|value| values::boolean(value.trim()).ok()).unwrap_or(settings.service_upstream)
}

/// The Service that answers in place of one without endpoints.
pub fn default_backend<'a>(metadata: &'a Metadata, settings: &Settings) -> Option<&'a str> {
    let service = find(&metadata.annotations, settings, DEFAULT_BACKEND)?.trim();
    is_subdomain(service).then_some(service)
}

/// More names that the hosts of this Ingress shall have.
pub fn server_aliases(metadata: &Metadata, settings: &Settings) -> Vec<HostPattern> {
    let value = find(&metadata.annotations, settings, SERVER_ALIAS);
    value.and_then(|value| server_alias::hosts(value).ok()).unwrap_or_default()
}

/// All there is to say about the annotations of an Ingress.
pub fn diagnose(metadata: &Metadata, settings: &Settings) -> Vec<Diagnostic> {
    let object = ObjectRef::new(Kind::Ingress, &metadata.name);
    let is_canary = is_canary(metadata, settings);
    let finding = |(key, value): (&String, &String)| {
        let (prefix, name) = split_prefix(key, settings)?;
        // What a canary has in common with its main Ingress counts there.
        if is_canary && is_known(name) && !canary::is_about_canaries(name) {
            return None;
        }
        let (severity, reason, message) = match name == issue_certificate::NAME && prefix != OWN_PREFIX {
            true => (Severity::Warning, "UnknownAnnotation", issue_certificate::foreign(prefix)),
            false => judge(name, value.trim(), settings)?,
        };
        let field = format!("metadata.annotations[{}]", quoted(key));
        Some(Diagnostic::new(severity, object.clone(), field, reason, message))
    };
    metadata.annotations.iter().filter_map(finding).collect()
}

/// The value of an annotation; under our own prefix it wins.
fn find<'a>(
    annotations: &'a BTreeMap<String, String>,
    settings: &Settings,
    name: &str,
) -> Option<&'a String> {
    // Most Ingresses have few annotations or none: comparing them costs less than making names to look up.
    let under = |wanted: &str| {
        let is_it = |key: &str| key.split_once('/') == Some((wanted, name));
        annotations.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
    };
    under(OWN_PREFIX).or_else(|| under(&settings.annotations_prefix))
}

/// Prefix and name of an annotation that is meant for us.
fn split_prefix<'a>(key: &'a str, settings: &Settings) -> Option<(&'a str, &'a str)> {
    let (prefix, name) = key.split_once('/')?;
    (prefix == OWN_PREFIX || prefix == settings.annotations_prefix).then_some((prefix, name))
}

fn judge(name: &str, value: &str, settings: &Settings) -> Option<(Severity, &'static str, String)> {
    if let Some(annotation) = ANNOTATIONS.iter().find(|annotation| annotation.name() == name) {
        let Err(error) = annotation.apply(value, &mut PolicyDraft::new(settings)) else {
            return Some((Severity::Warning, "UnsupportedAnnotation", annotation.without_effect(value)?));
        };
        let consequence = match annotation.unusable() {
            Unusable::Ignored => format!("It is ignored; in force is: {}", annotation.default()),
            Unusable::Strict { consequence, .. } => consequence.to_owned(),
        };
        let message =
            format!("{name} must be {}; {} is {error}. {consequence}.", annotation.expects(), quoted(value));
        return Some((Severity::Error, "InvalidAnnotation", message));
    }
    match FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
        Some((_, treatment)) => treatment.finding(name, value),
        None => Some((Severity::Warning, "UnknownAnnotation", unknown(name))),
    }
}

fn is_known(name: &str) -> bool {
    ANNOTATIONS.iter().any(|annotation| annotation.name() == name)
        || FOREIGN.iter().any(|(foreign, _)| *foreign == name)
}

fn unknown(name: &str) -> String {
    let names = ANNOTATIONS.iter().map(|annotation| annotation.name());
    let nearest = names
        .chain(FOREIGN.iter().map(|(name, _)| *name))
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(4));
    match nearest {
        Some((_, known)) => format!("There is no annotation {}; did you mean {known}?", quoted(name)),
        None => format!("There is no annotation {}; it has no effect.", quoted(name)),
    }
}

/// How many characters must be added, dropped or changed to make `b` of `a` (Levenshtein). Names longer than
/// any that exists are not compared.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 64 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (done, from) in a.chars().enumerate() {
        let mut left = done + 1;
        let mut next = vec![left];
        for (to, above) in b.iter().zip(row.windows(2)) {
            let [diagonal, above] = above else { continue };
            left = (left + 1).min(above + 1).min(diagonal + usize::from(from != *to));
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}
