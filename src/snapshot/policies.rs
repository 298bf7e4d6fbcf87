//! Which connections a workload accepts: flat policies, ready to be matched, and the matcher itself.
//!
//! `compile::policies` makes them; the data plane asks [`WorkloadPolicies::decide`] for each connection.
//! Everything that can be decided beforehand has been: a workload holds its candidates, DENY and ALLOW apart,
//! so that a decision looks nothing up, allocates nothing and cannot fail. What a policy leaves undecidable is
//! refused. Nothing here knows a Kubernetes type.

mod matching;
mod workload;

#[cfg(test)]
mod tests;

use std::fmt;

use ipnet::{IpNet, Ipv4Net};

use crate::names::object::ObjectName;

pub use matching::Connection;
pub use workload::{Decision, PolicySet, Reason, WorkloadPolicies, is_peer_authentication};

/// The one policy that every STRICT workload without exceptions refers to. An underscore is illegal in
/// Kubernetes names, so no AuthorizationPolicy can be called like this.
pub const STATIC_STRICT: &str = "istio_converted_static_strict";

/// What the name of a policy begins with that a PeerAuthentication was converted to.
pub const CONVERTED_PREFIX: &str = "converted_peer_authentication_";

/// A policy as the data plane matches it (`istio.security.Authorization`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    pub name: ObjectName,
    pub scope: Scope,
    pub action: Action,
    /// Any of them matching makes the policy match; without groups a policy matches nothing.
    pub groups: Box<[Group]>,
    /// Matched and counted, but never decisive.
    pub dry_run: bool,
}

impl Authorization {
    /// What a policy stands for that cannot be read: a DENY of everything.
    pub fn closed(name: ObjectName, scope: Scope, dry_run: bool) -> Self {
        Self { name, scope, action: Action::Deny, groups: [Group::default()].into(), dry_run }
    }
}

/// Which workloads a policy applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every workload.
    #[default]
    Global,
    /// The workloads of the policy's namespace.
    Namespace,
    /// The workloads that list it.
    WorkloadSelector,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    #[default]
    Allow,
    Deny,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "ALLOW",
            Self::Deny => "DENY",
        })
    }
}

/// Matches where all of its rules do; without rules, always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub rules: Box<[Rule]>,
}

/// Matches where any of its matches does; without matches, always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub matches: Box<[Match]>,
}

/// Holds where all of its conditions do; without conditions, never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    pub conditions: Box<[Condition]>,
}

/// An attribute of the connection is among some values or, negated, among none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub negated: bool,
    /// Never empty: a field without values is no condition.
    pub values: Values,
}

/// An attribute with the values it is compared with. The last four are about the peer's identity, which a
/// connection without a verified certificate doesn't have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    SourceIps(Box<[IpNet]>),
    DestinationIps(Box<[IpNet]>),
    DestinationPorts(Box<[u16]>),
    /// Without identity, the empty text is compared.
    Namespaces(Box<[StringMatch]>),
    /// `TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`.
    Principals(Box<[StringMatch]>),
    /// In any trust domain.
    ServiceAccounts(Box<[ServiceAccount]>),
    TrustDomains(Box<[StringMatch]>),
}

/// How a text is compared: byte for byte, without wildcards inside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StringMatch {
    Exact(Box<str>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    /// Anything but the empty text.
    Presence,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// An IPv4-mapped network as the IPv4 network it stands for; any other as it is. The matcher compares
/// canonical addresses only, so networks have to be canonical too.
pub fn canonical_network(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    match mapped.map(|(address, length)| Ipv4Net::new(address, length)) {
        Some(Ok(v4)) => IpNet::V4(v4),
        _ => network,
    }
}
