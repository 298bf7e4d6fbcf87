//! Short ways to write the objects of a test. Everything is in namespace `a` unless it says otherwise.

use crate::store::objects::{
    Backend, Endpoint, EndpointPort, EndpointSlice, Ingress, IngressClass, IngressPath, IngressRule,
    IngressTls, Metadata, Object, ObjectName, PathType, Service, ServiceKind, ServicePort, ServicePortRef,
    TlsSecret,
};

pub fn metadata(name: &str) -> Metadata {
    Metadata {
        name: ObjectName::new("a", name),
        created: None,
        labels: Default::default(),
        annotations: Default::default(),
    }
}

pub fn service_backend(service: &str) -> Backend {
    Backend::Service { name: service.into(), port: ServicePortRef::Number(80) }
}

pub fn ingress(name: &str) -> Ingress {
    Ingress {
        metadata: metadata(name),
        class: None,
        default_backend: None,
        tls: Vec::new(),
        rules: Vec::new(),
    }
}

impl Ingress {
    /// Adds a prefix path to the rule of `host`.
    pub fn path(self, host: &str, path: &str, service: &str) -> Self {
        self.path_of(PathType::Prefix, host, path, service_backend(service))
    }

    pub fn path_of(mut self, kind: PathType, host: &str, path: &str, backend: Backend) -> Self {
        let host = (!host.is_empty()).then(|| host.to_string());
        let index = self.rules.iter().position(|rule| rule.host == host).unwrap_or(self.rules.len());
        if index == self.rules.len() {
            self.rules.push(IngressRule { index, host, paths: Vec::new() });
        }
        let paths = &mut self.rules[index].paths;
        paths.push(IngressPath { index: paths.len(), path: path.into(), kind, backend });
        self
    }

    pub fn default_service(mut self, service: &str) -> Self {
        self.default_backend = Some(service_backend(service));
        self
    }

    pub fn tls(mut self) -> Self {
        let index = self.tls.len();
        self.tls.push(IngressTls { index, hosts: Vec::new(), secret: TlsSecret::Named("tls".into()) });
        self
    }

    pub fn created(mut self, seconds: i64) -> Self {
        self.metadata.created = Some(seconds);
        self
    }

    pub fn class(mut self, class: &str) -> Self {
        self.class = Some(class.into());
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.metadata.annotations.insert(key.into(), value.into());
        self
    }

    pub fn object(self) -> Object {
        Object::Ingress(self)
    }
}

pub fn class(name: &str, controller: &str, default: bool) -> Object {
    let name = ObjectName::new("", name);
    Object::IngressClass(IngressClass {
        metadata: Metadata { name, ..metadata("") },
        controller: controller.into(),
        default,
    })
}

/// A Service with the port `http`, 80, to 8080.
pub fn service(name: &str) -> Service {
    Service {
        metadata: metadata(name),
        kind: ServiceKind::Cluster,
        addresses: Vec::new(),
        ports: vec![ServicePort {
            name: Some("http".into()),
            port: 80,
            target: Some(ServicePortRef::Number(8080)),
            app_protocol: None,
        }],
    }
}

pub fn external(name: &str, target: &str) -> Object {
    Object::Service(Service { kind: ServiceKind::ExternalName(target.into()), ..service(name) })
}

/// A slice of `service` with the port `http`, 8080, and ready endpoints.
pub fn slice(name: &str, service: &str, addresses: &[&str]) -> EndpointSlice {
    EndpointSlice {
        metadata: metadata(name),
        service: Some(service.into()),
        ports: vec![EndpointPort { name: Some("http".into()), port: Some(8080), app_protocol: None }],
        endpoints: addresses.iter().map(|address| endpoint(address, true, true, false)).collect(),
    }
}

pub fn endpoint(address: &str, ready: bool, serving: bool, terminating: bool) -> Endpoint {
    Endpoint { addresses: vec![address.parse().unwrap()], ready, serving, terminating }
}
