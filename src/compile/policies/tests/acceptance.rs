//! AuthorizationPolicy: what is taken over, what is said about the rest, and what is refused.

use super::*;

fn policy(spec: &str) -> String {
    format!("kind: AuthorizationPolicy\nmetadata: {{name: p, namespace: foo}}\nspec: {spec}\n")
}

fn acceptance(spec: &str) -> Option<Acceptance> {
    compiled(&policy(spec)).acceptances.into_values().next()
}

#[test]
fn the_status_tells_what_is_in_force() {
    const HTTP: &str = "ztunnel does not support HTTP attributes (found: methods). In ambient mode you must use \
                        a waypoint proxy to enforce HTTP rules. ";
    const ALLOW: &str = "Within an ALLOW policy, rules matching HTTP attributes are omitted. This will be more \
                         restrictive than requested.";
    const DENY: &str = "DENY policy with HTTP attributes is enforced without the HTTP rules. This will be more \
                        restrictive than requested.";
    const INERT: &str = "After omitting unsupported HTTP attributes, this DENY policy has no enforceable rules \
                         at ztunnel and will have no effect. Deploy a waypoint proxy and use a targetRef to \
                         enforce this policy.";
    let l4 = "{to: [{operation: {ports: ['80']}}]}";
    let l7 = "{to: [{operation: {methods: [GET]}}]}";
    let mixed = "{to: [{operation: {ports: ['80'], methods: [GET]}}]}";
    let from_and_methods = "{from: [{source: {namespaces: [a]}}], to: [{operation: {methods: [GET]}}]}";
    for (action, rules, tail) in [
        ("ALLOW", l7.to_owned(), ALLOW),
        ("ALLOW", format!("{l7}, {l4}"), ALLOW),
        ("DENY", l7.to_owned(), INERT),
        ("DENY", mixed.to_owned(), DENY),
        ("DENY", format!("{l7}, {l4}"), DENY),
        ("DENY", format!("{{}}, {l7}"), DENY),
        ("DENY", from_and_methods.to_owned(), INERT),
    ] {
        let acceptance = acceptance(&format!("{{action: {action}, rules: [{rules}]}}")).unwrap();
        assert!(acceptance.accepted, "{action} {rules}");
        assert_eq!(acceptance.reason, "UnsupportedValue", "{action} {rules}");
        assert_eq!(acceptance.message, format!("{HTTP}{tail}"), "{action} {rules}");
    }
    for action in ["ALLOW", "DENY"] {
        let acceptance = acceptance(&format!("{{action: {action}, rules: [{l4}]}}")).unwrap();
        assert_eq!(
            (acceptance.accepted, acceptance.reason, acceptance.message.as_str()),
            (true, "Accepted", "attached to ztunnel")
        );
    }
    for (action, spec) in [("AUDIT", "{action: AUDIT}"), ("CUSTOM", "{action: CUSTOM, provider: {name: x}}")]
    {
        let acceptance = acceptance(spec).unwrap();
        assert_eq!((acceptance.accepted, acceptance.reason), (false, "UnsupportedValue"));
        assert_eq!(acceptance.message, format!("ztunnel does not support the {action} action"));
        assert!(compiled(&policy(spec)).authorizations().is_empty());
    }
    let targeted = policy("{targetRef: {kind: Gateway, group: g, name: w}, rules: [{}]}");
    assert!(compiled(&targeted).acceptances.is_empty());
    assert!(compiled(&targeted).authorizations().is_empty());
}

#[test]
fn an_l4_part_and_an_http_condition_together_are_inert() {
    let spec = "{action: DENY, rules: [{from: [{source: {principals: ['*']}}], when: [{key: connection.sni, values: [a]}]}]}";
    let policies = compiled(&policy(spec));
    assert!(policies.acceptances.values().next().unwrap().message.contains("will have no effect"));
    let peer = id("cluster.local/ns/app/sa/web");
    assert!(policies.workload("foo", &app_a()).decide(&connection(Some(&peer), 80)).allowed);
}

#[test]
fn http_attributes_are_listed_once_in_order() {
    let spec = "{rules: [{to: [{operation: {paths: [/a], notMethods: [GET], methods: [PUT]}}, {operation: {paths: [/b]}}],
        when: [{key: 'request.headers[x]', values: [a]}]}]}";
    let message = acceptance(spec).unwrap().message;
    assert!(message.contains("(found: methods, notMethods, paths, request.headers[x])"), "{message}");
}

