//! PeerAuthentication against the documented semantics, exhaustively for one and two ports.

use super::*;
use crate::snapshot::policies::{CONVERTED_PREFIX, Reason, STATIC_STRICT};
use crate::store::objects::{Metadata, MtlsMode};

use MtlsMode::{Disable, Permissive, Strict, Unset};

const MODES: [MtlsMode; 4] = [Unset, Disable, Permissive, Strict];

/// No object at a level, or one with each mode.
const LEVEL: [Option<MtlsMode>; 5] = [None, Some(Unset), Some(Disable), Some(Permissive), Some(Strict)];

fn peer_authentication(
    namespace: &str,
    name: &str,
    mode: MtlsMode,
    selector: BTreeMap<String, String>,
    ports: &[(u16, MtlsMode)],
) -> PeerAuthentication {
    PeerAuthentication {
        metadata: Metadata {
            name: ObjectName::new(namespace, name),
            created: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        },
        selector,
        mode,
        ports: ports.iter().copied().collect(),
        refused: false,
    }
}

fn objects(
    root: Option<MtlsMode>,
    namespace: Option<MtlsMode>,
    workload: MtlsMode,
    ports: &[(u16, MtlsMode)],
) -> Vec<PeerAuthentication> {
    let level =
        |namespace: &str, mode: MtlsMode| peer_authentication(namespace, "level", mode, BTreeMap::new(), &[]);
    let mut objects = vec![peer_authentication("foo", "workload", workload, app_a(), ports)];
    objects.extend(root.map(|mode| level("istio-system", mode)));
    objects.extend(namespace.map(|mode| level("foo", mode)));
    objects
}

/// The documented rule, level by level.
fn is_strict(
    root: Option<MtlsMode>,
    namespace: Option<MtlsMode>,
    workload: MtlsMode,
    port: Option<MtlsMode>,
) -> bool {
    let decisive = [port, Some(workload), namespace, root].into_iter().flatten().find(|mode| *mode != Unset);
    decisive == Some(Strict)
}

/// Modes of root, namespace and workload, and of the workload's ports.
type Combination = (Option<MtlsMode>, Option<MtlsMode>, MtlsMode, Vec<(u16, MtlsMode)>);

/// Every combination of levels with every set of modes for the given ports.
fn combinations(ports: &[u16]) -> impl Iterator<Item = Combination> {
    let with_port = |sets: Vec<Vec<(u16, MtlsMode)>>, port: u16| {
        let with = |set: &Vec<(u16, MtlsMode)>, mode: MtlsMode| [&set[..], &[(port, mode)]].concat();
        sets.iter().flat_map(|set| MODES.map(|mode| with(set, mode))).collect()
    };
    let sets: Vec<_> = ports.iter().fold(vec![Vec::new()], |sets, port| with_port(sets, *port));
    LEVEL.into_iter().flat_map(move |root| {
        let sets = sets.clone();
        LEVEL.into_iter().flat_map(move |namespace| {
            let sets = sets.clone();
            MODES.into_iter().flat_map(move |workload| {
                sets.clone().into_iter().map(move |ports| (root, namespace, workload, ports))
            })
        })
    })
}

#[test]
fn every_combination_of_levels_and_ports_does_what_is_documented() {
    let peer = id("cluster.local/ns/app/sa/web");
    let foreign = id("partner.example/ns/app/sa/web");
    let mut count = 0;
    for ports in [&[][..], &[9090], &[9090, 8080]] {
        for (root, namespace, workload, ports) in combinations(ports) {
            let case = format!("root {root:?}, namespace {namespace:?}, workload {workload:?}, {ports:?}");
            let policies =
                compile_policies(&Mesh::default(), &objects(root, namespace, workload, &ports), &[]);
            let resolved = policies.workload("foo", &app_a());
            assert!(resolved.dangling().is_empty(), "{case}: {:?}", resolved.dangling());
            for port in [9090, 8080, 15008] {
                let mode = ports.iter().find(|(number, _)| *number == port).map(|(_, mode)| *mode);
                let strict = is_strict(root, namespace, workload, mode);
                let decision = resolved.decide(&connection(None, port));
                assert_eq!(decision.allowed, !strict, "{case}: plaintext to {port}: {decision}");
                for principal in [&peer, &foreign] {
                    assert!(resolved.decide(&connection(Some(principal), port)).allowed, "{case}: {port}");
                }
            }
            count += 1;
        }
    }
    assert_eq!(count, 25 * 4 * (1 + 4 + 16));
}

