//! Phase 4: where a request is sent instead of to a backend, as its route says.

use std::borrow::Cow;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Uri};

use super::refusal::Refusal;
use super::target::authority_text;
use crate::names::canonical_host;
use crate::proxy::answers;
use crate::proxy::body::Body;
use crate::proxy::derived::Derived;
use crate::proxy::headers::Claimed;
use crate::snapshot::client_auth::ClientAuth;
use crate::snapshot::hosts::{Action, Host, HttpsRedirect, Route};
use crate::snapshot::redirects::{Asked, Redirect};

/// A request and what is known of where its client wanted to go.
pub struct Question<'a> {
    pub request: &'a Request<Body>,
    /// Canonical.
    pub host: Option<&'a str>,
    pub authority: Option<&'a HeaderValue>,
    /// Whether the connection has TLS.
    pub https: bool,
    pub claimed: Option<&'a Claimed>,
}

impl Question<'_> {
    /// What a route answers that sends every request on.
    pub fn follow(&self, redirect: &Redirect) -> Box<Refusal> {
        let Some(location) = self.fill(redirect) else {
            return Refusal::bad_request("the request has no host");
        };
        Refusal::ready(answers::redirect(redirect.status, location), "redirect")
    }

    /// A redirect away from what was asked for; `None` where it would lead there again.
    pub fn elsewhere(&self, redirect: &Redirect, reason: &'static str) -> Option<Box<Refusal>> {
        let location = self.fill(redirect)?;
        let target: Uri = location.to_str().ok()?.parse().ok()?;
        let is_ours = target
            .host()
            .is_none_or(|host| canonical_host(host).ok().as_deref() == self.origin().0.as_deref());
        match is_ours && target.path() == self.request.uri().path() {
            true => None,
            false => Some(Refusal::ready(answers::redirect(redirect.status, location), reason)),
        }
    }

    fn fill(&self, redirect: &Redirect) -> Option<HeaderValue> {
        let (host, port) = self.origin();
        let uri = self.request.uri();
        let asked = Asked {
            https: self.is_https(),
            host: host.as_deref(),
            port,
            path: uri.path(),
            query: uri.query(),
        };
        redirect.location.fill(&asked).and_then(|text| HeaderValue::try_from(text).ok())
    }

    /// The redirect of a request that came in the clear and should not have, unless its route sends it on anyway.
    pub fn to_https(&self, rules: &Host, route: &Route, settings: &Derived) -> Option<Box<Refusal>> {
        let wanted = match (route.policy.redirect, rules.client_auth.as_deref()) {
            (_, Some(ClientAuth::Refused)) => false,
            (HttpsRedirect::Never | HttpsRedirect::Exempt, _) => false,
            // A certificate of a client can only be shown there.
            (HttpsRedirect::IfTls, Some(auth)) if auth.wants_tls() => true,
            (HttpsRedirect::IfTls, _) => rules.has_tls,
            (HttpsRedirect::Always, _) => true,
        };
        if self.is_https() || !wanted || matches!(route.action, Action::Redirect(_)) {
            return None;
        }
        let (host, _) = self.origin();
        let host = host?;
        // `https://host` and `https://host/` are one (RFC 3986, section 6.2.3); ingress-nginx sends the former.
        let target = match self.request.uri().path_and_query().map_or("/", PathAndQuery::as_str) {
            "/" if !route.policy.preserve_trailing_slash => "",
            target => target,
        };
        let location = HeaderValue::from_str(&format!("https://{host}{target}")).ok()?;
        let status = Redirect::status(settings.settings.http_redirect_code);
        let response = answers::redirect(status, location);
        Some(Refusal::ready(response, "https_redirect"))
    }

    /// Whether the client came over TLS, to us or to whoever is believed about it.
    pub fn is_https(&self) -> bool {
        self.claimed.and_then(|claimed| claimed.https).unwrap_or(self.https)
    }

    /// The host that the client named, to the gateway or to whoever is believed about it, and the port with it.
    fn origin(&self) -> (Option<Cow<'_, str>>, Option<u16>) {
        let port = |text: &str| text.parse::<Authority>().ok().and_then(|authority| authority.port_u16());
        let claimed = self.claimed.and_then(|claimed| claimed.host.as_ref()?.to_str().ok());
        let host = claimed.and_then(|text| Some((canonical_host(text).ok()?, port(text))));
        if let Some((host, port)) = host {
            return (Some(host), port);
        }
        (self.host.map(Cow::Borrowed), self.authority.and_then(|authority| port(authority_text(authority))))
    }
}
