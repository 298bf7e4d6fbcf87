//! What a route lets pages of other origins do (CORS, in the Fetch standard). The gateway alone says it: preflights do not
//! reach the backend, and what that says about other origins does not reach the client.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The rules of a route. By default they are those of ingress-nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    pub origins: Origins,
    pub credentials: bool,
    pub methods: HeaderValue,
    pub headers: HeaderValue,
    pub exposed: Option<HeaderValue>,
    /// Seconds for which browsers remember a preflight.
    pub max_age: u64,
}

impl Default for Cors {
    fn default() -> Self {
        Self {
            origins: Origins::Any,
            credentials: true,
            methods: HeaderValue::from_static("GET, PUT, POST, DELETE, PATCH, OPTIONS"),
            headers: HeaderValue::from_static(
                "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
            ),
            exposed: None,
            max_age: 1_728_000,
        }
    }
}

/// Whose pages may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    Any,
    These(Box<[OriginPattern]>),
}

/// One origin, or all whose host has one more label in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPattern {
    /// `https://`; `null` as a whole.
    start: Box<str>,
    is_wildcard: bool,
    /// The host, behind the dot where labels vary, and the port unless it is the usual one of the scheme.
    end: Box<str>,
}

impl OriginPattern {
    /// Reads `scheme://host`, `scheme://*.host`, either with a port, or `null`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        if text == "null" {
            return Some(Self { start: text.into(), is_wildcard: false, end: "".into() });
        }
        let (scheme, rest) = text.split_once("://")?;
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(letter) {
            return None;
        }
        let (is_wildcard, rest) = match rest.strip_prefix('*') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        // The last colon is part of an IPv6 address unless that is closed before.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let port = match port {
            Some(port) => Some(port.parse::<u16>().ok().filter(|_| !port.starts_with('+'))?),
            None => None,
        };
        let name = if is_wildcard { host.strip_prefix('.')? } else { host };
        if !is_host(name) || (is_wildcard && name.starts_with('[')) {
            return None;
        }
        let usual = matches!((scheme, port), ("http", Some(80)) | ("https", Some(443)));
        let port = port.filter(|_| !usual).map(|port| format!(":{port}")).unwrap_or_default();
        Some(Self { start: format!("{scheme}://").into(), is_wildcard, end: format!("{host}{port}").into() })
    }

    /// Whether it stands for this value of `Origin`.
    fn matches(&self, origin: &[u8]) -> bool {
        let Some((start, rest)) = origin.split_at_checked(self.start.len()) else { return false };
        let Some(at) = rest.len().checked_sub(self.end.len()) else { return false };
        let Some((label, end)) = rest.split_at_checked(at) else { return false };
        let fits = match self.is_wildcard {
            true => !label.is_empty() && label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-'),
            false => label.is_empty(),
        };
        fits && start.eq_ignore_ascii_case(self.start.as_bytes())
            && end.eq_ignore_ascii_case(self.end.as_bytes())
    }
}

/// A name, or an address as it stands in an URL.
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[') {
        return address.strip_suffix(']').is_some_and(|a| a.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.split('.').all(label)
}

impl Origins {
    fn admit(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::Any => true,
            Self::These(patterns) => patterns.iter().any(|pattern| pattern.matches(origin.as_bytes())),
        }
    }
}

impl Cors {
    /// Puts into the header of a response what pages of `origin` may do with it, in place of what the backend says.
    pub fn mark(&self, headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
        for name in RESPONSE_FIELDS {
            headers.remove(name);
        }
        if self.allow(headers, origin)
            && let Some(exposed) = &self.exposed
        {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
        }
    }

    /// The header of the answer to a preflight. Where nothing is allowed it says nothing, and the browser does not ask.
    pub fn preflight(&self, origin: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.allow(&mut headers, origin) {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.headers.clone());
            headers.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.into());
        }
        headers
    }

    /// Names the origin that is allowed; says whether one is. What depends on the origin is not for caches to give to
    /// another.
    fn allow(&self, headers: &mut HeaderMap, origin: Option<&HeaderValue>) -> bool {
        let allowed = match self.origins {
            // For requests of the same origin too: caches keep one answer for all.
            Origins::Any => Some(HeaderValue::from_static("*")),
            Origins::These(_) => {
                vary_by_origin(headers);
                origin.filter(|origin| self.origins.admit(origin)).cloned()
            }
        };
        let Some(allowed) = allowed else { return false };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        true
    }
}

