use std::collections::HashSet;

use super::*;
use crate::store::objects::{
    Backend, IngressPath, IngressRule, IngressTls, Metadata, PathType, SecretOrigin, ServicePortRef, TlsHost,
    TlsSecret,
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
        tls: vec![IngressTls {
            index: 0,
            hosts: vec![TlsHost { index: 0, host: host.into() }],
            secret: TlsSecret::Named(secret.into()),
        }],
        rules: vec![IngressRule {
            index: 0,
            host: Some(host.into()),
            paths: vec![IngressPath { index: 0, path: "/".into(), kind: PathType::Prefix, backend }],
        }],
    })
}

fn secret(name: &str) -> Object {
    Object::Secret(Secret {
        metadata: metadata("a", name),
        kind: "kubernetes.io/tls".into(),
        origin: SecretOrigin::Object,
        pair: None,
        fields: Default::default(),
        ticket_keys: None,
        authorities: None,
        users: Default::default(),
        client_ca: None,
    })
}

fn host(pattern: &str) -> HostPattern {
    HostPattern::parse(pattern).unwrap()
}

fn cluster(service: &str) -> ClusterKey {
    ClusterKey { service: ObjectName::new("a", service), port: ServicePortRef::Number(80), by_service: false }
}

#[test]
fn a_secret_touches_the_hosts_that_name_it_in_any_order_of_arrival() {
    let mut store = Store::new();
    store.apply(Event::Apply(secret("tls")));
    store.apply(Event::Apply(ingress("one", "one.test", "tls", "web")));
    store.apply(Event::Apply(ingress("two", "two.test", "other", "web")));
    store.take_changes();

    store.apply(Event::Apply(secret("tls")));
    let changes = store.take_changes();
    assert_eq!(changes.certificates, HashSet::from([host("one.test")]));
    assert!(changes.hosts.is_empty(), "the routes stay as they are");
    store.apply(Event::Apply(secret("other")));
    assert_eq!(store.take_changes().certificates, HashSet::from([host("two.test")]));
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
    assert_eq!(store.clusters().collect::<Vec<_>>(), [&cluster("after")]);
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

#[test]
fn what_goes_touches_what_it_touched_as_it_came_and_is_filed_nowhere() {
    let mut store = Store::new();
    store.apply(Event::Apply(secret("tls")));
    store.apply(Event::Apply(ingress("one", "www.one.test", "tls", "web")));
    let came = store.take_changes();
    store.apply(Event::Delete(Kind::Ingress, ObjectName::new("a", "one")));
    let went = store.take_changes();
    assert_eq!((&went.hosts, &went.clusters), (&came.hosts, &came.clusters));
    assert_eq!(went.ingresses, came.ingresses);
    assert!(store.hosts().is_empty() && store.clusters().next().is_none());
    store.apply(Event::Apply(secret("tls")));
    assert!(store.take_changes().certificates.is_empty(), "nobody names it any more");

    let slice = |service: &str| {
        Object::EndpointSlice(EndpointSlice {
            metadata: metadata("a", "slice"),
            service: Some(service.into()),
            ports: Vec::new(),
            endpoints: Vec::new(),
        })
    };
    let slices =
        |store: &Store, service: &str| store.endpoint_slices_of(&ObjectName::new("a", service)).count();
    store.apply(Event::Apply(slice("web")));
    store.apply(Event::Apply(slice("mail")));
    assert_eq!((slices(&store, "web"), slices(&store, "mail")), (0, 1));
    store.apply(Event::Delete(Kind::EndpointSlice, ObjectName::new("a", "slice")));
    assert_eq!(slices(&store, "mail"), 0);
}
