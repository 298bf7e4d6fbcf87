//! The policies of one workload and the decision they lead to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::matching::{Connection, Facts, Questions};
use super::{Action, Authorization, CONVERTED_PREFIX, STATIC_STRICT, Scope};
use crate::names::object::ObjectName;

/// All policies, by what they apply to.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    global: Vec<Arc<Authorization>>,
    by_namespace: BTreeMap<Arc<str>, Vec<Arc<Authorization>>>,
    listed: BTreeMap<ObjectName, Arc<Authorization>>,
}

impl PolicySet {
    pub fn new(policies: impl IntoIterator<Item = Arc<Authorization>>) -> Self {
        let mut set = Self::default();
        for policy in policies {
            match policy.scope {
                Scope::Global => set.global.push(policy),
                Scope::Namespace => {
                    set.by_namespace.entry(policy.name.namespace.clone()).or_default().push(policy);
                }
                Scope::WorkloadSelector => {
                    set.listed.insert(policy.name.clone(), policy);
                }
            }
        }
        set
    }

    /// The policies of a workload: the global ones, those of its namespace, and those that `keys` lists. A key is left
    /// dangling that names no policy, or one that is for other workloads.
    pub fn workload(&self, namespace: &str, keys: &[ObjectName]) -> WorkloadPolicies {
        let own = self.by_namespace.get(namespace).into_iter().flatten();
        let listed = keys.iter().filter_map(|key| self.listed.get(key));
        let mut workload =
            WorkloadPolicies::new(self.global.iter().chain(own.clone()).chain(listed).cloned());
        let unlisted = |key: &&ObjectName| !self.listed.contains_key(*key);
        let applies = |key: &ObjectName| own.clone().chain(&self.global).any(|policy| policy.name == *key);
        workload.dangling = keys.iter().filter(unlisted).filter(|key| !applies(key)).cloned().collect();
        workload
    }
}

/// The policies that apply to a workload, resolved. Workloads with the same policies can share one.
#[derive(Clone, Debug, Default)]
pub struct WorkloadPolicies {
    deny: Questions,
    allow: Questions,
    /// Each by itself, because each is counted.
    dry_run: Vec<Questions>,
    /// Keys that name no policy.
    dangling: Vec<ObjectName>,
}

impl WorkloadPolicies {
    pub fn new(policies: impl IntoIterator<Item = Arc<Authorization>>) -> Self {
        let (dry_run, enforced): (Vec<_>, Vec<_>) = policies.into_iter().partition(|policy| policy.dry_run);
        let (deny, allow) = enforced.into_iter().partition(|policy| policy.action == Action::Deny);
        Self {
            deny: Questions::new(deny),
            allow: Questions::new(allow),
            dry_run: dry_run.into_iter().map(|policy| Questions::new(vec![policy])).collect(),
            dangling: Vec::new(),
        }
    }

    /// Whether a connection is accepted. DENY comes first, then ALLOW; without ALLOW policies everything that
    /// is not denied is allowed.
    pub fn decide(&self, connection: &Connection<'_>) -> Decision<'_> {
        let facts = Facts::from(connection);
        if let Some(key) = self.dangling.iter().find(|key| !is_peer_authentication(key)) {
            return Decision::refused(Reason::DanglingPolicy, Some(key));
        }
        if let Some(policy) = self.deny.first_match(&facts) {
            return Decision::refused(Reason::Denied, Some(&policy.name));
        }
        if let (None, Some(key)) = (connection.principal, self.dangling.first()) {
            return Decision::refused(Reason::DanglingStrict, Some(key));
        }
        if self.allow.policies().is_empty() {
            return Decision { allowed: true, policy: None, reason: Reason::NoAllowPolicy };
        }
        match self.allow.first_match(&facts) {
            Some(policy) => Decision { allowed: true, policy: Some(&policy.name), reason: Reason::Allowed },
            None => Decision::refused(Reason::NoneAllowed, None),
        }
    }

    /// The policies that are only tried out, each with whether it matches: to be counted, never to decide.
    pub fn dry_run(&self, connection: &Connection<'_>) -> impl Iterator<Item = (&Authorization, bool)> {
        let facts = Facts::from(connection);
        let matches = move |questions: &Questions| questions.first_match(&facts).is_some();
        let each = self.dry_run.iter().map(move |questions| (questions.policies(), matches(questions)));
        each.flat_map(|(policies, matches)| policies.iter().map(move |policy| (&**policy, matches)))
    }

    /// Every policy that applies, those that are only tried out last.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Authorization>> {
        let tried = self.dry_run.iter().flat_map(Questions::policies);
        self.deny.policies().iter().chain(self.allow.policies()).chain(tried)
    }