#[test]
fn unreadable_policies_are_refused_and_let_nothing_through() {
    let from = |source: &str| format!("{{rules: [{{from: [{{source: {source}}}]}}]}}");
    let to = |operation: &str| format!("{{rules: [{{to: [{{operation: {operation}}}]}}]}}");
    let when = |when: &str| format!("{{rules: [{{when: [{when}]}}]}}");
    let source = "spec.rules[0].from[0].source";
    let operation = "spec.rules[0].to[0].operation";
    for (spec, field, reason) in [
        (to("{ports: [http]}"), format!("{operation}.ports[0]"), "InvalidPort"),
        (to("{ports: ['80', '65536']}"), format!("{operation}.ports[1]"), "InvalidPort"),
        (to("{notPorts: ['-1']}"), format!("{operation}.notPorts[0]"), "InvalidPort"),
        (to("{ports: [80]}"), format!("{operation}.ports[0]"), "InvalidValue"),
        (to("{ports: '80'}"), format!("{operation}.ports"), "InvalidValue"),
        (to("{}"), operation.to_owned(), "EmptyMatch"),
        (to("{port: ['80']}"), format!("{operation}.port"), "UnknownField"),
        (from("{ipBlocks: [10.0.0.0/33]}"), format!("{source}.ipBlocks[0]"), "InvalidAddress"),
        (from("{ipBlocks: [10.0.0]}"), format!("{source}.ipBlocks[0]"), "InvalidAddress"),
        (from("{principals: ['']}"), format!("{source}.principals[0]"), "InvalidValue"),
        (
            from("{principals: ['spiffe://td/ns/a/sa/b']}"),
            format!("{source}.principals[0]"),
            "InvalidPrincipal",
        ),
        (from("{principals: []}"), source.to_owned(), "EmptyMatch"),
        (from("{serviceAccounts: [a], namespaces: [b]}"), source.to_owned(), "ConflictingFields"),
        (from("{serviceAccounts: [a], notPrincipals: [b]}"), source.to_owned(), "ConflictingFields"),
        (from("{serviceAccounts: [a/b/c]}"), format!("{source}.serviceAccounts[0]"), "InvalidServiceAccount"),
        ("{rules: [{from: []}]}".into(), "spec.rules[0].from".into(), "EmptyList"),
        ("{rules: [{from: [{}]}]}".into(), source.to_owned(), "EmptyMatch"),
        ("{rules: [{form: []}]}".into(), "spec.rules[0].form".into(), "UnknownField"),
        ("{rules: {}}".into(), "spec.rules".into(), "InvalidValue"),
        ("{rules: [null]}".into(), "spec.rules[0]".into(), "InvalidValue"),
        ("{rules: [{from: [null]}]}".into(), "spec.rules[0].from[0]".into(), "InvalidValue"),
        ("{rules: [{when: [null]}]}".into(), "spec.rules[0].when[0]".into(), "InvalidValue"),
        (to("{ports: [null]}"), format!("{operation}.ports[0]"), "InvalidValue"),
        (from("{notPrincipals: [a, null]}"), format!("{source}.notPrincipals[1]"), "InvalidValue"),
        (
            when("{key: source.ip, notValues: [null]}"),
            "spec.rules[0].when[0].notValues[0]".into(),
            "InvalidValue",
        ),
        (when("{key: source.name, values: [a]}"), "spec.rules[0].when[0].key".into(), "UnknownKey"),
        (when("{key: source.ip}"), "spec.rules[0].when[0].key".into(), "EmptyMatch"),
        (when("{key: source.ip, values: [a]}"), "spec.rules[0].when[0].values[0]".into(), "InvalidAddress"),
        (when("{values: [a]}"), "spec.rules[0].when[0].key".into(), "UnknownKey"),
        ("{action: REFUSE, rules: [{}]}".into(), "spec.action".into(), "InvalidAction"),
        ("{provider: {name: x}}".into(), "spec.provider".into(), "InvalidProvider"),
        (
            "{selector: {matchLabels: {app: a}}, targetRefs: [{kind: Gateway}]}".into(),
            "spec".into(),
            "ConflictingTargets",
        ),
    ] {
        for action in ["ALLOW", "DENY"] {
            let spec = match spec.starts_with("{action") {
                true => spec.clone(),
                false => format!("{{action: {action}, {}", &spec[1..]),
            };
            let (_, authorization, findings) = decode(&policy(&spec));
            let finding = findings.first().unwrap_or_else(|| panic!("{spec}: nothing found"));
            assert_eq!((&finding.field, finding.reason), (&field, reason), "{spec}: {findings:?}");
            assert!(authorization[0].refused, "{spec}");
            let policies = compile_policies(&Mesh::default(), &[], &authorization);
            if authorization[0].targeted {
                continue;
            }
            assert!(policies.is_refused(&authorization[0].metadata.name));
            assert!(!policies.acceptances.values().next().unwrap().accepted);
            let peer = id("td/ns/a/sa/b");
            for principal in [None, Some(&peer)] {
                assert!(
                    !policies.workload("foo", &app_a()).decide(&connection(principal, 80)).allowed,
                    "{spec}"
                );
            }
            assert!(policies.workload("bar", &app_a()).decide(&connection(None, 80)).allowed, "{spec}");
        }
    }
}

