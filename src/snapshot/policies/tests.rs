use std::net::IpAddr;

use super::*;

#[test]
fn texts_are_compared_byte_for_byte() {
    let exact = StringMatch::Exact("foo".into());
    let prefix = StringMatch::Prefix("foo".into());
    let suffix = StringMatch::Suffix("foo".into());
    for (matcher, text, expected) in [
        (&exact, "foo", true),
        (&exact, "not", false),
        (&exact, "Foo", false),
        (&exact, "", false),
        (&prefix, "foobar", true),
        (&prefix, "foo", true),
        (&prefix, "notfoo", false),
        (&prefix, "", false),
        (&suffix, "barfoo", true),
        (&suffix, "foonot", false),
        (&suffix, "", false),
        (&StringMatch::Presence, "foo", true),
        (&StringMatch::Presence, "", false),
    ] {
        assert_eq!(matcher.matches(text), expected, "{matcher:?} {text:?}");
    }
}

#[test]
fn mapped_networks_become_ipv4() {
    for (network, canonical) in [
        ("::ffff:10.0.0.1/128", "10.0.0.1/32"),
        ("::ffff:10.0.0.1/104", "10.0.0.1/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::ffff:0:0/95", "::ffff:0:0/95"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("10.0.0.1/8", "10.0.0.1/8"),
    ] {
        let canonical: IpNet = canonical.parse().unwrap();
        assert_eq!(canonical_network(network.parse().unwrap()), canonical, "{network}");
    }
}

#[test]
fn a_policy_that_changes_its_scope_leaves_its_old_place() {
    let policy = |scope| {
        std::sync::Arc::new(Authorization {
            name: ObjectName::new("foo", "p"),
            scope,
            action: Action::Deny,
            groups: [Group::default()].into(),
            dry_run: false,
        })
    };
    let any: IpAddr = [10, 0, 0, 1].into();
    let connection = Connection { principal: None, source: any, destination: any, port: 80 };
    let allowed = |scope, namespace: &str, keys: &[ObjectName]| {
        PolicySet::new([policy(scope)]).workload(namespace, keys).decide(&connection).allowed
    };
    assert!(!allowed(Scope::Global, "bar", &[]));
    assert!(!allowed(Scope::Namespace, "foo", &[]));
    assert!(allowed(Scope::Namespace, "bar", &[]));
    assert!(allowed(Scope::WorkloadSelector, "foo", &[]));
    assert!(!allowed(Scope::WorkloadSelector, "bar", &[ObjectName::new("foo", "p")]));
}
