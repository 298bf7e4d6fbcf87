//! Sessions that stay with one endpoint of their backend, and the cookie that says which.
//!
//! The cookie is a token and no address: 64 bits that choose an endpoint, and 32 that name the backend they were made
//! for. What they choose follows from the endpoints alone, so every worker and every replica says the same.

use super::clusters::Cluster;

/// How sessions of a route stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    pub mode: AffinityMode,
    /// A session whose endpoint failed stays with the one that took its place, and does not come back.
    pub change_on_failure: bool,
    pub cookie: SessionCookie,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AffinityMode {
    /// New endpoints take over their share of the sessions.
    #[default]
    Balanced,
    /// A session stays for as long as its endpoint is there.
    Persistent,
}

/// The cookie of a session, as its attributes were configured; each is fit to stand in a field as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCookie {
    pub name: Box<str>,
    /// That of the route where there is none.
    pub path: Option<Box<str>>,
    pub domain: Option<Box<str>>,
    /// Seconds; without it and `expires` the cookie ends with the browser's session.
    pub max_age: Option<u32>,
    /// Seconds from when it is set, for browsers that do not know `Max-Age`.
    pub expires: Option<u32>,
    pub same_site: Option<SameSite>,
    /// No `SameSite=None` for browsers that would take it for something else.
    pub conditional_same_site_none: bool,
    /// `Secure`; where nothing is said, if the client came over TLS.
    pub secure: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    None,
    Lax,
    Strict,
}

impl Default for SessionCookie {
    fn default() -> Self {
        Self {
            name: "INGRESSCOOKIE".into(),
            path: None,
            domain: None,
            max_age: None,
            expires: None,
            same_site: None,
            conditional_same_site_none: false,
            secure: None,
        }
    }
}

impl SameSite {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Lax => "Lax",
            Self::Strict => "Strict",
        }
    }
}

/// What the cookie of a session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Chooses the endpoint: by rank, or, where it is the identity of one, that one.
    pub key: u64,
    /// The [`tag`](Cluster::tag) of the backend that it was made for.
    pub tag: u32,
}

impl Token {
    const LENGTH: usize = 24;

    /// A token as a client sent it; anything but the one form of one is none.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let canonical = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if value.len() != Self::LENGTH || !value.iter().all(canonical) {
            return None;
        }
        let (key, tag) = std::str::from_utf8(value).ok()?.split_at_checked(16)?;
        Some(Self { key: u64::from_str_radix(key, 16).ok()?, tag: u32::from_str_radix(tag, 16).ok()? })
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:08x}", self.key, self.tag)
    }
}

impl Cluster {
    /// The place of the endpoint with this identity.
    pub fn position_of(&self, id: u64) -> Option<usize> {
        self.ids().iter().position(|other| *other == id)
    }

    /// The place of the endpoint that ranks first for `key` among those that are `wanted` (rendezvous hashing): one that
    /// comes or goes changes nothing between the others.
    pub fn first_for(&self, key: u64, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let ranked = self.ids().iter().enumerate().filter(|(at, _)| wanted(*at));
        ranked.max_by_key(|(_, id)| mixed(key ^ **id)).map(|(at, _)| at)
    }
}

/// Each bit of the result hangs on all of `bits` (the finaliser of SplitMix64).
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::names::object::{ObjectName, ServicePortRef};
    use crate::snapshot::clusters::{ClusterKey, Endpoint};

    fn cluster(service: &str, hosts: impl IntoIterator<Item = u8>) -> Cluster {
        let key = ClusterKey { service: ObjectName::new("a", service), port: ServicePortRef::Number(80) };
        let endpoint = |host| Arc::new(Endpoint::Address(([10, 0, 0, host], 8080).into()));
        Cluster::new(Arc::new(key), hosts.into_iter().map(endpoint).collect::<Vec<_>>(), None)
    }

    fn chosen(cluster: &Cluster, key: u64) -> String {
        cluster.endpoints[cluster.first_for(key, |_| true).unwrap()].to_string()
    }

    /// All versions and replicas of the gateway must agree.
    #[test]
    fn identities_never_change() {
        let cluster = cluster("web", [1, 2]);
        assert_eq!(cluster.ids(), [0xebb5_e2ce_f585_a93d, 0xa216_d91a_aac0_a491]);
        assert_eq!(cluster.tag(), 0x6cba_0872);
        assert_eq!(
            (chosen(&cluster, 1), chosen(&cluster, 3)),
            ("10.0.0.2:8080".into(), "10.0.0.2:8080".into())
        );
    }

    #[test]
    fn identities_are_of_one_backend() {
        assert_ne!(cluster("web", [1]).ids(), cluster("other", [1]).ids());
        assert_ne!(cluster("web", [1]).tag(), cluster("other", [1]).tag());
    }

    #[test]
    fn sessions_are_spread_evenly() {
        let cluster = cluster("web", 1..=5);
        let mut counts = BTreeMap::<_, u32>::new();
        for key in 0..10_000_u64 {
            *counts.entry(chosen(&cluster, key.wrapping_mul(0x9e37_79b9_7f4a_7c15))).or_default() += 1;
        }
        assert_eq!(counts.len(), 5);
        assert!(counts.values().all(|count| (1700..2300).contains(count)), "{counts:?}");
    }

    #[test]
    fn only_what_came_or_went_moves_sessions() {
        let (before, after) = (cluster("web", 1..=5), cluster("web", [1, 2, 4, 5, 6]));
        for key in (0..1000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let (old, new) = (chosen(&before, key), chosen(&after, key));
            assert!(old == new || old == "10.0.0.3:8080" || new == "10.0.0.6:8080", "{old} {new}");
        }
    }

    #[test]
    fn no_endpoint_is_no_choice() {
        assert_eq!(cluster("web", []).first_for(1, |_| true), None);
        assert_eq!(cluster("web", [1]).first_for(1, |_| false), None);
    }

    #[test]
    fn tokens_have_one_form() {
        let token = Token { key: 0xdead, tag: 7 };
        assert_eq!(token.to_string(), "000000000000dead00000007");
        assert_eq!(Token::parse(token.to_string().as_bytes()), Some(token));
        for other in
            ["", "000000000000DEAD00000007", "+00000000000dead00000007", "000000000000dead000000070", "x"]
        {
            assert_eq!(Token::parse(other.as_bytes()), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(token) = Token::parse(&value) {
                prop_assert_eq!(token.to_string().into_bytes(), value);
            }
        }

        #[test]
        fn every_token_is_read_as_it_was_written(key: u64, tag: u32) {
            let token = Token { key, tag };
            prop_assert_eq!(Token::parse(token.to_string().as_bytes()), Some(token));
        }
    }
}
