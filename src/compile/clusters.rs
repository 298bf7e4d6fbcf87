//! The endpoints of one backend: a Service port with its EndpointSlices, or an ExternalName.
//!
//! A backend that has none is still a cluster, empty and with its reason, so that requests get 503 and a word
//! about why. The Ingresses that lead to it get a finding each.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::classes::Classes;
use super::external_names;
use crate::annotations;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::annotation::DEFAULT_BACKEND;
use crate::settings::{Settings, choices::Source};
use crate::snapshot::clusters::{Cluster, ClusterKey, Endpoint};
use crate::store::Store;
use crate::store::objects::{
    Backend, EndpointSlice, Ingress, Kind, ObjectName, Service, ServiceKind, ServicePort, ServicePortRef,
};

/// Ingresses that get a finding about the same backend; more would say nothing new.
const MOST_FINDINGS: usize = 100;

/// Why a backend has no endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    severity: Severity,
    reason: &'static str,
    /// Where the backend is used.
    unavailable: &'static str,
    /// For the person who wrote the Ingress.
    message: String,
}

impl Problem {
    fn error(reason: &'static str, unavailable: &'static str, message: String) -> Self {
        Self { severity: Severity::Error, reason, unavailable, message }
    }
}

/// The backend as it is now, `None` where no served Ingress leads to it, and what there is to say.
pub(super) fn compile_cluster(
    store: &Store,
    classes: &Classes,
    settings: &Settings,
    key: &ClusterKey,
    previous: Option<&Arc<Cluster>>,
) -> (Option<Arc<Cluster>>, Vec<Diagnostic>) {
    let wants = |ingress: &&Arc<Ingress>| match key.port {
        ServicePortRef::First => is_fallback(ingress, key, settings),
        _ => annotations::service_upstream(&ingress.metadata, settings) == key.by_service,
    };
    let filed = key.reached(false);
    let users = store.ingresses_of_cluster(&filed);
    let mut users = users.filter(|ingress| classes.serves(ingress)).filter(wants).peekable();
    if users.peek().is_none() {
        return (None, Vec::new());
    }
    match find_endpoints(store, settings, key) {
        Ok(endpoints) => (Some(reuse(key, endpoints, None, previous)), Vec::new()),
        Err(problem) => {
            let findings = users
                .take(MOST_FINDINGS)
                .map(|ingress| problem_of(ingress, key, settings, &problem))
                .collect();
            (Some(reuse(key, Vec::new(), Some(problem.unavailable), previous)), findings)
        }
    }
}

/// Whether an Ingress names this backend in `default-backend`.
fn is_fallback(ingress: &Ingress, key: &ClusterKey, settings: &Settings) -> bool {
    let named = annotations::default_backend(&ingress.metadata, settings);
    !key.by_service && named.is_some_and(|named| named == &*key.service.name)
}

/// The same `Arc` as before where nothing changed; endpoints that stay are the same ones in any case.
fn reuse(
    key: &ClusterKey,
    endpoints: Vec<Endpoint>,
    unavailable: Option<&'static str>,
    previous: Option<&Arc<Cluster>>,
) -> Arc<Cluster> {
    let Some(previous) = previous else {
        let endpoints: Vec<_> = endpoints.into_iter().map(Arc::new).collect();
        return Arc::new(Cluster::new(Arc::new(key.clone()), endpoints, unavailable));
    };
    let same = previous.endpoints.iter().map(|endpoint| &**endpoint).eq(&endpoints);
    if same && previous.unavailable == unavailable {
        return previous.clone();
    }
    let known: std::collections::HashMap<&Endpoint, &Arc<Endpoint>> =
        previous.endpoints.iter().map(|endpoint| (&**endpoint, endpoint)).collect();
    let kept = |endpoint| match known.get(&endpoint) {
        Some(known) => Arc::clone(known),
        None => Arc::new(endpoint),
    };
    let endpoints: Vec<_> = endpoints.into_iter().map(kept).collect();
    Arc::new(Cluster::new(previous.key.clone(), endpoints, unavailable))
}

fn find_endpoints(store: &Store, settings: &Settings, key: &ClusterKey) -> Result<Vec<Endpoint>, Problem> {
    let name = quoted(&key.service.name);
    let Some(service) = store.service(&key.service) else {
        let message = format!("There is no Service {name} in namespace {}.", quoted(&key.service.namespace));
        return Err(Problem::error("ServiceNotFound", "the Service does not exist", message));
    };
    let port = find_port(service, &key.port).ok_or_else(|| {
        let port = match &key.port {
            ServicePortRef::Number(port) => port.to_string(),
            ServicePortRef::Name(port) => quoted(port),
            ServicePortRef::First => "at all".into(),
        };
        let message = format!("Service {name} has no port {port}; it has {}.", ports_of(service));
        Problem::error("ServicePortNotFound", "the Service has no such port", message)
    })?;
    match &service.kind {
        ServiceKind::ExternalName(target) => {
            let port = port.number_of_external_name();
            let endpoint = external_names::endpoint(target, port, settings).map_err(|error| {
                let message = format!("Service {name} points at {}: {error}.", quoted(target));
                Problem::error("ExternalNameRefused", "the ExternalName of the Service is refused", message)
            })?;
            Ok(vec![endpoint])
        }
        ServiceKind::Cluster => {
            let guarded = settings.source == Source::Kubernetes;
            // A headless Service has none: then its endpoints are all there is.
            let own = service.addresses.iter().find(|address| !guarded || is_pod_address(address));
            if let (true, Some(address)) = (key.by_service, own) {
                return Ok(vec![Endpoint::Address(SocketAddr::new(*address, port.number()))]);
            }
            let slices = store.endpoint_slices_of(&key.service);
            let found = addresses(slices, &port, guarded);
            if found.is_empty() {
                return Err(Problem {
                    severity: Severity::Warning,
                    reason: "NoEndpoints",
                    unavailable: "the Service has no ready endpoint",
                    message: no_endpoints(store, &key.service, &port),
                });
            }
            Ok(found.into_iter().map(Endpoint::Address).collect())
        }
    }
}

