//! AuthorizationPolicy: its transport part as an `Authorization`, and what to say about the rest.
//!
//! Attributes of HTTP requests are unknown to transport policy. A rule of an ALLOW policy that has one is left
//! out as a whole, a DENY policy loses the attribute only; both let through less than was asked for, never more.

use std::collections::BTreeSet;

use super::Mesh;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::snapshot::policies::{
    Action, Authorization, Condition, Group, Match, Rule, Scope, ServiceAccount, StringMatch, Values,
    canonical_network,
};
use crate::store::objects::{
    AuthorizationPolicy, Clause, ClauseValues, Kind, ObjectName, PolicyAction, PolicyRule, Term,
};

/// Principals of this trust domain mean the mesh's own, whatever it's called.
const OWN_TRUST_DOMAIN: &str = "cluster.local";

/// Compiles one policy; `None` where transport policy has no part in its action. One that was refused lets
/// nothing through: as an ALLOW without rules, or as a DENY of everything.
pub(super) fn compile(mesh: &Mesh, policy: &AuthorizationPolicy) -> Option<Authorization> {
    let action = match policy.action {
        PolicyAction::Allow => Action::Allow,
        PolicyAction::Deny => Action::Deny,
        PolicyAction::Audit | PolicyAction::Custom => return None,
    };
    let groups = match (policy.refused, action) {
        (true, Action::Deny) => [Group::default()].into(),
        _ => groups(mesh, policy),
    };
    let name = policy.metadata.name.clone();
    let scope = match (policy.selector.is_empty(), *name.namespace == *mesh.root_namespace) {
        (false, _) => Scope::WorkloadSelector,
        (true, true) => Scope::Global,
        (true, false) => Scope::Namespace,
    };
    Some(Authorization { name, scope, action, groups, dry_run: policy.dry_run })
}

fn groups(mesh: &Mesh, policy: &AuthorizationPolicy) -> Box<[Group]> {
    let kept =
        |rule: &&PolicyRule| policy.action == PolicyAction::Deny || http_attributes(rule).next().is_none();
    policy.rules.iter().filter(kept).map(|rule| group(mesh, rule)).collect()
}

/// `to`, `from` and each `when` are one rule each, in this order, as istiod has them.
fn group(mesh: &Mesh, rule: &PolicyRule) -> Group {
    let rule_of = |terms: &[Term]| Rule { matches: terms.iter().map(|term| match_of(mesh, term)).collect() };
    let alternatives = [&rule.to, &rule.from].into_iter().filter(|terms| !terms.is_empty());
    let when = rule.when.iter().map(|term| rule_of(std::slice::from_ref(term)));
    Group { rules: alternatives.map(|terms| rule_of(terms)).chain(when).collect() }
}

fn match_of(mesh: &Mesh, term: &Term) -> Match {
    let condition = |clause: &Clause| {
        let values = match &clause.values {
            ClauseValues::SourceIps(networks) => {
                Values::SourceIps(networks.iter().copied().map(canonical_network).collect())
            }
            ClauseValues::DestinationIps(networks) => {
                Values::DestinationIps(networks.iter().copied().map(canonical_network).collect())
            }
            ClauseValues::DestinationPorts(ports) => Values::DestinationPorts(ports.as_slice().into()),
            ClauseValues::Namespaces(texts) => {
                Values::Namespaces(texts.iter().map(|t| string_match(t)).collect())
            }
            ClauseValues::Principals(texts) => {
                let expanded = texts.iter().flat_map(|text| mesh.principals(text));
                Values::Principals(expanded.map(|text| string_match(&text)).collect())
            }
            ClauseValues::ServiceAccounts(accounts) => Values::ServiceAccounts(
                accounts
                    .iter()
                    .map(|(namespace, name)| ServiceAccount {
                        namespace: namespace.as_str().into(),
                        name: name.as_str().into(),
                    })
                    .collect(),
            ),
            ClauseValues::TrustDomains(texts) => {
                let expanded = texts.iter().flat_map(|text| mesh.trust_domains(text));
                Values::TrustDomains(expanded.map(string_match).collect())
            }
            ClauseValues::Http(_) => return None,
        };
        Some(Condition { negated: clause.negated, values })
    };
    Match { conditions: term.iter().filter_map(condition).collect() }
}

fn string_match(text: &str) -> StringMatch {
    match (text.strip_prefix('*'), text.strip_suffix('*')) {
        (Some(""), _) => StringMatch::Presence,
        (Some(suffix), _) => StringMatch::Suffix(suffix.into()),
        (None, Some(prefix)) => StringMatch::Prefix(prefix.into()),
        (None, None) => StringMatch::Exact(text.into()),
    }
}

