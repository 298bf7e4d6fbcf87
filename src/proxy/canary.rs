//! Which of two backends a request is for, where a route has a canary.

use std::sync::Arc;

use http::HeaderMap;

use super::{affinity, cookies};
use crate::snapshot::canary::{Canary, CanaryRules, HeaderRule, HeaderValues};
use crate::snapshot::clusters::{Cluster, ClusterMap};
use crate::snapshot::hosts::{Action, Route};

/// The route that a request takes: `main`, or that of its canary. One whose backend has no endpoint gets nothing.
pub fn choose<'a>(
    main: &'a Arc<Route>,
    canary: &'a Canary,
    headers: &HeaderMap,
    clusters: &ClusterMap,
) -> &'a Arc<Route> {
    let new = cluster_of(&canary.route, clusters).filter(|cluster| !cluster.endpoints.is_empty());
    let Some(new) = new else { return main };
    let affinity = main.policy.affinity.as_ref().filter(|_| canary.rules.sticky);
    let tag = affinity.and_then(|affinity| affinity::token(headers, affinity)).map(|token| token.tag);
    let stays_at = |cluster: &Cluster| tag == Some(cluster.tag());
    if cluster_of(main, clusters).is_some_and(|old| stays_at(old)) {
        return main;
    }
    if stays_at(new) || takes(&canary.rules, headers) { &canary.route } else { main }
}

fn cluster_of<'a>(route: &Route, clusters: &'a ClusterMap) -> Option<&'a Arc<Cluster>> {
    match &route.action {
        Action::Forward(key) => clusters.get(key),
        _ => None,
    }
}

/// Whether the rules give a request to the canary.
fn takes(rules: &CanaryRules, headers: &HeaderMap) -> bool {
    let by_header = || rules.header.as_ref().and_then(|rule| by_header(rule, headers));
    let by_cookie = || word(cookies::all(headers, rules.cookie.as_ref()?).next()?);
    by_header().or_else(by_cookie).unwrap_or_else(|| fastrand::u32(0..rules.total.max(1)) < rules.weight)
}

/// What the header says, if anything.
fn by_header(rule: &HeaderRule, headers: &HeaderMap) -> Option<bool> {
    let value = headers.get(&rule.name)?.as_bytes();
    match &rule.values {
        HeaderValues::Words => word(value),
        HeaderValues::Exactly(wanted) => (value == wanted.as_bytes()).then_some(true),
        HeaderValues::Matching(pattern) => pattern.is_match(value).then_some(true),
    }
}

fn word(value: &[u8]) -> Option<bool> {
    match value {
        b"always" => Some(true),
        b"never" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::snapshot::canary::HEADER_PATTERN;
    use crate::snapshot::search::SearchPattern;

    fn rules(values: Option<HeaderValues>, cookie: Option<&str>, weight: u32) -> CanaryRules {
        let header = values.map(|values| HeaderRule { name: HeaderName::from_static("x-canary"), values });
        CanaryRules { sticky: true, header, cookie: cookie.map(Into::into), weight, total: 100 }
    }

    fn headers(header: &str, cookie: &str) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        let mut headers = HeaderMap::from_iter([(COOKIE, value(cookie))]);
        if !header.is_empty() {
            headers.insert("x-canary", value(header));
        }
        headers
    }

    #[test]
    fn the_header_comes_before_the_cookie_and_that_before_the_weight() {
        let exactly = || HeaderValues::Exactly("beta".into());
        let matching = || HeaderValues::Matching(SearchPattern::new("^b", HEADER_PATTERN).unwrap());
        for (values, header, cookie, weight, expected) in [
            (Some(HeaderValues::Words), "always", "c=never", 0, true),
            (Some(HeaderValues::Words), "never", "c=always", 100, false),
            (Some(HeaderValues::Words), "Always", "c=never", 100, false),
            (Some(HeaderValues::Words), "perhaps", "c=always", 0, true),
            (Some(HeaderValues::Words), "perhaps", "c=perhaps", 100, true),
            (Some(HeaderValues::Words), "", "", 0, false),
            (Some(exactly()), "beta", "c=never", 0, true),
            (Some(exactly()), "always", "c=never", 100, false),
            (Some(exactly()), "alpha", "", 100, true),
            (Some(matching()), "beta", "c=never", 0, true),
            (Some(matching()), "abc", "", 0, false),
            (Some(matching()), "abc", "", 100, true),
            (None, "always", "", 0, false),
            (None, "", "x=y; c=always", 0, true),
            (None, "", "C=always", 0, false),
            (None, "", "", 1000, true),
        ] {
            let rules = rules(values, Some("c"), weight);
            assert_eq!(takes(&rules, &headers(header, cookie)), expected, "{rules:?} {header} {cookie}");
        }
    }

    #[test]
    fn the_weight_is_a_share_of_the_total() {
        let rules = CanaryRules { total: 1000, ..rules(None, None, 300) };
        let taken = (0..10_000).filter(|_| takes(&rules, &HeaderMap::new())).count();
        assert!((2700..3300).contains(&taken), "{taken}");
    }
}
