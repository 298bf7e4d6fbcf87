//! Host names in their one canonical form: lower-case ASCII, no port, no trailing dot, punycode as it is.
//!
//! SNI, the Host header, routing and policy all go through [`canonical_host`], so that no two parts of the
//! gateway can disagree about which host a request is for.

pub mod annotation;
pub mod object;
pub mod responder;

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// A host name in canonical form, cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

impl HostName {
    /// Canonicalises `input`, which may carry a port and one trailing dot.
    pub fn new(input: &str) -> Result<Self, HostError> {
        canonical_host(input).map(|host| Self(host.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without the label `www` in front, or with it where it has none.
    pub fn with_or_without_www(&self) -> Option<Self> {
        match self.0.strip_prefix("www.") {
            Some(rest) => Self::new(rest).ok(),
            None => Self::new(&format!("www.{}", self.0)).ok(),
        }
    }
}

impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Which host names something is for: one, all that have exactly one more label, or every one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    Exact(HostName),
    /// `*.example.com`, held as `example.com`.
    Wildcard(HostName),
    /// A rule without a host.
    Any,
}

impl HostPattern {
    /// Reads the host of an Ingress rule or a SAN: a name, `*.` and a name, or nothing.
    pub fn parse(input: &str) -> Result<Self, HostError> {
        match input.strip_prefix("*.") {
            _ if input.is_empty() => Ok(Self::Any),
            Some(parent) => HostName::new(parent).map(Self::Wildcard),
            None => HostName::new(input).map(Self::Exact),
        }
    }

    /// Whether `host`, in canonical form, is meant.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name.as_str() == host,
            Self::Wildcard(parent) => parent_of(host) == Some(parent.as_str()),
            Self::Any => true,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Wildcard(parent) => write!(f, "*.{parent}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Everything after the first label: what a one-label wildcard for `host` would be held under.
pub fn parent_of(host: &str) -> Option<&str> {
    match host.split_once('.') {
        Some((label, parent)) if !label.is_empty() && !parent.is_empty() => Some(parent),
        _ => None,
    }
}

/// Why a host name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the host is empty")]
    Empty,
    #[error("the host is longer than 253 characters")]
    TooLong,
    #[error("a label of the host is empty or longer than 63 characters")]
    Label,
    #[error("the host has a character other than letters, digits, '-', '_' and '.'")]
    Character,
    #[error("'*' can only stand for the first label as a whole, as in *.example.com")]
    Wildcard,
    #[error("the port is not a number from 0 to 65535")]
    Port,
}

/// The canonical form of a host: without port and one trailing dot, in lower-case ASCII. An IPv6 literal
/// keeps its brackets. Borrows where the input is canonical already, as it nearly always is.
pub fn canonical_host(input: &str) -> Result<Cow<'_, str>, HostError> {
    if input.starts_with('[') {
        return canonical_ipv6(input);
    }
    let host = match input.split_once(':') {
        Some((host, port)) => {
            check_port(port)?;
            host
        }
        None => input,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.is_empty() {
        return Err(HostError::Empty);
    }
    if host.len() > 253 {
        return Err(HostError::TooLong);
    }
    let mut upper = false;
    let mut label = 0;
    for byte in host.bytes() {
        match byte {
            b'.' if label == 0 => return Err(HostError::Label),
            b'.' => {
                label = 0;
                continue;
            }
            b'A'..=b'Z' => upper = true,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => {}
            b'*' => return Err(HostError::Wildcard),
            _ => return Err(HostError::Character),
        }
        label += 1;
        if label > 63 {
            return Err(HostError::Label);
        }
    }
    if label == 0 {
        return Err(HostError::Label);
    }
    Ok(if upper { Cow::Owned(host.to_ascii_lowercase()) } else { Cow::Borrowed(host) })
}

fn canonical_ipv6(input: &str) -> Result<Cow<'_, str>, HostError> {
    let (literal, rest) = input[1..].split_once(']').ok_or(HostError::Character)?;
    match rest.strip_prefix(':') {
        Some(port) => check_port(port)?,
        None if rest.is_empty() => {}
        None => return Err(HostError::Character),
    }
    let address: std::net::Ipv6Addr = literal.parse().map_err(|_| HostError::Character)?;
    Ok(Cow::Owned(format!("[{address}]")))
}

/// An empty port is allowed by RFC 3986, section 3.2.3.
fn check_port(port: &str) -> Result<(), HostError> {
    let digits = port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    match digits && (port.is_empty() || port.parse::<u32>().is_ok_and(|p| p <= 65535)) {
        true => Ok(()),
        false => Err(HostError::Port),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wildcard_that_is_none_is_told_as_such() {
        for odd in ["*.*.example.com", "a.*.example.com", "a*.example.com"] {
            assert_eq!(HostPattern::parse(odd), Err(HostError::Wildcard), "{odd}");
        }
    }

    #[test]
    fn spellings_of_one_host_are_one() {
        for spelling in ["example.com", "EXAMPLE.com", "example.com.", "example.com:443", "Example.Com.:8443"]
        {
            assert_eq!(canonical_host(spelling).as_deref(), Ok("example.com"), "{spelling}");
        }
        assert_eq!(canonical_host("[::1]:443").as_deref(), Ok("[::1]"));
        assert_eq!(canonical_host("localhost:").as_deref(), Ok("localhost"));
        assert_eq!(canonical_host("xn--bcher-kva.example").as_deref(), Ok("xn--bcher-kva.example"));
    }

    #[test]
    fn malformed_hosts_are_refused() {
        use HostError::*;
        let long_label = format!("{}.com", "a".repeat(64));
        let long = format!("{}com", "a.".repeat(126));
        for (host, error) in [
            ("", Empty),
            (".", Empty),
            ("..", Label),
            (".a", Label),
            ("a..b", Label),
            ("example.com..", Label),
            (&long_label, Label),
            (&long, TooLong),
            ("a@b", Character),
            ("a/b", Character),
            ("a, b", Character),
            ("*", Wildcard),
            ("bücher.example", Character),
            ("a\0b", Character),
            ("a:99999", Port),
            ("a:b", Port),
            ("a:1:2", Port),
            ("[::1", Character),
            ("[::1]x", Character),
        ] {
            assert_eq!(canonical_host(host), Err(error), "{host:?}");
        }
    }

    #[test]
    fn wildcards_cover_one_label() {
        let wildcard = HostPattern::parse("*.Foo.com").unwrap();
        assert!(wildcard.matches("x.foo.com"));
        for other in ["foo.com", "a.b.foo.com", ".foo.com", "", "xfoo.com"] {
            assert!(!wildcard.matches(other), "{other}");
        }
        assert!(HostPattern::parse("f*.foo.com").is_err());
        assert!(HostPattern::parse("*.").is_err());
        assert_eq!(HostPattern::parse(""), Ok(HostPattern::Any));
    }

    proptest! {
        #[test]
        fn canonical_form_is_a_fixed_point(input in ".{0,300}") {
            if let Ok(host) = canonical_host(&input) {
                let again = canonical_host(&host);
                prop_assert_eq!(again.as_deref(), Ok(&*host));
                prop_assert!(!host.bytes().any(|b| b.is_ascii_uppercase()));
            }
            let _ = HostPattern::parse(&input).map(|p| p.matches(&input));
            let _ = parent_of(&input);
        }
    }
}
