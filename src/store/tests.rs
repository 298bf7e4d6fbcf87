use super::*;
use crate::store::objects::{
    Backend, IngressPath, IngressRule, IngressTls, Metadata, PathType, SecretOrigin, ServicePortRef,
};

fn metadata(namespace: &str, name: &str) -> Metadata {
    Metadata {
        name: ObjectName::new(namespace, name),
        created: None,
        labels: Default::default(),
        annotations: Default::default(),
    }
}

fn ingress(name: &str, host: &str, secret: &str, service: &str) -> Object {
    let backend = Backend::Service { name: service.into(), port: ServicePortRef::Number(80) };
    Object::Ingress(Ingress {
        metadata: metadata("a", name),
        class: None,
        default_backend: None,
        tls: vec![IngressTls { hosts: vec![host.into()], secret: Some(secret.into()) }],
        rules: vec![IngressRule {
            host: Some(host.into()),
            paths: vec![IngressPath { path: "/".into(), kind: PathType::Prefix, backend }],
        }],
    })
}

fn secret(name: &str) -> Object {
    Object::Secret(Secret {
        metadata: metadata("a", name),
        kind: "kubernetes.io/tls".into(),
        origin: SecretOrigin::Object,
        pair: None,
        ticket_keys: None,
        authorities: None,
    })
}

fn host(pattern: &str) -> HostPattern {
    HostPattern::parse(pattern).unwrap()
}

fn cluster(service: &str) -> ClusterKey {
    ClusterKey { service: ObjectName::new("a", service), port: ServicePortRef::Number(80) }
}

#[test]
fn a_secret_touches_the_hosts_that_name_it_in_any_order_of_arrival() {
    let mut store = Store::new();
    store.apply(Event::Apply(secret("tls")));
    store.apply(Event::Apply(ingress("one", "one.test", "tls", "web")));
    store.apply(Event::Apply(ingress("two", "two.test", "other", "web")));
    store.take_changes();

    store.apply(Event::Apply(secret("tls")));
    assert_eq!(store.take_changes().hosts, HashSet::from([host("one.test")]));
    store.apply(Event::Apply(secret("other")));
    assert_eq!(store.take_changes().hosts, HashSet::from([host("two.test")]));
    assert!(store.take_changes().is_empty());
}

#[test]
fn a_moved_ingress_touches_its_old_and_its_new_host_and_backend() {
    let mut store = Store::new();
    store.apply(Event::Apply(ingress("one", "old.test", "tls", "before")));
    store.take_changes();

    store.apply(Event::Apply(ingress("one", "new.test", "tls", "after")));
    let changes = store.take_changes();
    assert_eq!(changes.hosts, HashSet::from([host("old.test"), host("new.test")]));
    assert_eq!(changes.clusters, HashSet::from([cluster("before"), cluster("after")]));
    assert!(store.ingresses_of_host(&host("old.test")).is_empty());
    assert!(!store.is_cluster_used(&cluster("before")));
    assert!(store.is_cluster_used(&cluster("after")));
}

#[test]
fn a_re_list_drops_what_is_gone_and_keeps_what_stays() {
    let mut store = Store::new();
    store.apply(Event::Apply(ingress("gone", "gone.test", "tls", "web")));
    store.apply(Event::Apply(ingress("stays", "stays.test", "tls", "web")));
    store.take_changes();

    store.apply(Event::Replace(Kind::Ingress, vec![ingress("stays", "stays.test", "tls", "web")]));
    assert!(store.take_changes().hosts.contains(&host("gone.test")));
    assert_eq!(store.ingresses().count(), 1);
    assert_eq!(store.ingresses_of_host(&host("stays.test")).len(), 1);
}

#[test]
fn a_service_touches_its_own_backends_only() {
    let mut store = Store::new();
    store.apply(Event::Apply(ingress("one", "one.test", "tls", "web")));
    store.apply(Event::Apply(ingress("two", "two.test", "tls", "webmail")));
    store.take_changes();

    store.apply(Event::Delete(Kind::Service, ObjectName::new("a", "web")));
    assert!(store.take_changes().is_empty(), "nothing was there to delete");
    store.apply(Event::Apply(Object::Service(Service {
        metadata: metadata("a", "web"),
        kind: crate::store::objects::ServiceKind::Cluster,
        addresses: Vec::new(),
        ports: Vec::new(),
    })));
    assert_eq!(store.take_changes().clusters, HashSet::from([cluster("web")]));
}
