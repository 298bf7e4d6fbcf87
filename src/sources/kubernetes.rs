//! The Kubernetes source: what the API server has, followed by list and watch.
//!
//! One loop ([`watch::Watch`]) for every kind in [`RESOURCES`], each a task on the control runtime. The loops
//! report to one [`hub::Hub`], which knows when everything has been listed and which Secrets are named without
//! being of the type that is watched. Objects stay as they were for as long as the API server is away, also across
//! a start: `kept` has them on disk.

mod api;
mod backoff;
mod config_map;
mod hub;
mod keeper;
mod kept;
mod references;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

use std::rc::Rc;

use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::Batch;
use crate::store::objects::{Kind, ObjectName};
pub use api::{Api, ApiError, connect};
pub use backoff::Backoff;
pub use config_map::{kept_config_map, read_config_map};
use hub::Hub;
pub use keeper::Keep;
use keeper::Keeper;
pub use kept::forget;
use watch::{Target, Watch};

/// How the API server names a kind.
#[derive(Debug)]
pub struct Resource {
    pub kind: Kind,
    /// As in manifests: `v1`, `networking.k8s.io/v1`.
    pub api_version: &'static str,
    /// As in URLs, and in what `kubectl get` takes.
    pub plural: &'static str,
    /// Which objects of the kind are followed.
    follow: Follow,
    /// Whether the gateway is of use without it. Where rights or the kind itself are missing, an optional one
    /// counts as listed.
    optional: bool,
}

#[derive(Debug)]
enum Follow {
    All,
    /// Those that a field selector matches; others are fetched by name where something refers to them.
    Selected(&'static str),
    /// Only what settings or other objects name.
    Named,
}

/// Every kind that is followed. A new kind is one line here, next to its decoder in `store::objects`.
const RESOURCES: &[Resource] = &[
    resource(Kind::IngressClass, "networking.k8s.io/v1", "ingressclasses", Follow::All).optional(),
    resource(Kind::Ingress, "networking.k8s.io/v1", "ingresses", Follow::All),
    // Releases of Helm are Secrets too, of a megabyte each: they are never downloaded.
    resource(Kind::Secret, "v1", "secrets", Follow::Selected("type=kubernetes.io/tls")),
    resource(Kind::Service, "v1", "services", Follow::All),
    resource(Kind::EndpointSlice, "discovery.k8s.io/v1", "endpointslices", Follow::All),
    resource(Kind::Namespace, "v1", "namespaces", Follow::All).optional(),
    resource(Kind::ConfigMap, "v1", "configmaps", Follow::Named).optional(),
];

const fn resource(kind: Kind, api_version: &'static str, plural: &'static str, follow: Follow) -> Resource {
    Resource { kind, api_version, plural, follow, optional: false }
}

impl Resource {
    const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// How the API server names `kind`.
    pub fn of(kind: Kind) -> Option<&'static Self> {
        RESOURCES.iter().find(|resource| resource.kind == kind)
    }
}

/// What to follow, and where.
pub struct Kubernetes {
    pub api: Api,
    /// The only namespace to watch.
    pub namespace: Option<String>,
    /// The ConfigMap that holds settings.
    pub config_map: Option<ObjectName>,
    /// The Secret of the default certificate, wherever it is.
    pub default_certificate: Option<ObjectName>,
    /// Whether objects are kept on disk.
    pub keep: Option<Keep>,
    /// The Secret with session ticket keys, wherever it is.
    pub ticket_keys: Option<ObjectName>,
}

impl Kubernetes {
    /// Sends what there is, then what changes, until the receiver is dropped.
    pub async fn run(self, batches: Sender<Batch>) {
        let secrets = self.default_certificate.iter().chain(&self.ticket_keys).cloned();
        let hub = Rc::new(Hub::new(batches, secrets));
        let keeper = self.keep.as_ref().map(|keep| Keeper::start(keep, self.api.server()));
        let mut watches = JoinSet::new();
        for target in self.targets() {
            watches.spawn_local(Watch::new(self.api.clone(), target, hub.clone(), keeper.as_ref()).run());
        }
        let Some(secrets) = Resource::of(Kind::Secret) else { return };
        tokio::select! {
            () = hub.closed() => {}
            () = references::follow(&self.api, &hub, secrets, keeper.as_ref()) => {}
        }
    }

    fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<_> = RESOURCES
            .iter()
            .filter_map(|resource| Target::all(resource, self.namespace.as_deref()))
            .collect();
        let named = self.config_map.iter().map(|name| (Kind::ConfigMap, name));
        targets.extend(named.filter_map(|(kind, name)| Some(Target::one(Resource::of(kind)?, name))));
        targets
    }
}
