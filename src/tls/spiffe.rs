//! SPIFFE identities of mesh workloads: `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`.
//!
//! Parsed once, where a certificate is verified or issued; the policy matcher then only compares slices of the
//! text. Parsing is strict: what the SPIFFE-ID specification (section 2) or the Kubernetes shape of the path
//! does not allow is refused, so a parsed identity has exactly one spelling.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

const SCHEME: &str = "spiffe://";

/// The longest identity that the SPIFFE-ID specification (section 2.3) has implementations support, in bytes.
const MAX_LENGTH: usize = 2048;

/// The longest trust domain (SPIFFE-ID, section 2.3), in bytes.
const MAX_TRUST_DOMAIN: usize = 255;

/// Who a workload is: its trust domain, namespace and service account. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId {
    uri: Arc<str>,
    /// Lengths of the first two parts; where everything lies in `uri` follows from them.
    trust_domain: u16,
    namespace: u16,
}

impl SpiffeId {
    /// Reads an identity from the text of a URI SAN, with its scheme.
    pub fn parse(uri: &str) -> Result<Self, SpiffeError> {
        let rest = uri.strip_prefix(SCHEME).ok_or(SpiffeError::Scheme)?;
        let mut parts = rest.split('/');
        let mut part = || parts.next().ok_or(SpiffeError::Shape);
        let trust_domain = part()?;
        let shape = (part()?, part()?, part()?, part()?);
        match shape {
            ("ns", namespace, "sa", account) if parts.next().is_none() => {
                Self::new(trust_domain, namespace, account)
            }
            _ => Err(SpiffeError::Shape),
        }
    }

    /// Puts an identity together from its three parts.
    pub fn new(trust_domain: &str, namespace: &str, service_account: &str) -> Result<Self, SpiffeError> {
        check_trust_domain(trust_domain)?;
        check_segment(namespace)?;
        check_segment(service_account)?;
        let uri = format!("{SCHEME}{trust_domain}/ns/{namespace}/sa/{service_account}");
        if uri.len() > MAX_LENGTH {
            return Err(SpiffeError::TooLong);
        }
        let length = |part: &str| u16::try_from(part.len()).map_err(|_| SpiffeError::TooLong);
        Ok(Self { trust_domain: length(trust_domain)?, namespace: length(namespace)?, uri: uri.into() })
    }

    /// The whole URI, as it stands in a certificate.
    pub fn as_uri(&self) -> &str {
        &self.uri
    }

    /// The identity without its scheme, `TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`: what policies match.
    pub fn principal(&self) -> &str {
        self.part(0, usize::MAX)
    }

    pub fn trust_domain(&self) -> &str {
        self.part(0, self.trust_domain.into())
    }

    pub fn namespace(&self) -> &str {
        self.part(usize::from(self.trust_domain) + "/ns/".len(), self.namespace.into())
    }

    pub fn service_account(&self) -> &str {
        let before = usize::from(self.trust_domain) + "/ns/".len() + usize::from(self.namespace);
        self.part(before + "/sa/".len(), usize::MAX)
    }

    /// `length` bytes from `start`, counted after the scheme. Every part is ASCII and lies within the text.
    fn part(&self, start: usize, length: usize) -> &str {
        let start = SCHEME.len() + start;
        let end = start.saturating_add(length).min(self.uri.len());
        self.uri.get(start..end).unwrap_or_default()
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

impl fmt::Debug for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

impl FromStr for SpiffeId {
    type Err = SpiffeError;

    fn from_str(uri: &str) -> Result<Self, SpiffeError> {
        Self::parse(uri)
    }
}

impl Serialize for SpiffeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.uri)
    }
}

/// Why an identity was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpiffeError {
    #[error("the identity does not begin with 'spiffe://'")]
    Scheme,
    #[error("the identity is not of the form spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT")]
    Shape,
    #[error(
        "the trust domain is empty, longer than 255 characters, or has a character other than a-z, 0-9, '-', '_' and '.'"
    )]
    TrustDomain,
    #[error(
        "the namespace or service account is empty, '.', '..', or has a character other than letters, digits, '-', '_' and '.'"
    )]
    Segment,
    #[error("the identity is longer than 2048 characters")]
    TooLong,
}

fn check_trust_domain(text: &str) -> Result<(), SpiffeError> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    match !text.is_empty() && text.len() <= MAX_TRUST_DOMAIN && text.bytes().all(allowed) {
        true => Ok(()),
        false => Err(SpiffeError::TrustDomain),
    }
}

fn check_segment(text: &str) -> Result<(), SpiffeError> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    match !matches!(text, "" | "." | "..") && text.bytes().all(allowed) {
        true => Ok(()),
        false => Err(SpiffeError::Segment),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_identity_has_three_parts() {
        let id = SpiffeId::parse("spiffe://cluster.local/ns/app/sa/web").unwrap();
        assert_eq!(id.trust_domain(), "cluster.local");
        assert_eq!(id.namespace(), "app");
        assert_eq!(id.service_account(), "web");
        assert_eq!(id.principal(), "cluster.local/ns/app/sa/web");
        assert_eq!(id.to_string(), "spiffe://cluster.local/ns/app/sa/web");
        assert_eq!(SpiffeId::new("cluster.local", "app", "web"), Ok(id));
    }

    #[test]
    fn malformed_identities_are_refused() {
        use SpiffeError::*;
        let long = format!("spiffe://td/ns/a/sa/{}", "b".repeat(2048));
        let long_domain = format!("spiffe://{}/ns/a/sa/b", "d".repeat(256));
        for (uri, error) in [
            ("", Scheme),
            ("cluster.local/ns/a/sa/b", Scheme),
            ("SPIFFE://td/ns/a/sa/b", Scheme),
            ("https://td/ns/a/sa/b", Scheme),
            ("spiffe://", Shape),
            ("spiffe://td", Shape),
            ("spiffe://td/ns/a/sa", Shape),
            ("spiffe://td/ns/a/sa/b/", Shape),
            ("spiffe://td/ns/a/sa/b/c", Shape),
            ("spiffe://td/sa/a/ns/b", Shape),
            ("spiffe://td//ns/a/sa/b", Shape),
            ("spiffe:///ns/a/sa/b", TrustDomain),
            ("spiffe://TD/ns/a/sa/b", TrustDomain),
            ("spiffe://user@td/ns/a/sa/b", TrustDomain),
            ("spiffe://td:443/ns/a/sa/b", TrustDomain),
            ("spiffe://td/ns//sa/b", Segment),
            ("spiffe://td/ns/../sa/b", Segment),
            ("spiffe://td/ns/a/sa/.", Segment),
            ("spiffe://td/ns/a/sa/b%2f", Segment),
            ("spiffe://td/ns/a/sa/b?x", Segment),
            ("spiffe://td/ns/a/sa/b#x", Segment),
            ("spiffe://td/ns/a/sa/b\0", Segment),
            ("spiffe://td/ns/ä/sa/b", Segment),
            (&long, TooLong),
            (&long_domain, TrustDomain),
        ] {
            assert_eq!(SpiffeId::parse(uri), Err(error), "{uri:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_parses_prints_the_same(uri in "spiffe://[a-zA-Z./_-]{0,12}/ns/[a-zA-Z./%-]{0,6}/sa/.{0,6}") {
            if let Ok(id) = SpiffeId::parse(&uri) {
                prop_assert_eq!(id.as_uri(), &uri);
                let again = SpiffeId::new(id.trust_domain(), id.namespace(), id.service_account());
                prop_assert_eq!(again, Ok(id));
            }
        }
    }
}