    /// Whether any policy could decide here.
    pub fn any(&self) -> bool {
        !self.dangling.is_empty() || self.policies().next().is_some()
    }

    /// Whether both come to the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.dangling == other.dangling && self.policies().eq(other.policies())
    }

    /// Keys of the workload that name no policy; to be counted, because there should never be one.
    pub fn dangling(&self) -> &[ObjectName] {
        &self.dangling
    }
}

/// Whether `key` is that of a policy that a PeerAuthentication was converted to.
pub fn is_peer_authentication(key: &ObjectName) -> bool {
    *key.name == *STATIC_STRICT || key.name.starts_with(CONVERTED_PREFIX)
}

/// Whether a connection is accepted, and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    pub allowed: bool,
    /// The policy that decided; `None` where it was the absence of one.
    pub policy: Option<&'a ObjectName>,
    pub reason: Reason,
}

impl<'a> Decision<'a> {
    fn refused(reason: Reason, policy: Option<&'a ObjectName>) -> Self {
        Self { allowed: false, policy, reason }
    }
}

/// Why a connection was accepted or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No DENY policy matches and there is no ALLOW policy.
    NoAllowPolicy,
    Allowed,
    Denied,
    /// There are ALLOW policies and none of them matches.
    NoneAllowed,
    /// The policy made from a PeerAuthentication is missing; plaintext is refused as STRICT would have.
    DanglingStrict,
    /// Another policy is missing; it may have been a DENY.
    DanglingPolicy,
    /// The client's certificate was revoked after it connected.
    Revoked,
    /// The client's certificate has ended, or leads to no root any more.
    Untrusted,
    /// Policies may be about the target, and which ones cannot be told.
    Undecidable,
    /// The port is that of the workload's own proxy.
    NodeProxy,
}

impl Reason {
    /// A short word for metrics: there are ten.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoAllowPolicy => "no_allow_policy",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NoneAllowed => "none_allowed",
            Self::DanglingStrict => "dangling_strict",
            Self::DanglingPolicy => "dangling_policy",
            Self::Revoked => "revoked",
            Self::Untrusted => "untrusted",
            Self::Undecidable => "undecidable",
            Self::NodeProxy => "node_proxy",
        }
    }
}

impl Reason {
    /// What the client is told: nothing that names a policy.
    pub fn to_client(self) -> &'static str {
        match self {
            Self::NoAllowPolicy | Self::Allowed => "the workload admits this client",
            Self::Denied => "a policy of the workload denies this client",
            Self::NoneAllowed => "no policy of the workload allows this client",
            Self::DanglingStrict => "the workload asks for a client certificate of the mesh",
            Self::DanglingPolicy => "a policy of the workload is missing",
            Self::Revoked => "the certificate of this client has been revoked",
            Self::Untrusted => "the certificate of this client is not valid any more",
            Self::Undecidable => "the name of the backend leads to a workload that policies may be about",
            Self::NodeProxy => "the port of the backend is that of a proxy of the mesh",
        }
    }
}

/// As a phrase that the name of a policy can follow.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAllowPolicy => "no DENY policy matches and there are no ALLOW policies",
            Self::Allowed => "explicitly allowed by",
            Self::Denied => "explicitly denied by",
            Self::NoneAllowed => "allow policies exist, but none allowed",
            Self::DanglingStrict => "no verified identity, and the workload's STRICT policy is missing",
            Self::DanglingPolicy => "a policy that the workload lists is missing",
            Self::Revoked => "the client's certificate has been revoked",
            Self::Untrusted => "the client's certificate has ended or leads to no root any more",
            Self::Undecidable => {
                "an ExternalName leads to a workload, and which policies apply cannot be told"
            }
            Self::NodeProxy => {
                "the port is that of the workload's own proxy, which takes nothing but tunnels"
            }
        })
    }
}

/// The reason as a sentence for a log or a person.
impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        self.policy.map_or(Ok(()), |policy| write!(f, ": {policy}"))
    }
}

impl Serialize for Decision<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Decision", 3)?;
        fields.serialize_field("allowed", &self.allowed)?;
        fields.serialize_field("policy", &self.policy.map(ToString::to_string))?;
        fields.serialize_field("reason", &self.to_string())?;
        fields.end()
    }
}