/// One row of the truth table: which keys a workload lists, and in which shape its policy is.
#[test]
fn every_row_of_the_truth_table_has_its_shape() {
    for (root, namespace, workload, ports) in combinations(&[9090]) {
        let port = ports[0].1;
        let parent = matches!((root, namespace), (_, Some(Strict)) | (Some(Strict), None | Some(Unset)));
        let (shape, key) = match (workload, port) {
            (Disable | Permissive, Unset | Disable | Permissive) => ("", "-"),
            (Disable | Permissive, Strict) => ("[!P&=9090]", "C"),
            (Strict, Unset | Strict) => ("", "S"),
            (Strict, Disable | Permissive) if parent => ("[!P][!=9090][!P]", "C"),
            (Strict, Disable | Permissive) => ("[!P][!=9090]", "C"),
            (Unset, Unset) => ("", if parent { "S" } else { "-" }),
            (Unset, Strict) if parent => ("", "S"),
            (Unset, Strict) => ("[!P&=9090]", "C"),
            (Unset, Permissive | Disable) if parent => ("[!=9090][!P]", "C"),
            (Unset, Permissive | Disable) => ("", "-"),
        };
        let case = format!("root {root:?}, namespace {namespace:?}, workload {workload:?}, port {port:?}");
        let policies = compile_policies(&Mesh::default(), &objects(root, namespace, workload, &ports), &[]);
        let converted = ObjectName::new("foo", format!("{CONVERTED_PREFIX}workload"));
        let groups =
            policies.authorizations().get(&converted).map(|policy| shape_of(policy)).unwrap_or_default();
        assert_eq!(groups, shape, "{case}");
        let keys = policies.keys("foo", &app_a());
        let letters: Vec<_> = keys.iter().map(|key| if *key == converted { "C" } else { "S" }).collect();
        assert_eq!(if letters.is_empty() { "-".into() } else { letters.concat() }, key, "{case}");
    }
}

/// The rules of a policy of one group, in the notation of the table.
fn shape_of(policy: &Authorization) -> String {
    let value = document::to_value(policy);
    assert_eq!(value["action"], "DENY");
    assert_eq!(value["scope"], "WORKLOAD_SELECTOR");
    assert_eq!(value["groups"].as_array().unwrap().len(), 1);
    let rules = value["groups"][0]["rules"].as_array().unwrap().iter();
    rules
        .map(|rule| match rule["matches"][0].to_string().as_str() {
            r#"{"notPrincipals":[{"presence":{}}]}"# => "[!P]",
            r#"{"notDestinationPorts":[9090]}"# => "[!=9090]",
            r#"{"destinationPorts":[9090],"notPrincipals":[{"presence":{}}]}"# => "[!P&=9090]",
            other => panic!("{other}"),
        })
        .collect()
}

