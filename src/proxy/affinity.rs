//! The session of one request: which endpoints it prefers, and the cookie that it gets where it has none that
//! says so.

use std::cell::Cell;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};

use super::cookies;
use crate::snapshot::affinity::{Affinity, AffinityMode, SameSite, SessionCookie, Token};
use crate::snapshot::clusters::Cluster;

/// How many keys are tried to find one that prefers an endpoint which has not failed.
const MOST_DRAWS: usize = 20;

/// The session that a request belongs to.
pub struct Session {
    mode: AffinityMode,
    change_on_failure: bool,
    /// What the client's cookie says.
    told: Option<Token>,
    /// The backend is one of two between which sessions are split, so the cookie must name it.
    split: bool,
    key: Cell<u64>,
    /// The identity of the endpoint chosen last.
    chosen: Cell<u64>,
    secure: bool,
    same_site: Option<SameSite>,
}

/// What a cookie says about a session of this affinity. Of several cookies the first that is one of ours counts.
pub fn token(headers: &HeaderMap, affinity: &Affinity) -> Option<Token> {
    cookies::all(headers, &affinity.cookie.name).find_map(Token::parse)
}

impl Session {
    /// `https` is how the client came; `split`, whether its backend is one of two.
    pub fn new(headers: &HeaderMap, affinity: &Affinity, https: bool, split: bool) -> Self {
        let cookie = &affinity.cookie;
        let told = token(headers, affinity);
        let unfit = || cookie.conditional_same_site_none && !knows_same_site_none(headers);
        Self {
            mode: affinity.mode,
            change_on_failure: affinity.change_on_failure,
            told,
            split,
            key: Cell::new(told.map_or_else(|| fastrand::u64(..), |told| told.key)),
            chosen: Cell::default(),
            secure: cookie.secure.unwrap_or(https),
            same_site: cookie.same_site.filter(|same_site| *same_site != SameSite::None || !unfit()),
        }
    }

    /// The place of the endpoint of `cluster` to ask next, of those that were not `tried`; where all were, of all.
    pub fn choose(&self, cluster: &Cluster, tried: impl Fn(usize) -> bool) -> Option<usize> {
        let failed = (0..cluster.endpoints.len()).any(&tried);
        if failed && self.may_move(cluster) {
            self.draw_anew(cluster, &tried);
        }
        let home = match self.mode {
            AffinityMode::Balanced => None,
            AffinityMode::Persistent => cluster.position_of(self.key.get()).filter(|at| !tried(*at)),
        };
        let at = home
            .or_else(|| cluster.first_for(self.key.get(), |at| !tried(at)))
            .or_else(|| cluster.first_for(self.key.get(), |_| true))?;
        self.chosen.set(*cluster.ids().get(at)?);
        Some(at)
    }

    /// A key that prefers an endpoint which was not tried, so that the session will not try that one first again.
    fn draw_anew(&self, cluster: &Cluster, tried: impl Fn(usize) -> bool) {
        for _ in 0..MOST_DRAWS {
            let key = fastrand::u64(..);
            if cluster.first_for(key, |_| true).is_some_and(|at| !tried(at)) {
                self.key.set(key);
                return;
            }
        }
    }

    /// Whether nothing binds the session to an endpoint of `cluster` that could not answer.
    fn may_move(&self, cluster: &Cluster) -> bool {
        self.change_on_failure || !self.is_bound(cluster)
    }

    /// Whether the client's cookie says which endpoint of `cluster` is that of the session.
    fn is_bound(&self, cluster: &Cluster) -> bool {
        self.told.is_some_and(|told| match self.mode {
            AffinityMode::Balanced => true,
            AffinityMode::Persistent => cluster.position_of(told.key).is_some(),
        })
    }

    /// The cookie to set, after the endpoint chosen last has answered; none where that of the client says it all.
    pub fn cookie(&self, cluster: &Cluster, cookie: &SessionCookie, path: &str) -> Option<HeaderValue> {
        let key = match self.mode {
            AffinityMode::Balanced => self.key.get(),
            AffinityMode::Persistent if self.may_move(cluster) => self.chosen.get(),
            AffinityMode::Persistent => self.key.get(),
        };
        let token = Token { key, tag: cluster.tag() };
        let known = self.told.is_some_and(|told| told.key == key && (!self.split || told.tag == token.tag));
        if known { None } else { self.write(token, cookie, path, SystemTime::now()) }
    }

    /// In the order in which ingress-nginx writes the attributes.
    fn write(
        &self,
        token: Token,
        cookie: &SessionCookie,
        path: &str,
        now: SystemTime,
    ) -> Option<HeaderValue> {
        let mut line = format!("{}={token}", cookie.name);
        if let Some(seconds) = cookie.expires {
            let end = now + Duration::from_secs(seconds.into());
            let _ = write!(line, "; Expires={}", httpdate::fmt_http_date(end));
        }
        if let Some(seconds) = cookie.max_age {
            let _ = write!(line, "; Max-Age={seconds}");
        }
        if let Some(domain) = &cookie.domain {
            let _ = write!(line, "; Domain={domain}");
        }
        let _ = write!(line, "; Path={}", cookie.path.as_deref().unwrap_or_else(|| cookie_path(path)));
        if self.secure {
            line.push_str("; Secure");
        }
        line.push_str("; HttpOnly");
        if let Some(same_site) = self.same_site {
            let _ = write!(line, "; SameSite={}", same_site.as_str());
        }
        HeaderValue::try_from(line).ok()
    }
}

/// The path of a route as one for a cookie, which is for the same requests or for more: `/x/` would not be sent to `/x`,
/// which the route is for too, and what cannot stand in an attribute ends it.
fn cookie_path(path: &str) -> &str {
    let odd = path.bytes().position(|byte| byte == b';' || !byte.is_ascii_graphic());
    let whole = match odd {
        Some(odd) => path.get(..odd).and_then(|fits| Some(fits.rsplit_once('/')?.0)).unwrap_or(""),
        None => path,
    };
    match whole.trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}

/// Whether the browser is none that takes `SameSite=None` for something else: those that ingress-nginx knows.
fn knows_same_site_none(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("");
    let has = |part: &str| agent.contains(part);
    let version = agent.split_once("Chrome/").map_or("", |(_, rest)| rest);
    let version = version.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or("");
    let old_chrome = matches!(version.parse(), Ok(40_u32..70));
    let old_ios = has("CPU iPhone OS 12") || has("iPad; CPU OS 12");
    let old_safari = has("Macintosh") && has("Intel Mac OS X 10_14") && has("Safari") && !has("Chrome");
    !(old_chrome || old_ios || old_safari)
}

#[cfg(test)]
mod tests;