#[test]
fn policies_apply_where_their_namespace_and_selector_say() {
    let deny = |name: &str, namespace: &str, selector: &str| {
        format!(
            "---\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{{selector}action: DENY, rules: [{{}}]}}\n"
        )
    };
    let selector = "selector: {matchLabels: {app: a}}, ";
    let empty = "selector: {matchLabels: {}}, ";
    for (name, yaml, in_foo, unselected, in_bar) in [
        ("namespace", deny("p", "foo", ""), false, false, true),
        ("empty selector", deny("p", "foo", empty), false, false, true),
        ("selector", deny("p", "foo", selector), false, true, true),
        ("mesh", deny("p", "istio-system", ""), false, false, false),
        ("mesh, empty selector", deny("p", "istio-system", empty), false, false, false),
        ("mesh, selector", deny("p", "istio-system", selector), false, true, false),
    ] {
        let policies = compiled(&yaml);
        let allowed = |namespace: &str, labels: &BTreeMap<String, String>| {
            policies.workload(namespace, labels).decide(&connection(None, 80)).allowed
        };
        assert_eq!(allowed("foo", &app_a()), in_foo, "{name}");
        assert_eq!(allowed("foo", &labels(&[("app", "b")])), unselected, "{name}");
        assert_eq!(allowed("bar", &app_a()), in_bar, "{name}");
    }
}

#[test]
fn our_trust_domain_counts_under_all_its_names() {
    let (_, authorization, findings) = decode(&policy(
        "{rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/x, new/ns/b/sa/*, other/ns/c/sa/x, '*/ns/d/sa/x',
            cluster.local/ns/e, cluster.local/ns/g/*], notPrincipals: [old/ns/f/sa/x, 'older/*', 'other/*'], trustDomains: [old, other]}}]}]}",
    ));
    assert!(findings.is_empty(), "{findings:?}");
    let mesh = Mesh {
        trust_domain: "new".into(),
        trust_domain_aliases: vec!["old".into(), "new".into(), "older".into()],
        ..Mesh::default()
    };
    let policies = compile_policies(&mesh, &[], &authorization);
    let document = document::to_value(policies.authorizations().values().next().unwrap());
    let one = &document["groups"][0]["rules"][0]["matches"][0];
    let texts = |field: &str| -> Vec<String> {
        let values = one[field].as_array().unwrap().iter();
        values
            .map(|value| value.as_object().unwrap().values().next().unwrap().as_str().unwrap().into())
            .collect()
    };
    assert_eq!(
        texts("principals"),
        [
            "new/ns/a/sa/x",
            "old/ns/a/sa/x",
            "older/ns/a/sa/x",
            "new/ns/b/sa/",
            "old/ns/b/sa/",
            "older/ns/b/sa/",
            "other/ns/c/sa/x",
            "/ns/d/sa/x",
            "cluster.local/ns/e",
            "new/ns/g/",
            "old/ns/g/",
            "older/ns/g/",
        ]
    );
    assert_eq!(
        texts("notPrincipals"),
        ["new/ns/f/sa/x", "old/ns/f/sa/x", "older/ns/f/sa/x", "new/", "old/", "older/", "other/"]
    );
    assert_eq!(texts("trustDomains"), ["new", "old", "older", "other"]);
}

#[test]
fn a_dry_run_is_counted_and_decides_nothing() {
    for (value, tried) in [("true", true), ("1", true), ("false", false), ("", false), ("maybe", false)] {
        let yaml = format!(
            "kind: AuthorizationPolicy\n\
             metadata: {{name: p, namespace: foo, annotations: {{istio.io/dry-run: '{value}'}}}}\n\
             spec: {{action: DENY, rules: [{{}}]}}\n"
        );
        let (_, _, findings) = decode(&yaml);
        assert_eq!(findings.len(), usize::from(value == "maybe"), "{value}");
        let workload = compiled(&yaml).workload("foo", &app_a());
        assert_eq!(workload.decide(&connection(None, 80)).allowed, tried, "{value}");
        let counted: Vec<_> = workload.dry_run(&connection(None, 80)).map(|(_, matches)| matches).collect();
        assert_eq!(counted, if tried { vec![true] } else { vec![] }, "{value}");
    }
}

#[test]
fn a_deny_without_rules_is_told() {
    let (_, authorization, findings) = decode(&policy("{action: DENY}"));
    assert_eq!(findings[0].reason, "NoRules");
    assert!(!authorization[0].refused);
    assert!(
        compiled(&policy("{action: DENY}")).workload("foo", &app_a()).decide(&connection(None, 80)).allowed
    );
}