impl Mesh {
    /// Every principal that `principal` stands for: one of our own trust domain counts under all its names.
    /// What is neither a whole `TRUST-DOMAIN/ns/NAMESPACE/sa/NAME` nor the beginning of one, such as
    /// `TRUST-DOMAIN/ns/NAMESPACE/*`, stays as it is.
    fn principals(&self, principal: &str) -> Vec<String> {
        match principal.split_once('/') {
            Some((trust_domain, rest)) if rest.ends_with('*') || rest.split('/').count() == 4 => {
                self.trust_domains(trust_domain).map(|name| format!("{name}/{rest}")).collect()
            }
            _ => vec![principal.into()],
        }
    }

    /// All names of our own trust domain where `name` is one of them, else `name` alone; each once.
    fn trust_domains<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let aliases = self.trust_domain_aliases.iter().map(String::as_str);
        let ours: Vec<&str> = std::iter::once(self.trust_domain.as_str()).chain(aliases).collect();
        let names = match name == OWN_TRUST_DOMAIN || ours.contains(&name) {
            true => ours,
            false => vec![name],
        };
        let mut seen = BTreeSet::new();
        names.into_iter().filter(move |name| seen.insert(*name))
    }
}

/// Whether transport policy took a policy over: the condition `ZtunnelAccepted` of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The condition's status: the policy is in force, be it in part.
    pub accepted: bool,
    /// The condition's reason.
    pub reason: &'static str,
    /// The condition's message. Its words are those of istiod, which tools look for.
    pub message: String,
    /// The field that is to blame, in diagnostics.
    field: &'static str,
}

impl Acceptance {
    pub(super) fn of(policy: &AuthorizationPolicy) -> Self {
        let action = match policy.action {
            PolicyAction::Audit => Some("AUDIT"),
            PolicyAction::Custom => Some("CUSTOM"),
            PolicyAction::Allow | PolicyAction::Deny => None,
        };
        let http: BTreeSet<&str> = policy.rules.iter().flat_map(http_attributes).collect();
        let found = || http.iter().copied().collect::<Vec<_>>().join(", ");
        let (accepted, reason, message, field) = match (policy.refused, action) {
            (_, Some(action)) => {
                let message = format!("ztunnel does not support the {action} action");
                (false, "UnsupportedValue", message, "spec.action")
            }
            (true, None) => {
                let message = "the policy cannot be read; it lets nothing through until it is repaired";
                (false, "Invalid", message.into(), "spec")
            }
            (false, None) if http.is_empty() => (true, "Accepted", "attached to ztunnel".into(), ""),
            (false, None) => {
                let message = format!(
                    "ztunnel does not support HTTP attributes (found: {}). In ambient mode you must use a \
                     waypoint proxy to enforce HTTP rules. {}",
                    found(),
                    consequence(policy)
                );
                (true, "UnsupportedValue", message, "spec.rules")
            }
        };
        Self { accepted, reason, message, field }
    }

    pub(super) fn diagnostic(&self, policy: &ObjectName) -> Option<Diagnostic> {
        let severity = match self.reason {
            "Accepted" => return None,
            "Invalid" => Severity::Error,
            _ => Severity::Warning,
        };
        let object = ObjectRef::new(Kind::AuthorizationPolicy, policy);
        Some(Diagnostic::new(severity, object, self.field, self.reason, self.message.clone()))
    }
}

/// What follows from leaving HTTP attributes out.
fn consequence(policy: &AuthorizationPolicy) -> &'static str {
    let is_http = |clause: &Clause| matches!(clause.values, ClauseValues::Http(_));
    let says_something = |term: &Term| !term.iter().all(is_http);
    // A rule can still match where each of its parts can.
    let effective = |rule: &PolicyRule| {
        let alternatives = [&rule.from, &rule.to].into_iter();
        alternatives.filter(|terms| !terms.is_empty()).all(|terms| terms.iter().any(says_something))
            && rule.when.iter().all(says_something)
    };
    match policy.action {
        PolicyAction::Deny if policy.rules.iter().any(effective) => {
            "DENY policy with HTTP attributes is enforced without the HTTP rules. This will be more \
             restrictive than requested."
        }
        PolicyAction::Deny => {
            "After omitting unsupported HTTP attributes, this DENY policy has no enforceable rules at ztunnel \
             and will have no effect. Deploy a waypoint proxy and use a targetRef to enforce this policy."
        }
        _ => {
            "Within an ALLOW policy, rules matching HTTP attributes are omitted. This will be more restrictive \
             than requested."
        }
    }
}

/// The HTTP attributes that a rule asks about, as written.
fn http_attributes(rule: &PolicyRule) -> impl Iterator<Item = &str> {
    let clauses = rule.from.iter().chain(&rule.to).chain(&rule.when).flatten();
    clauses.filter_map(|clause| match &clause.values {
        ClauseValues::Http(name) => Some(name.as_str()),
        _ => None,
    })
}
