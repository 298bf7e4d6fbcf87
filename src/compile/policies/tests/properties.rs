//! What holds for all policies, objects and inputs.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::differential::{any_connection, any_policy, any_workload, identities};
use super::*;
use crate::snapshot::policies::Action;

/// A PeerAuthentication or AuthorizationPolicy of some namespace, as a document, in which faults are rare.
pub(super) fn any_object() -> impl Strategy<Value = String> {
    prop_oneof![peer_authentication(), authorization_policy()]
}

fn metadata() -> impl Strategy<Value = String> {
    let created = prop_oneof![
        3 => Just(String::new()),
        2 => (0..3u8).prop_map(|minute| format!(", creationTimestamp: '2024-05-01T10:0{minute}:00Z'")),
    ];
    (select(vec!["foo", "bar", "istio-system"]), "[a-e]", created)
        .prop_map(|(namespace, name, created)| format!("{{name: {name}, namespace: {namespace}{created}}}"))
}

fn selector() -> impl Strategy<Value = &'static str> {
    select(vec![
        "",
        "selector: {}, ",
        "selector: {matchLabels: {app: a}}, ",
        "selector: {matchLabels: {app: b}}, ",
    ])
}

fn mode() -> impl Strategy<Value = &'static str> {
    select(vec![
        "{}",
        "{mode: UNSET}",
        "{mode: DISABLE}",
        "{mode: PERMISSIVE}",
        "{mode: STRICT}",
        "{mode: X}",
    ])
}

fn peer_authentication() -> impl Strategy<Value = String> {
    let ports = vec((select(vec![80, 443, 8080, 9090]), mode()), 0..4).prop_map(|ports| {
        let ports: BTreeMap<u16, &str> = ports.into_iter().collect();
        ports.into_iter().map(|(port, mode)| format!("{port}: {mode}, ")).collect::<String>()
    });
    (metadata(), selector(), mode(), ports).prop_map(|(metadata, selector, mode, ports)| {
        let ports = if ports.is_empty() { ports } else { format!(", portLevelMtls: {{{ports}}}") };
        format!(
            "kind: PeerAuthentication\nmetadata: {metadata}\nspec: {{{selector}mtls: {mode}{ports}}}\n---\n"
        )
    })
}

fn authorization_policy() -> impl Strategy<Value = String> {
    let source = select(vec![
        "{principals: [cluster.local/ns/foo/sa/a]}",
        "{namespaces: ['f*'], notPrincipals: ['*']}",
        "{ipBlocks: [10.0.0.0/8]}",
        "{notServiceAccounts: [foo/a]}",
        "{requestPrincipals: [x]}",
        "{ipBlocks: [nonsense]}",
    ]);
    let operation =
        select(vec!["{ports: ['80', '443']}", "{notPorts: ['80']}", "{methods: [GET], ports: ['80']}"]);
    let rule = (vec(source, 0..3), vec(operation, 0..3)).prop_map(|(from, to)| {
        let list = |name: &str, inner: &str, entries: Vec<&str>| match entries.is_empty() {
            true => String::new(),
            false => {
                let entries: Vec<_> = entries.iter().map(|entry| format!("{{{inner}: {entry}}}")).collect();
                format!("{name}: [{}], ", entries.join(", "))
            }
        };
        format!("{{{}{}}}", list("from", "source", from), list("to", "operation", to))
    });
    let action = select(vec!["ALLOW", "DENY", "DENY", "AUDIT"]);
    (metadata(), selector(), action, vec(rule, 0..3)).prop_map(|(metadata, selector, action, rules)| {
        let rules = rules.join(", ");
        format!(
            "kind: AuthorizationPolicy\nmetadata: {metadata}\nspec: {{{selector}action: {action}, rules: [{rules}]}}\n---\n"
        )
    })
}

/// Objects with names of their own, as a store has them.
fn objects() -> impl Strategy<Value = (Vec<PeerAuthentication>, Vec<AuthorizationPolicy>)> {
    vec(any_object(), 0..8).prop_map(|documents| {
        let (mut peer, mut authorization, _) = decode(&documents.concat());
        peer.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        peer.dedup_by(|a, b| a.metadata.name == b.metadata.name);
        authorization.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        authorization.dedup_by(|a, b| a.metadata.name == b.metadata.name);
        (peer, authorization)
    })
}

