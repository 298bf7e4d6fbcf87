//! From a policy to its document.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::snapshot::policies::{
    Action, Authorization, Condition, Group, Match, Rule, Scope, ServiceAccount, StringMatch, Values,
};

/// The document of one policy, as JSON.
pub fn to_value(policy: &Authorization) -> Value {
    let mut document = Map::new();
    let mut set = |name: &str, value: Value| drop(document.insert(name.into(), value));
    match policy.scope {
        Scope::Global => {}
        Scope::Namespace => set("scope", "NAMESPACE".into()),
        Scope::WorkloadSelector => set("scope", "WORKLOAD_SELECTOR".into()),
    }
    if policy.action == Action::Deny {
        set("action", "DENY".into());
    }
    for (field, text) in [("name", &policy.name.name), ("namespace", &policy.name.namespace)] {
        if !text.is_empty() {
            set(field, (**text).into());
        }
    }
    if !policy.groups.is_empty() {
        set("groups", policy.groups.iter().map(group).collect());
    }
    if policy.dry_run {
        set("dryRun", true.into());
    }
    Value::Object(document)
}

fn group(group: &Group) -> Value {
    list("rules", &group.rules, rule)
}

fn rule(rule: &Rule) -> Value {
    list("matches", &rule.matches, match_)
}

/// An object with one list, or an empty object.
fn list<T>(name: &str, entries: &[T], write: impl Fn(&T) -> Value) -> Value {
    match entries.is_empty() {
        true => json!({}),
        false => json!({ name: entries.iter().map(write).collect::<Value>() }),
    }
}

fn match_(one: &Match) -> Value {
    Value::Object(
        one.conditions.iter().map(|condition| (field(condition).into(), values(condition))).collect(),
    )
}

fn field(condition: &Condition) -> &'static str {
    let (positive, negative) = match condition.values {
        Values::SourceIps(_) => ("sourceIps", "notSourceIps"),
        Values::DestinationIps(_) => ("destinationIps", "notDestinationIps"),
        Values::DestinationPorts(_) => ("destinationPorts", "notDestinationPorts"),
        Values::Namespaces(_) => ("namespaces", "notNamespaces"),
        Values::Principals(_) => ("principals", "notPrincipals"),
        Values::ServiceAccounts(_) => ("serviceAccounts", "notServiceAccounts"),
        Values::TrustDomains(_) => ("trustDomains", "notTrustDomains"),
    };
    if condition.negated { negative } else { positive }
}

fn values(condition: &Condition) -> Value {
    match &condition.values {
        Values::SourceIps(networks) | Values::DestinationIps(networks) => {
            networks.iter().map(network).collect()
        }
        Values::DestinationPorts(ports) => ports.iter().copied().collect(),
        Values::Namespaces(texts) | Values::Principals(texts) | Values::TrustDomains(texts) => {
            texts.iter().map(string_match).collect()
        }
        Values::ServiceAccounts(accounts) => accounts.iter().map(service_account).collect(),
    }
}

fn network(network: &IpNet) -> Value {
    let address = match network {
        IpNet::V4(v4) => BASE64_STANDARD.encode(v4.addr().octets()),
        IpNet::V6(v6) => BASE64_STANDARD.encode(v6.addr().octets()),
    };
    match network.prefix_len() {
        0 => json!({ "address": address }),
        length => json!({ "address": address, "length": length }),
    }
}

fn string_match(text: &StringMatch) -> Value {
    match text {
        StringMatch::Exact(value) => json!({ "exact": value }),
        StringMatch::Prefix(value) => json!({ "prefix": value }),
        StringMatch::Suffix(value) => json!({ "suffix": value }),
        StringMatch::Presence => json!({ "presence": {} }),
    }
}

fn service_account(account: &ServiceAccount) -> Value {
    let fields = [("namespace", &account.namespace), ("serviceAccount", &account.name)];
    let set = fields.into_iter().filter(|(_, text)| !text.is_empty());
    Value::Object(set.map(|(name, text)| (name.into(), (**text).into())).collect())
}