#[test]
fn keys_follow_a_sequence_of_changes() {
    let (s, c) = (format!("istio-system/{STATIC_STRICT}"), format!("ns1/{CONVERTED_PREFIX}selector"));
    let (s, c) = (vec![s.as_str()], vec![c.as_str()]);
    type Change<'a> = (&'a str, Option<MtlsMode>, &'a [(u16, MtlsMode)], Vec<&'a str>);
    let changes: [Change<'_>; 13] = [
        ("mesh", Some(Permissive), &[], vec![]),
        ("namespace", Some(Strict), &[], s.clone()),
        ("selector", Some(Strict), &[], s.clone()),
        ("selector", Some(Permissive), &[], vec![]),
        ("selector", Some(Permissive), &[(9090, Strict)], c.clone()),
        ("selector", Some(Permissive), &[(9090, Permissive)], vec![]),
        ("namespace", Some(Permissive), &[], vec![]),
        ("selector", Some(Strict), &[], s.clone()),
        ("selector", Some(Strict), &[(9090, Permissive)], c.clone()),
        ("selector", Some(Unset), &[(9090, Strict)], c.clone()),
        ("namespace", Some(Strict), &[], s.clone()),
        ("selector", Some(Unset), &[(9090, Permissive)], c.clone()),
        ("selector", None, &[], s.clone()),
    ];
    let mut present = BTreeMap::new();
    for (at, (level, mode, ports, expected)) in changes.into_iter().enumerate() {
        let namespace = if level == "mesh" { "istio-system" } else { "ns1" };
        let selector = if level == "selector" { app_a() } else { BTreeMap::new() };
        match mode {
            Some(mode) => {
                drop(present.insert(level, peer_authentication(namespace, level, mode, selector, ports)));
            }
            None => drop(present.remove(level)),
        }
        let objects: Vec<_> = present.values().cloned().collect();
        let policies = compile_policies(&Mesh::default(), &objects, &[]);
        assert_eq!(keys(&policies, "ns1", &app_a()), expected, "change {at}");
        if at == 4 {
            assert_eq!(keys(&policies, "ns1", &labels(&[("app", "b")])), s, "not selected");
        }
    }
}

#[test]
fn the_static_policy_is_there_with_the_first_peer_authentication() {
    assert!(compile_policies(&Mesh::default(), &[], &[]).authorizations().is_empty());
    let objects = [peer_authentication("foo", "open", Permissive, BTreeMap::new(), &[])];
    let policies = compile_policies(&Mesh::default(), &objects, &[]);
    let documents = document::to_yaml(policies.authorizations().values().map(|policy| &**policy));
    let expected = "action: DENY\ngroups:\n- rules:\n  - matches:\n    - notPrincipals:\n      - presence: {}\n\
                    name: istio_converted_static_strict\nnamespace: istio-system\nscope: WORKLOAD_SELECTOR\n";
    assert_eq!(documents, expected);
}

#[test]
fn a_policy_without_its_key_target_fails_closed() {
    let set = PolicySet::default();
    let peer = id("cluster.local/ns/app/sa/web");
    for name in [STATIC_STRICT, "converted_peer_authentication_gone"] {
        let workload = set.workload("foo", &[ObjectName::new("foo", name)]);
        assert_eq!(workload.dangling().len(), 1);
        let decision = workload.decide(&connection(None, 80));
        assert_eq!((decision.allowed, decision.reason), (false, Reason::DanglingStrict));
        assert!(workload.decide(&connection(Some(&peer), 80)).allowed);
    }
    let workload = set.workload("foo", &[ObjectName::new("foo", "gone")]);
    let decision = workload.decide(&connection(Some(&peer), 80));
    assert_eq!((decision.allowed, decision.reason), (false, Reason::DanglingPolicy));
}

#[test]
fn unreadable_objects_are_refused_and_count_as_strict() {
    for (spec, field, reason) in [
        ("mtls: {mode: strict}", "spec.mtls.mode", "InvalidMode"),
        ("mtls: {mode: 3}", "spec.mtls.mode", "InvalidValue"),
        ("mtls: STRICT", "spec.mtls", "InvalidValue"),
        ("mtls: {modus: STRICT}", "spec.mtls.modus", "UnknownField"),
        ("mtl: {mode: PERMISSIVE}", "spec.mtl", "UnknownField"),
        ("portLevelMtls: {80: {mode: STRICT}}", "spec.portLevelMtls", "SelectorRequired"),
        ("{selector: {}, portLevelMtls: {80: {mode: STRICT}}}", "spec.portLevelMtls", "SelectorRequired"),
        ("{selector: {matchLabels: {app: a}}, portLevelMtls: {}}", "spec.portLevelMtls", "InvalidPort"),
        (
            "{selector: {matchLabels: {app: a}}, portLevelMtls: {0: {}}}",
            "spec.portLevelMtls.0",
            "InvalidPort",
        ),
        (
            "{selector: {matchLabels: {app: a}}, portLevelMtls: {65536: {}}}",
            "spec.portLevelMtls.65536",
            "InvalidPort",
        ),
        (
            "{selector: {matchLabels: {app: a}}, portLevelMtls: {http: {}}}",
            "spec.portLevelMtls.http",
            "InvalidPort",
        ),
    ] {
        let yaml =
            format!("kind: PeerAuthentication\nmetadata: {{name: p, namespace: foo}}\nspec:\n  {spec}\n");
        let (peer, _, findings) = decode(&yaml);
        let finding = findings.first().unwrap_or_else(|| panic!("{spec}: nothing found"));
        assert_eq!((finding.field.as_str(), finding.reason), (field, reason), "{spec}: {findings:?}");
        assert_eq!(finding.object.as_ref().unwrap().to_string(), "PeerAuthentication foo/p");
        assert!(peer[0].refused, "{spec}");
        let policies = compile_policies(&Mesh::default(), &peer, &[]);
        assert!(!policies.workload("foo", &app_a()).decide(&connection(None, 80)).allowed, "{spec}");
    }
}