/// The fields in which a response speaks to other origins.
const RESPONSE_FIELDS: [HeaderName; 6] = [
    ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

fn vary_by_origin(headers: &mut HeaderMap) {
    let says_so = |value: &HeaderValue| {
        let mut names = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
    };
    if !headers.get_all(VARY).iter().any(says_so) {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, origin: &str) -> bool {
        OriginPattern::parse(pattern).unwrap().matches(origin.as_bytes())
    }

    #[test]
    fn an_origin_is_matched_as_a_whole() {
        for (pattern, yes, no) in [
            (
                "https://a.test",
                &["https://a.test", "HTTPS://A.Test"][..],
                &[
                    "http://a.test",
                    "https://a.test:444",
                    "https://x.a.test",
                    "https://a.test.evil",
                    "https://xa.test",
                ][..],
            ),
            ("https://a.test:443", &["https://a.test"], &["https://a.test:443"]),
            ("http://a.test:8080", &["http://a.test:8080"], &["http://a.test", "http://a.test:80801"]),
            (
                "https://*.a.test",
                &["https://x.a.test", "https://x-1.a.test"],
                &[
                    "https://a.test",
                    "https://.a.test",
                    "https://x.y.a.test",
                    "https://evil/.a.test",
                    "https://xa.test",
                ],
            ),
            (
                "https://*.a.test:8443",
                &["https://x.a.test:8443"],
                &["https://x.a.test", "https://x.a.test:84433"],
            ),
            ("http://[::1]:3000", &["http://[::1]:3000"], &["http://[::2]:3000"]),
            ("capacitor://localhost", &["capacitor://localhost"], &["https://localhost"]),
            ("null", &["null"], &["", "https://null"]),
        ] {
            for origin in yes {
                assert!(matches(pattern, origin), "{pattern} {origin}");
            }
            for origin in no {
                assert!(!matches(pattern, origin), "{pattern} {origin}");
            }
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in [
            "",
            "a.test",
            "*.a.test",
            "https://",
            "https://*",
            "https://*a.test",
            "https://a.*.test",
            "https://a.test/",
            "https://a.test/x",
            "https://user@a.test",
            "https://a.test:",
            "https://a.test:0x1",
            "https://a.test:+80",
            "https://a.test:99999",
            "https://a..test",
            "https://a.test.",
            "1://a.test",
            "https://a test",
            "https://a.test\r\nx: y",
            "https://[::1",
            "https://*.[::1]",
            "https://ä.test",
            "(https://a.test)",
        ] {
            assert_eq!(OriginPattern::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn responses_say_what_the_rules_say_and_nothing_else() {
        let pattern = OriginPattern::parse("https://a.test").unwrap();
        let cors = Cors {
            origins: Origins::These([pattern].into()),
            exposed: Some(HeaderValue::from_static("X-Count")),
            ..Cors::default()
        };
        let marked = |cors: &Cors, origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("https://backend.test"));
            headers.append(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            headers.insert(VARY, HeaderValue::from_static("Accept"));
            cors.mark(&mut headers, (!origin.is_empty()).then(|| HeaderValue::from_static(origin)).as_ref());
            let mut lines: Vec<_> =
                headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            lines.sort();
            lines
        };
        let allowed = [
            "access-control-allow-credentials: true",
            "access-control-allow-origin: https://a.test",
            "access-control-expose-headers: X-Count",
            "vary: Accept",
            "vary: Origin",
        ];
        assert_eq!(marked(&cors, "https://a.test"), allowed);
        assert_eq!(marked(&cors, "https://b.test"), ["vary: Accept", "vary: Origin"]);
        assert_eq!(marked(&cors, ""), ["vary: Accept", "vary: Origin"]);
        let any = Cors { credentials: false, ..Cors::default() };
        assert_eq!(marked(&any, ""), ["access-control-allow-origin: *", "vary: Accept"]);
        assert_eq!(cors.preflight(Some(&HeaderValue::from_static("https://b.test"))).len(), 1);
        assert_eq!(cors.preflight(Some(&HeaderValue::from_static("https://a.test"))).len(), 6);
    }

    #[test]
    fn what_varies_by_origin_already_is_not_said_to_twice() {
        for (before, after) in [("accept, ORIGIN", 1), ("*", 1), ("X-Origin", 2)] {
            let mut headers = HeaderMap::new();
            headers.insert(VARY, HeaderValue::from_static(before));
            vary_by_origin(&mut headers);
            assert_eq!(headers.get_all(VARY).iter().count(), after, "{before}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_never_panics_and_matches_itself(text in "(https?|[a-z]{0,3})://[a-z*.:\\[\\]0-9]{0,12}|\\PC{0,20}", origin: Vec<u8>) {
            if let Some(pattern) = OriginPattern::parse(&text) {
                pattern.matches(&origin);
                let usual = text.ends_with(":80") || text.ends_with(":443");
                if !pattern.is_wildcard && !usual && !text.contains(":0") {
                    prop_assert!(pattern.matches(text.as_bytes()), "{}", text);
                }
            }
        }
    }
}
