//! The URL of an OCSP responder or of the proxy to it, judged by its text alone: what is left is safe to resolve
//! and to put into a request.
//!
//! URLs come from certificates that tenants supply, so the rules are narrow: http or https, a name or a plain
//! address, a usual port, nothing clever. Addresses are judged later, in
//! `sources::ocsp::address`. Settings, whose authors are trusted, go by the same rules.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::uri::PathAndQuery;

/// Longer URLs are refused, in bytes. Real ones have fewer than a hundred.
pub const MAX_URL: usize = 1024;
/// From here on ports belong to no system service; below, only those of http and https may be used.
const FIRST_FREE_PORT: u16 = 1024;

/// Why a URL is not used. The URL itself is not repeated: it is untrusted and may be huge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("longer than {MAX_URL} bytes")]
    TooLong,
    #[error("contains a space, a control character or non-ASCII text")]
    Characters,
    #[error("the scheme is neither http nor https")]
    Scheme,
    #[error("contains credentials")]
    Credentials,
    #[error("contains a fragment")]
    Fragment,
    #[error("the host is not a name or an address")]
    Host,
    #[error("the host is a number that only some programs take for an address")]
    NumericHost,
    #[error("the port is not a number from 1 to 65535")]
    PortNumber,
    #[error("port {0} is not for responders: below {FIRST_FREE_PORT} only 80 and 443 are")]
    Port(u16),
    #[error("the path cannot be sent in a request")]
    Path,
}

/// The host part of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Lower-case ASCII.
    Name(String),
    Address(IpAddr),
}

/// A URL that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub https: bool,
    pub host: Host,
    pub port: u16,
    /// Begins with a slash.
    pub path: String,
}

impl Target {
    /// Reads and judges `url`.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        if url.len() > MAX_URL {
            return Err(UrlError::TooLong);
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err(UrlError::Characters);
        }
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        let https = match () {
            () if scheme.eq_ignore_ascii_case("http") => false,
            () if scheme.eq_ignore_ascii_case("https") => true,
            () => return Err(UrlError::Scheme),
        };
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let authority_ends = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_ends);
        let (host, port) = split_authority(authority)?;
        let port = port.map_or(Ok(if https { 443 } else { 80 }), parse_port)?;
        Ok(Self { https, host: parse_host(host)?, port, path: parse_path(path)? })
    }

    /// The host as a resolver and TLS want it: without brackets.
    pub fn host(&self) -> String {
        match &self.host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        }
    }

    /// Host and port as in a URL and a Host header: brackets around IPv6, no port where it is the usual one.
    pub fn authority(&self) -> String {
        let host = match &self.host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host(),
        };
        let usual = if self.https { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Scheme, host and port: what makes two URLs lead to the same responder.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.https { "https" } else { "http" }, self.authority())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

/// Splits `host[:port]`, the host possibly in brackets.
fn split_authority(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::Credentials);
    }
    if !authority.starts_with('[') {
        return Ok(match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        });
    }
    let end = authority.find(']').ok_or(UrlError::Host)? + 1;
    let (host, rest) = authority.split_at(end);
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(UrlError::Host),
    }
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    // u16::from_str takes a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = text.parse().ok().filter(|_| digits).ok_or(UrlError::PortNumber)?;
    match port {
        0 => Err(UrlError::PortNumber),
        80 | 443 | FIRST_FREE_PORT.. => Ok(port),
        _ => Err(UrlError::Port(port)),
    }
}

fn parse_host(text: &str) -> Result<Host, UrlError> {
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| UrlError::Host)?;
        return Ok(Host::Address(address.into()));
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into()));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(UrlError::Host);
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UrlError::NumericHost);
    }
    Ok(Host::Name(name))
}

fn parse_path(text: &str) -> Result<String, UrlError> {
    let path = if text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
    PathAndQuery::try_from(path.as_str()).map_err(|_| UrlError::Path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_urls_pass() {
        for (url, canonical) in [
            ("http://ocsp.example.com", "http://ocsp.example.com/"),
            ("HTTP://OCSP.Example.Com./a/b", "http://ocsp.example.com/a/b"),
            ("https://ocsp.example.com:443/", "https://ocsp.example.com/"),
            ("http://ocsp.example.com:2560/x?y=1", "http://ocsp.example.com:2560/x?y=1"),
            ("http://ocsp.example.com?y=1", "http://ocsp.example.com/?y=1"),
            ("http://192.0.2.1:8080", "http://192.0.2.1:8080/"),
            ("http://[2001:db8::1]/o", "http://[2001:db8::1]/o"),
            ("https://[::1]:8443/o", "https://[::1]:8443/o"),
        ] {
            assert_eq!(Target::parse(url).unwrap().to_string(), canonical, "{url}");
        }
    }

    #[test]
    fn others_are_refused_with_their_reason() {
        let long = format!("http://h/{}", "a".repeat(10_000));
        for (url, error) in [
            (long.as_str(), UrlError::TooLong),
            ("", UrlError::Scheme),
            ("file:///etc/passwd", UrlError::Scheme),
            ("gopher://h/", UrlError::Scheme),
            ("ldap://h/", UrlError::Scheme),
            ("https:", UrlError::Scheme),
            ("//h/", UrlError::Scheme),
            ("http:/h/", UrlError::Scheme),
            ("http://ok@127.0.0.1/", UrlError::Credentials),
            ("http://user:password@h/", UrlError::Credentials),
            ("http://h/#x", UrlError::Fragment),
            ("http://h#@other/", UrlError::Fragment),
            ("http:///path", UrlError::Host),
            ("http://", UrlError::Host),
            ("http://a..b/", UrlError::Host),
            ("http://a%2eb/", UrlError::Host),
            ("http://[::1", UrlError::Host),
            ("http://[::1]x/", UrlError::Host),
            ("http://[fe80::1%25eth0]/", UrlError::Host),
            ("http://::1/", UrlError::PortNumber),
            ("http://0x7f000001/", UrlError::NumericHost),
            ("http://2130706433/", UrlError::NumericHost),
            ("http://0177.0.0.1/", UrlError::NumericHost),
            ("http://127.1/", UrlError::NumericHost),
            ("http://127.0.0.0x1/", UrlError::NumericHost),
            ("http://h:22/", UrlError::Port(22)),
            ("http://h:1023/", UrlError::Port(1023)),
            ("http://h:0/", UrlError::PortNumber),
            ("http://h:/", UrlError::PortNumber),
            ("http://h:+80/", UrlError::PortNumber),
            ("http://h:65536/", UrlError::PortNumber),
            ("http://h/a b", UrlError::Characters),
            ("http://h/a\r\nHost: x", UrlError::Characters),
            ("http://h\\@x/", UrlError::Characters),
            ("http://h\u{e4}/", UrlError::Characters),
        ] {
            assert_eq!(Target::parse(url), Err(error), "{url}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_and_what_passes_is_canonical(url in "(https?://)?[ -~]{0,40}") {
            if let Ok(target) = Target::parse(&url) {
                prop_assert_eq!(Target::parse(&target.to_string()), Ok(target));
            }
        }
    }
}
