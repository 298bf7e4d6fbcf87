//! Whether a policy matches a connection. Pure, allocation-free, and the same for every way a connection can
//! arrive: groups are ORed, rules ANDed, matches ORed, conditions ANDed, values ORed, negated values none-of.

use std::net::IpAddr;

use super::{Authorization, Condition, Group, Match, Rule, StringMatch, Values};
use crate::tls::spiffe::SpiffeId;

/// What a decision is made on. Addresses may be IPv4-mapped; they count as IPv4.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// From the client certificate verified on this very connection, else `None`.
    pub principal: Option<&'a SpiffeId>,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The application's port, never that of a tunnel.
    pub port: u16,
}

/// A connection taken apart once, before the policies are gone through.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    source: IpAddr,
    destination: IpAddr,
    port: u16,
    peer: Option<Peer<'a>>,
}

#[derive(Clone, Copy)]
struct Peer<'a> {
    principal: &'a str,
    trust_domain: &'a str,
    namespace: &'a str,
    service_account: &'a str,
}

impl<'a> From<&Connection<'a>> for Facts<'a> {
    fn from(connection: &Connection<'a>) -> Self {
        Self {
            source: connection.source.to_canonical(),
            destination: connection.destination.to_canonical(),
            port: connection.port,
            peer: connection.principal.map(|id| Peer {
                principal: id.principal(),
                trust_domain: id.trust_domain(),
                namespace: id.namespace(),
                service_account: id.service_account(),
            }),
        }
    }
}

impl Authorization {
    pub(super) fn matches(&self, facts: &Facts<'_>) -> bool {
        self.groups.iter().any(|group| group.matches(facts))
    }
}

impl Group {
    fn matches(&self, facts: &Facts<'_>) -> bool {
        self.rules.iter().all(|rule| rule.matches(facts))
    }
}

impl Rule {
    fn matches(&self, facts: &Facts<'_>) -> bool {
        self.matches.is_empty() || self.matches.iter().any(|one| one.matches(facts))
    }
}

impl Match {
    fn matches(&self, facts: &Facts<'_>) -> bool {
        !self.conditions.is_empty() && self.conditions.iter().all(|condition| condition.holds(facts))
    }
}

impl Condition {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        self.values.contain(facts) != self.negated
    }
}

impl Values {
    fn contain(&self, facts: &Facts<'_>) -> bool {
        let among = |values: &[StringMatch], text: &str| values.iter().any(|value| value.matches(text));
        match self {
            Self::SourceIps(networks) => networks.iter().any(|network| network.contains(&facts.source)),
            Self::DestinationIps(networks) => {
                networks.iter().any(|network| network.contains(&facts.destination))
            }
            Self::DestinationPorts(ports) => ports.contains(&facts.port),
            Self::Namespaces(values) => among(values, facts.peer.map_or("", |peer| peer.namespace)),
            Self::Principals(values) => facts.peer.is_some_and(|peer| among(values, peer.principal)),
            Self::TrustDomains(values) => facts.peer.is_some_and(|peer| among(values, peer.trust_domain)),
            Self::ServiceAccounts(accounts) => facts.peer.is_some_and(|peer| {
                accounts.iter().any(|account| {
                    *account.name == *peer.service_account && *account.namespace == *peer.namespace
                })
            }),
        }
    }
}

impl StringMatch {
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(value) => **value == *text,
            Self::Prefix(value) => text.starts_with(&**value),
            Self::Suffix(value) => text.ends_with(&**value),
            Self::Presence => !text.is_empty(),
        }
    }
}