#[test]
fn objects_are_left_out_that_do_not_say_whom_they_are_for() {
    for (spec, field, reason) in [
        ("selector: {matchLabels: [a]}", "spec.selector.matchLabels", "InvalidValue"),
        ("selector: {matchLabels: {app: 1}}", "spec.selector.matchLabels.app", "InvalidValue"),
        ("selector: {matchLabels: {app: '*'}}", "spec.selector.matchLabels", "InvalidSelector"),
        ("selector: {app: a}", "spec.selector.app", "UnknownField"),
        ("selector: a", "spec.selector", "InvalidValue"),
        ("[]", "spec", "InvalidValue"),
    ] {
        for kind in ["PeerAuthentication", "AuthorizationPolicy"] {
            let yaml = format!("kind: {kind}\nmetadata: {{name: p, namespace: foo}}\nspec:\n  {spec}\n");
            let (peer, authorization, findings) = decode(&yaml);
            assert_eq!((peer.len(), authorization.len()), (0, 0), "{spec}");
            assert_eq!(
                (findings[0].field.as_str(), findings[0].reason),
                (field, reason),
                "{spec}: {findings:?}"
            );
            assert_eq!(findings.last().unwrap().reason, "LeftOut", "{spec}");
        }
    }
    let (peer, _, findings) = decode("kind: PeerAuthentication\nmetadata: {}\n");
    assert!(peer.is_empty());
    assert_eq!(findings[0].reason, "MissingName");
}

#[test]
fn an_ignored_selector_in_the_root_namespace_is_told() {
    let objects = [peer_authentication("istio-system", "some", Strict, app_a(), &[(80, Permissive)])];
    let policies = compile_policies(&Mesh::default(), &objects, &[]);
    assert_eq!(policies.diagnostics.len(), 1);
    assert_eq!(policies.diagnostics[0].reason, "SelectorIgnored");
    for namespace in ["foo", "istio-system"] {
        assert!(keys(&policies, namespace, &app_a()).is_empty(), "{namespace}");
    }
}

#[test]
fn the_oldest_of_a_level_counts_and_the_others_are_told() {
    for namespace in ["istio-system", "foo"] {
        let at = |name: &str, created: Option<i64>, mode: MtlsMode| {
            let mut pa = peer_authentication(namespace, name, mode, BTreeMap::new(), &[]);
            pa.metadata.created = created;
            pa
        };
        let objects = [
            at("c", Some(20), Strict),
            at("d", None, Strict),
            at("b", Some(10), Permissive),
            at("e", Some(10), Strict),
        ];
        let policies = compile_policies(&Mesh::default(), &objects, &[]);
        assert!(keys(&policies, "foo", &app_a()).is_empty());
        let told: Vec<_> =
            policies.diagnostics.iter().map(|d| (d.object.as_ref().unwrap().to_string(), d.reason)).collect();
        let name = |name: &str| (format!("PeerAuthentication {namespace}/{name}"), "Outranked");
        assert_eq!(told, [name("c"), name("d"), name("e")]);
    }
}