/// A port as an Ingress may mean it.
#[derive(Clone, Copy)]
enum Port<'a> {
    Listed(&'a ServicePort),
    /// Of a Service that lists no ports, as headless ones and those with an ExternalName may.
    Bare(u16),
}

impl Port<'_> {
    fn number(self) -> u16 {
        match self {
            Self::Listed(port) => port.port,
            Self::Bare(port) => port,
        }
    }

    fn number_of_external_name(self) -> u16 {
        match self {
            Self::Listed(ServicePort { target: Some(ServicePortRef::Number(target)), .. }) => *target,
            Self::Listed(_) | Self::Bare(_) => self.number(),
        }
    }
}

/// By number or name; failing that by target port, as ingress-nginx allows.
fn find_port<'a>(service: &'a Service, wanted: &ServicePortRef) -> Option<Port<'a>> {
    let by_port = |port: &&ServicePort| match wanted {
        ServicePortRef::Number(number) => port.port == *number,
        ServicePortRef::Name(name) => port.name.as_deref() == Some(name) || port.port.to_string() == *name,
        ServicePortRef::First => true,
    };
    let by_target = |port: &&ServicePort| port.target.as_ref() == Some(wanted);
    let listed = service.ports.iter().find(by_port).or_else(|| service.ports.iter().find(by_target));
    match (listed, wanted) {
        (Some(port), _) => Some(Port::Listed(port)),
        (None, ServicePortRef::Number(number @ 1..)) if service.ports.is_empty() => Some(Port::Bare(*number)),
        (None, _) => None,
    }
}

/// Ready endpoints; where there are none, those that still serve while they terminate. Without duplicates, in
/// order. A slice may list several addresses of one endpoint and several slices the same endpoint.
fn addresses<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    port: &Port,
    guarded: bool,
) -> BTreeSet<SocketAddr> {
    let (mut ready, mut terminating) = (BTreeSet::new(), BTreeSet::new());
    for slice in slices {
        let ports = slice_ports(slice, port);
        for endpoint in &slice.endpoints {
            let group = match (endpoint.ready, endpoint.serving && endpoint.terminating) {
                (true, _) => &mut ready,
                (false, true) => &mut terminating,
                (false, false) => continue,
            };
            let usable = endpoint.addresses.iter().filter(|address| !guarded || is_pod_address(address));
            group
                .extend(usable.flat_map(|address| ports.iter().map(|port| SocketAddr::new(*address, *port))));
        }
    }
    if ready.is_empty() { terminating } else { ready }
}

/// The numbers that a Service port has in a slice. They carry the Service port's name, and the number is that
/// of the container: a named target port is resolved there already.
fn slice_ports(slice: &EndpointSlice, port: &Port) -> Vec<u16> {
    let wanted = match port {
        Port::Bare(number) => return vec![*number],
        Port::Listed(port) => port.name.as_deref().unwrap_or(""),
    };
    let ports = slice.ports.iter().filter(|port| port.name.as_deref().unwrap_or("") == wanted);
    ports.filter_map(|port| port.port).filter(|port| *port != 0).collect()
}

/// Addresses of pods and other hosts. The API server refuses the rest too; a writer of EndpointSlices must not
/// reach what only this machine can reach (CVE-2021-25740).
fn is_pod_address(address: &IpAddr) -> bool {
    !external_names::is_local(address)
}

fn no_endpoints(store: &Store, service: &ObjectName, port: &Port) -> String {
    let name = quoted(&service.name);
    let mut slices = store.endpoint_slices_of(service).peekable();
    if slices.peek().is_none() {
        return format!("Service {name} has no EndpointSlice.");
    }
    if slices.all(|slice| slice_ports(slice, port).is_empty()) {
        return match port {
            Port::Listed(ServicePort { name: Some(port), .. }) => {
                format!("No EndpointSlice of Service {name} has a port named {}.", quoted(port))
            }
            _ => format!("No EndpointSlice of Service {name} has a port without a name."),
        };
    }
    format!("Service {name} has no ready endpoint.")
}

fn ports_of(service: &Service) -> String {
    let ports = service.ports.iter().take(10).map(|port| match &port.name {
        Some(name) => format!("{} ({})", port.port, quoted(name)),
        None => port.port.to_string(),
    });
    match ports.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".into(),
        ports => ports,
    }
}

fn problem_of(ingress: &Ingress, key: &ClusterKey, settings: &Settings, problem: &Problem) -> Diagnostic {
    let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let field = match key.port {
        ServicePortRef::First => annotations::field_of(&ingress.metadata, settings, DEFAULT_BACKEND),
        _ => field_of(ingress, key),
    };
    Diagnostic::new(problem.severity, object, field, problem.reason, problem.message.clone())
}

/// Where an Ingress names this backend first.
fn field_of(ingress: &Ingress, key: &ClusterKey) -> String {
    let names_it = |backend: &Backend| match backend {
        Backend::Service { name, port } => **name == *key.service.name && *port == key.port,
        Backend::Resource => false,
    };
    for rule in &ingress.rules {
        if let Some(path) = rule.paths.iter().find(|path| names_it(&path.backend)) {
            return format!("spec.rules[{}].http.paths[{}].backend.service", rule.index, path.index);
        }
    }
    "spec.defaultBackend.service".into()
}
