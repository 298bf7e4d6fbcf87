//! `portcullis policy explain`: policies in words.

use std::fmt::Write;

use super::workload::Workload;
use crate::compile::policies::{Policies, Transport};
use crate::snapshot::policies::{
    Action, Authorization, CONVERTED_PREFIX, Condition, Group, Match, Rule, STATIC_STRICT, Scope,
    StringMatch, Values, WorkloadPolicies,
};
use crate::store::objects::{MtlsMode, PeerAuthentication};

/// What a workload accepts, and which object says so.
pub(super) fn explain(policies: &Policies, workload: &Workload, applicable: &WorkloadPolicies) -> String {
    let mut out = format!("{}\n\nTransport\n", capitalised(&workload.to_string()));
    for (port, accepts, because) in transport(&policies.transport(&workload.namespace, &workload.labels)) {
        let _ = writeln!(out, "  {port:<16} {accepts:<19} {because}");
    }
    out.push_str("\nAuthorization\n");
    let mut allow = false;
    for policy in applicable.policies().filter(|policy| !is_told_already(policies, policy)) {
        allow |= policy.action == Action::Allow && !policy.dry_run;
        out.push_str(&authorization(policies, policy));
    }
    out.push_str(match allow {
        true => "  Whatever no ALLOW policy allows is refused.\n",
        false => "  There is no ALLOW policy: whatever is not denied above is accepted.\n",
    });
    out
}

/// Port, what it accepts, and why.
fn transport(transport: &Transport<'_>) -> Vec<(String, &'static str, String)> {
    let accepts = |strict: bool| if strict { "mTLS only" } else { "mTLS and plaintext" };
    let mut lines = Vec::new();
    for (pa, port, port_mode) in transport.ports() {
        let because = because(pa, &format!("spec.portLevelMtls.{port} {}", mode(port_mode)));
        lines.push((format!("port {port}"), accepts(port_mode == MtlsMode::Strict), because));
    }
    let base = match transport.base {
        Some(pa) => because(pa, &format!("spec.mtls.mode {}", mode(pa.mode))),
        None => "no PeerAuthentication sets a mode; PERMISSIVE is the default".into(),
    };
    let name = if lines.is_empty() { "every port" } else { "any other port" };
    lines.push((name.into(), accepts(transport.strict()), base));
    lines
}

fn because(pa: &PeerAuthentication, field: &str) -> String {
    let refused = if pa.refused { " (it cannot be read, and counts as STRICT)" } else { "" };
    format!("PeerAuthentication {}, {field}{refused}", pa.metadata.name)
}

fn mode(mode: MtlsMode) -> &'static str {
    match mode {
        MtlsMode::Unset => "UNSET",
        MtlsMode::Disable => "DISABLE",
        MtlsMode::Permissive => "PERMISSIVE",
        MtlsMode::Strict => "STRICT",
    }
}

/// What PeerAuthentications were converted to is under "Transport".
fn is_told_already(policies: &Policies, policy: &Authorization) -> bool {
    let converted = *policy.name.name == *STATIC_STRICT || policy.name.name.starts_with(CONVERTED_PREFIX);
    converted && policies.authorizations().contains_key(&policy.name)
}

fn authorization(policies: &Policies, policy: &Authorization) -> String {
    let kind = match policies.authorizations().contains_key(&policy.name) {
        true => "AuthorizationPolicy",
        false => "Authorization document",
    };
    let scope = match policy.scope {
        Scope::Global => "the whole mesh",
        Scope::Namespace => "its namespace",
        Scope::WorkloadSelector => "selected workloads",
    };
    let note = match (policies.is_refused(&policy.name), policy.dry_run) {
        (true, _) => "; it cannot be read, and lets nothing through",
        (false, true) => "; tried out only, not enforced",
        (false, false) => "",
    };
    let mut out = format!("  {} by {kind} {}, for {scope}{note}\n", policy.action, policy.name);
    if policy.groups.is_empty() {
        out.push_str("    no connection\n");
    }
    for group in &policy.groups {
        let _ = writeln!(out, "    {}", group_in_words(group));
    }
    out
}

fn group_in_words(group: &Group) -> String {
    let never =
        |rule: &Rule| !rule.matches.is_empty() && rule.matches.iter().all(|one| one.conditions.is_empty());
    if group.rules.iter().any(never) {
        return "no connection: a rule asks for HTTP attributes, which transport policy doesn't know".into();
    }
    let rules: Vec<String> = group.rules.iter().map(rule_in_words).collect();
    match rules.is_empty() {
        true => "any connection".into(),
        false => format!("connections where {}", rules.join(", and ")),
    }
}

fn rule_in_words(rule: &Rule) -> String {
    let possible = rule.matches.iter().filter(|one| !one.conditions.is_empty());
    let matches: Vec<String> = possible.map(match_in_words).collect();
    match &*matches {
        [] => "anything holds".into(),
        [only] => only.clone(),
        _ => format!("({})", matches.join(", or ")),
    }
}

fn match_in_words(one: &Match) -> String {
    let conditions: Vec<String> = one.conditions.iter().map(condition_in_words).collect();
    conditions.join(" and ")
}

fn condition_in_words(condition: &Condition) -> String {
    let (attribute, values) = match &condition.values {
        Values::SourceIps(networks) => ("the source address", words(networks)),
        Values::DestinationIps(networks) => ("the destination address", words(networks)),
        Values::DestinationPorts(ports) => ("the port", words(ports)),
        Values::Namespaces(texts) => ("the peer's namespace", texts.iter().map(text_in_words).collect()),
        Values::Principals(texts) => ("the peer's principal", texts.iter().map(text_in_words).collect()),
        Values::TrustDomains(texts) => ("the peer's trust domain", texts.iter().map(text_in_words).collect()),
        Values::ServiceAccounts(accounts) => (
            "the peer's service account",
            accounts.iter().map(|account| format!("{}/{}", account.namespace, account.name)).collect(),
        ),
    };
    match (condition.negated, &*values) {
        (false, _) => format!("{attribute} is {}", values.join(" or ")),
        (true, [only]) => format!("{attribute} is not {only}"),
        (true, _) => format!("{attribute} is neither {}", values.join(" nor ")),
    }
}

fn words<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn text_in_words(text: &StringMatch) -> String {
    match text {
        StringMatch::Exact(text) => text.to_string(),
        StringMatch::Prefix(text) => format!("{text}…"),
        StringMatch::Suffix(text) => format!("…{text}"),
        StringMatch::Presence => "known".into(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
