use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::peer_authentication::port_number;
use super::policy_reader::{Field, Fields, Reader};
use super::{Kind, Metadata};
use crate::diagnostics::{Diagnostic, Severity};

const DRY_RUN: &str = "istio.io/dry-run";

/// `security.istio.io AuthorizationPolicy` (v1, v1beta1): who may connect to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationPolicy {
    pub metadata: Metadata,
    /// The labels of the workloads that it's for. Empty means all of the namespace, or of the mesh.
    pub selector: BTreeMap<String, String>,
    pub action: PolicyAction,
    pub rules: Vec<PolicyRule>,
    /// Has a `targetRef`: meant for a waypoint proxy, not for transport policy.
    pub targeted: bool,
    /// Annotated to be tried out only.
    pub dry_run: bool,
    /// It could not be read, has no rules, and lets nothing through until it is repaired.
    pub refused: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyAction {
    #[default]
    Allow,
    Deny,
    Audit,
    Custom,
}

/// Applies where any term of `from`, any of `to` and all of `when` hold; an empty list always does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule {
    pub from: Vec<Term>,
    pub to: Vec<Term>,
    pub when: Vec<Term>,
}

/// Clauses that hold together.
pub type Term = Vec<Clause>;

/// An attribute is among some values or, negated, among none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    pub negated: bool,
    pub values: ClauseValues,
}

/// An attribute with its values. Texts are as written, with `*` at an end as a wildcard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClauseValues {
    SourceIps(Vec<IpNet>),
    DestinationIps(Vec<IpNet>),
    DestinationPorts(Vec<u16>),
    Namespaces(Vec<String>),
    Principals(Vec<String>),
    /// Namespace and name.
    ServiceAccounts(Vec<(String, String)>),
    TrustDomains(Vec<String>),
    /// An attribute of requests, which transport policy doesn't know: its field or key as written.
    Http(String),
}

/// What the values of a field are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribute {
    SourceIp,
    DestinationIp,
    DestinationPort,
    Namespace,
    Principal,
    ServiceAccount,
    TrustDomain,
    Http,
}

/// The fields of `from[].source`, with their negative twins.
const SOURCE_FIELDS: [(&str, &str, Attribute); 7] = [
    ("principals", "notPrincipals", Attribute::Principal),
    ("requestPrincipals", "notRequestPrincipals", Attribute::Http),
    ("namespaces", "notNamespaces", Attribute::Namespace),
    ("ipBlocks", "notIpBlocks", Attribute::SourceIp),
    ("remoteIpBlocks", "notRemoteIpBlocks", Attribute::Http),
    ("serviceAccounts", "notServiceAccounts", Attribute::ServiceAccount),
    ("trustDomains", "notTrustDomains", Attribute::TrustDomain),
];

/// The fields of `to[].operation`.
const OPERATION_FIELDS: [(&str, &str, Attribute); 4] = [
    ("hosts", "notHosts", Attribute::Http),
    ("ports", "notPorts", Attribute::DestinationPort),
    ("methods", "notMethods", Attribute::Http),
    ("paths", "notPaths", Attribute::Http),
];

/// The keys of `when`.
fn attribute_of_key(key: &str) -> Option<Attribute> {
    Some(match key {
        "source.ip" => Attribute::SourceIp,
        "source.namespace" => Attribute::Namespace,
        "source.principal" => Attribute::Principal,
        "source.serviceAccount" => Attribute::ServiceAccount,
        "source.trustDomain" => Attribute::TrustDomain,
        "destination.ip" => Attribute::DestinationIp,
        "destination.port" => Attribute::DestinationPort,
        "remote.ip"
        | "request.auth.principal"
        | "request.auth.audiences"
        | "request.auth.presenter"
        | "connection.sni" => Attribute::Http,
        _ if key.starts_with("request.headers[") || key.starts_with("request.auth.claims[") => {
            Attribute::Http
        }
        _ if key.starts_with("experimental.envoy.filters.") => Attribute::Http,
        _ => return None,
    })
}

impl AuthorizationPolicy {
    /// Reads one from its JSON form. What is wrong with it goes to `findings`; `None` where it has no name
    /// to go by, or its selector doesn't say whom it is for.
    pub fn decode(value: &Value, default_namespace: &str, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let (mut reader, metadata, mut spec) =
            Reader::start(Kind::AuthorizationPolicy, value, default_namespace, findings)?;
        let selector = reader.selector(spec.take("selector"))?;
        let targeted = reader.targeted(&mut spec, !selector.is_empty());
        let action = reader.action(&mut spec);
        let rules = reader.rules(spec.take("rules"), action, &metadata.name.namespace);
        reader.finish(spec);
        let dry_run = reader.dry_run(&metadata);
        let refused = reader.refused;
        let rules = if refused { Vec::new() } else { rules };
        Some(Self { metadata, selector, action, rules, targeted, dry_run, refused })
    }
}