/// All that can be seen of compiled policies.
fn picture(policies: &Policies) -> String {
    let documents = document::to_yaml(policies.authorizations().values().map(|policy| &**policy));
    let mut lists = Vec::new();
    for namespace in ["foo", "bar", "istio-system"] {
        for labels in [labels(&[]), app_a(), labels(&[("app", "b")])] {
            lists.push(keys(policies, namespace, &labels));
        }
    }
    format!("{documents}{lists:?}{:?}{:?}", policies.acceptances, policies.diagnostics)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_order_of_arrival_changes_no_byte(
        (peer, authorization) in objects(),
        seed in any::<prop::sample::Index>(),
    ) {
        let expected = picture(&compile_policies(&Mesh::default(), &peer, &authorization));
        let (mut other_peer, mut other_authorization) = (peer, authorization);
        other_peer.reverse();
        other_authorization.reverse();
        if !other_peer.is_empty() {
            let by = seed.index(other_peer.len());
            other_peer.rotate_left(by);
        }
        let other = compile_policies(&Mesh::default(), &other_peer, &other_authorization);
        prop_assert_eq!(picture(&other), expected);
    }

    #[test]
    fn no_key_dangles((peer, authorization) in objects()) {
        let policies = compile_policies(&Mesh::default(), &peer, &authorization);
        for namespace in ["foo", "bar", "istio-system"] {
            for labels in [labels(&[]), app_a(), labels(&[("app", "b")])] {
                prop_assert!(policies.workload(namespace, &labels).dangling().is_empty());
            }
        }
    }

    #[test]
    fn a_peer_authentication_never_denies_an_authenticated_peer(
        (peer, _) in objects(),
        port in any::<u16>(),
        who in select(identities()),
    ) {
        let policies = compile_policies(&Mesh::default(), &peer, &[]);
        for namespace in ["foo", "bar", "istio-system"] {
            let decision = policies.workload(namespace, &app_a()).decide(&connection(Some(&who), port)).allowed;
            prop_assert!(decision);
        }
    }

    #[test]
    fn a_document_reads_back_as_what_was_compiled((peer, authorization) in objects()) {
        let policies = compile_policies(&Mesh::default(), &peer, &authorization);
        let yaml = document::to_yaml(policies.authorizations().values().map(|policy| &**policy));
        let read: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        let read: Vec<_> = read.iter().map(|value| document::from_value(value).unwrap()).collect();
        let compiled: Vec<_> = policies.authorizations().values().map(|policy| (**policy).clone()).collect();
        prop_assert_eq!(read.len(), compiled.len());
        for (read, mut compiled) in read.into_iter().zip(compiled) {
            compiled = document::from_value(&document::to_value(&compiled)).unwrap();
            prop_assert_eq!(read, compiled);
        }
    }

    #[test]
    fn an_added_deny_never_allows(
        workload in any_workload(),
        mut added in any_policy(),
        (who, source, destination, port) in any_connection(),
    ) {
        added.action = Action::Deny;
        let connection = Connection { principal: who.as_ref(), source, destination, port };
        let before = WorkloadPolicies::new(workload.iter().cloned().map(Arc::new)).decide(&connection).allowed;
        let with = workload.into_iter().chain([added]).map(Arc::new);
        let after = WorkloadPolicies::new(with).decide(&connection).allowed;
        prop_assert!(before || !after);
    }

    #[test]
    fn a_dry_run_never_decides(
        workload in any_workload(),
        mut added in any_policy(),
        (who, source, destination, port) in any_connection(),
    ) {
        added.dry_run = true;
        let connection = Connection { principal: who.as_ref(), source, destination, port };
        let before = WorkloadPolicies::new(workload.iter().cloned().map(Arc::new)).decide(&connection).allowed;
        let with = workload.into_iter().chain([added]).map(Arc::new);
        prop_assert_eq!(WorkloadPolicies::new(with).decide(&connection).allowed, before);
    }

    #[test]
    fn nothing_panics_on_odd_objects(text in any_object(), from in any::<prop::sample::Index>(), byte in ".{0,3}") {
        let mut text = text;
        let at = (0..=from.index(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.insert_str(at, &byte);
        for value in serde_saphyr::from_multiple::<Value>(&text).unwrap_or_default() {
            let mut findings = Vec::new();
            let peer: Vec<_> = PeerAuthentication::decode(&value, "", &mut findings).into_iter().collect();
            let authorization: Vec<_> =
                AuthorizationPolicy::decode(&value, "", &mut findings).into_iter().collect();
            let policies = compile_policies(&Mesh::default(), &peer, &authorization);
            for policy in policies.authorizations().values() {
                let value = document::to_value(policy);
                prop_assert!(document::from_value(&value).is_ok() || policy.name.name.is_empty(), "{}", value);
            }
            let _ = document::from_value(&value);
        }
    }
}