impl Reader<'_> {
    fn targeted(&mut self, spec: &mut Fields<'_>, selected: bool) -> bool {
        let one = spec.take("targetRef").filter(|field| !field.value.is_null());
        let several = spec.take("targetRefs");
        let several = self.list(several);
        let targeted = one.is_some() || !several.is_empty();
        if usize::from(selected) + usize::from(one.is_some()) + usize::from(!several.is_empty()) > 1 {
            let message = "only one of selector, targetRef and targetRefs may be there";
            self.refuse(&spec.path, "ConflictingTargets", message);
        }
        targeted
    }

    fn action(&mut self, spec: &mut Fields<'_>) -> PolicyAction {
        let field = spec.take("action");
        let action = match self.text(field) {
            None | Some("ALLOW") => PolicyAction::Allow,
            Some("DENY") => PolicyAction::Deny,
            Some("AUDIT") => PolicyAction::Audit,
            Some("CUSTOM") => PolicyAction::Custom,
            Some(other) => {
                let message = format!("'{other}' is not one of ALLOW, DENY, AUDIT and CUSTOM");
                self.refuse(&format!("{}.action", spec.path), "InvalidAction", message);
                // A DENY that was meant must not be lost.
                PolicyAction::Deny
            }
        };
        let provider = spec.take("provider").filter(|field| !field.value.is_null());
        if provider.is_some() != (action == PolicyAction::Custom) {
            let message = "a provider belongs to action CUSTOM, and to that one only";
            self.refuse(&format!("{}.provider", spec.path), "InvalidProvider", message);
        }
        action
    }

    fn dry_run(&mut self, metadata: &Metadata) -> bool {
        match metadata.annotations.get(DRY_RUN).map(String::as_str) {
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            None | Some("" | "0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some(other) => {
                let message = format!("'{other}' is neither true nor false; the policy is enforced");
                let path = format!("metadata.annotations.{DRY_RUN}");
                self.report(Severity::Warning, &path, "InvalidValue", message);
                false
            }
        }
    }

    fn rules(&mut self, field: Option<Field<'_>>, action: PolicyAction, namespace: &str) -> Vec<PolicyRule> {
        let rules = self.list(field);
        if rules.is_empty() && action == PolicyAction::Deny {
            let message = "a DENY policy without rules denies nothing";
            self.report(Severity::Warning, "spec.rules", "NoRules", message);
        }
        rules.into_iter().map(|rule| self.rule(rule, namespace)).collect()
    }

    fn rule(&mut self, field: Field<'_>, namespace: &str) -> PolicyRule {
        let mut rule = self.fields(field);
        let (from, to, when) = (rule.take("from"), rule.take("to"), rule.take("when"));
        self.finish(rule);
        PolicyRule {
            from: self.terms(from, "source", &SOURCE_FIELDS, namespace),
            to: self.terms(to, "operation", &OPERATION_FIELDS, namespace),
            when: self.list(when).into_iter().map(|field| self.when(field, namespace)).collect(),
        }
    }

    /// The entries of `from` or `to`, each with everything under `name`.
    fn terms(
        &mut self,
        field: Option<Field<'_>>,
        name: &'static str,
        known: &[(&'static str, &'static str, Attribute)],
        namespace: &str,
    ) -> Vec<Term> {
        let Some(field) = field.filter(|field| !field.value.is_null()) else { return Vec::new() };
        let path = field.path.clone();
        let entries = self.list(Some(field));
        if entries.is_empty() {
            self.refuse(&path, "EmptyList", format!("there must be at least one {name}"));
        }
        entries.into_iter().map(|entry| self.term(entry, name, known, namespace)).collect()
    }

    fn term(
        &mut self,
        field: Field<'_>,
        name: &'static str,
        known: &[(&'static str, &'static str, Attribute)],
        namespace: &str,
    ) -> Term {
        let mut entry = self.fields(field);
        let path = format!("{}.{name}", entry.path);
        let inner = entry.take(name);
        self.finish(entry);
        let Some(inner) = inner else {
            self.refuse(&path, "EmptyMatch", format!("the {name} must say something"));
            return Term::new();
        };
        let mut fields = self.fields(inner);
        let mut term = Term::new();
        for &(positive, negative, attribute) in known {
            let found = [(false, positive), (true, negative)]
                .map(|(negated, name)| (negated, name, fields.take(name)));
            for (negated, name, field) in found {
                term.extend(self.clause(field, negated, attribute, name, namespace));
            }
        }
        self.finish(fields);
        if term.is_empty() {
            self.refuse(&path, "EmptyMatch", format!("the {name} must say something"));
        }
        let named = |values: &ClauseValues| {
            matches!(values, ClauseValues::Namespaces(_) | ClauseValues::Principals(_))
        };
        let accounts = term.iter().any(|clause| matches!(clause.values, ClauseValues::ServiceAccounts(_)));
        if accounts && term.iter().any(|clause| named(&clause.values)) {
            let message = "serviceAccounts cannot stand beside namespaces or principals";
            self.refuse(&path, "ConflictingFields", message);
        }
        term
    }

    fn when(&mut self, field: Field<'_>, namespace: &str) -> Term {
        let mut when = self.fields(field);
        let (key, values, not_values) = (when.take("key"), when.take("values"), when.take("notValues"));
        let path = format!("{}.key", when.path);
        self.finish(when);
        let key = self.text(key).unwrap_or_default();
        let Some(attribute) = attribute_of_key(key) else {
            self.refuse(&path, "UnknownKey", format!("there is no condition '{key}'"));
            return Term::new();
        };
        let term: Term = [(false, values), (true, not_values)]
            .into_iter()
            .filter_map(|(negated, field)| self.clause(field, negated, attribute, key, namespace))
            .collect();
        if term.is_empty() {
            self.refuse(&path, "EmptyMatch", format!("'{key}' needs values or notValues"));
        }
        term
    }

    /// One field with its values, or `None` where there are none.
    fn clause(
        &mut self,
        field: Option<Field<'_>>,
        negated: bool,
        attribute: Attribute,
        name: &str,
        namespace: &str,
    ) -> Option<Clause> {
        let entries: Vec<_> =
            self.list(field).into_iter().map(|entry| (entry.path.clone(), self.text(Some(entry)))).collect();
        if entries.is_empty() {
            return None;
        }
        let texts = entries.iter().filter_map(|(path, text)| Some((path.as_str(), (*text)?)));
        let values = match attribute {
            Attribute::SourceIp => ClauseValues::SourceIps(self.each(texts, "InvalidAddress", network)),
            Attribute::DestinationIp => {
                ClauseValues::DestinationIps(self.each(texts, "InvalidAddress", network))
            }
            Attribute::DestinationPort => {
                ClauseValues::DestinationPorts(self.each(texts, "InvalidPort", port))
            }
            Attribute::Namespace => ClauseValues::Namespaces(texts.map(|(_, text)| text.into()).collect()),
            Attribute::Principal => ClauseValues::Principals(self.each(texts, "InvalidPrincipal", principal)),
            Attribute::ServiceAccount => {
                let account = |text: &str| service_account(text, namespace);
                ClauseValues::ServiceAccounts(self.each(texts, "InvalidServiceAccount", account))
            }
            Attribute::TrustDomain => {
                ClauseValues::TrustDomains(texts.map(|(_, text)| text.into()).collect())
            }
            Attribute::Http => ClauseValues::Http(name.into()),
        };
        Some(Clause { negated, values })
    }

    fn each<'t, T>(
        &mut self,
        texts: impl Iterator<Item = (&'t str, &'t str)>,
        reason: &'static str,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Vec<T> {
        let mut values = Vec::new();
        for (path, text) in texts {
            match parse(text) {
                Ok(value) => values.push(value),
                Err(why) => self.refuse(path, reason, format!("'{text}' {why}")),
            }
        }
        values
    }
}

/// An address or a CIDR block, whose host bits may be set.
fn network(text: &str) -> Result<IpNet, &'static str> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    text.parse().or(address).map_err(|_| "is neither an IP address nor a CIDR block")
}

fn port(text: &str) -> Result<u16, &'static str> {
    port_number(text).ok_or("is not a port number from 0 to 65535")
}

fn principal(text: &str) -> Result<String, &'static str> {
    match text.contains("spiffe://") {
        false => Ok(text.into()),
        true => Err("would never match: principals are written without 'spiffe://'"),
    }
}

/// `NAMESPACE/NAME`, or `NAME` in the namespace of the policy.
fn service_account(text: &str, namespace: &str) -> Result<(String, String), &'static str> {
    let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
    match name.is_empty() || namespace.contains('*') || name.contains(['/', '*']) || text.starts_with('/') {
        false => Ok((namespace.into(), name.into())),
        true => Err("is neither NAME nor NAMESPACE/NAME"),
    }
}
