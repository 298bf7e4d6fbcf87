//! The Kubernetes source: what the API server has, followed by list and watch.
//!
//! One loop ([`watch::Watch`]) for every kind in [`RESOURCES`], each a task on the control runtime. The loops
//! report to one [`hub::Hub`], which knows when everything has been listed and which Secrets are named without
//! being of the type that is watched. Objects stay as they were for as long as the API server is away, also across
//! a start: `kept` has them on disk.

mod config_map;
mod hub;
mod keeper;
mod kept;
mod named;
mod references;
mod rest;
mod target;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::Sender;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;

use super::Batch;
use crate::api_server::Api;
use crate::settings::Settings;
use crate::store::objects::Kind;
pub use config_map::{kept_config_map, read_config_map};
use hub::Hub;
pub use keeper::Keep;
use keeper::Keeper;
pub use kept::forget;
use target::Target;
use watch::Watch;

/// How the API server names a kind.
#[derive(Debug)]
pub struct Resource {
    pub kind: Kind,
    /// As in URLs, and in what `kubectl get` takes.
    pub plural: &'static str,
    /// Which objects of the kind are followed.
    follow: Follow,
    need: Need,
    /// Followed only where there is a mesh port.
    mesh: bool,
}

#[derive(Debug)]
enum Follow {
    All,
    /// Those that a field selector matches; others are fetched by name where something refers to them.
    Selected(&'static str),
    /// Only what settings or other objects name.
    Named,
}

/// What it means that a kind cannot be listed, for whether the first list is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// The gateway is of no use without it.
    Vital,
    /// There is nothing to wait for where the API server does not have the kind. Where only the right to see it is
    /// missing there may be objects, and to go on without them would open what they close.
    WherePresent,
    /// Counts as listed where the right or the kind is missing.
    Optional,
}

/// Every kind that is followed. What else a new kind takes is in `store::objects`, beside its decoders.
const RESOURCES: &[Resource] = &[
    resource(Kind::IngressClass, "ingressclasses", Follow::All).need(Need::Optional),
    resource(Kind::Ingress, "ingresses", Follow::All),
    // Releases of Helm are Secrets too, of a megabyte each: they are never downloaded.
    resource(Kind::Secret, "secrets", Follow::Selected("type=kubernetes.io/tls")),
    resource(Kind::Service, "services", Follow::All),
    resource(Kind::EndpointSlice, "endpointslices", Follow::All),
    resource(Kind::Namespace, "namespaces", Follow::All).need(Need::Optional),
    resource(Kind::ConfigMap, "configmaps", Follow::Named).need(Need::Optional),
    // One that has ended has no address any more.
    resource(Kind::Pod, "pods", Follow::Selected("status.phase!=Succeeded,status.phase!=Failed")).of_mesh(),
    resource(Kind::PeerAuthentication, "peerauthentications", Follow::All).need(Need::WherePresent).of_mesh(),
    resource(Kind::AuthorizationPolicy, "authorizationpolicies", Follow::All)
        .need(Need::WherePresent)
        .of_mesh(),
];

const fn resource(kind: Kind, plural: &'static str, follow: Follow) -> Resource {
    Resource { kind, plural, follow, need: Need::Vital, mesh: false }
}

impl Resource {
    const fn need(mut self, need: Need) -> Self {
        self.need = need;
        self
    }

    const fn of_mesh(mut self) -> Self {
        self.mesh = true;
        self
    }

    /// How the API server names `kind`.
    pub fn of(kind: Kind) -> Option<&'static Self> {
        RESOURCES.iter().find(|resource| resource.kind == kind)
    }

    /// Its preferred version.
    pub fn api_version(&self) -> &'static str {
        self.kind.api_versions().first().copied().unwrap_or_default()
    }

    /// Whether its objects belong to the mesh and not to one namespace.
    fn is_policy(&self) -> bool {
        matches!(self.kind, Kind::PeerAuthentication | Kind::AuthorizationPolicy)
    }
}

/// What to follow, and where.
pub struct Kubernetes {
    pub api: Api,
    /// Whether objects are kept on disk.
    pub keep: Option<Keep>,
    /// Which kinds are followed and in which namespaces is what these say at first; which objects are followed
    /// by name is what they say at any time.
    pub settings: Receiver<Arc<Settings>>,
}

impl Kubernetes {
    /// Sends what there is, then what changes, until the receiver is dropped.
    pub async fn run(self, batches: Sender<Batch>) {
        let hub = Rc::new(Hub::new(batches));
        let keeper = self.keep.as_ref().map(|keep| Keeper::start(keep, self.api.server()));
        let mut watches = JoinSet::new();
        let targets = targets(&self.settings.borrow());
        for target in targets {
            watches.spawn_local(Watch::new(self.api.clone(), target, hub.clone(), keeper.as_ref()).run());
        }
        tokio::select! {
            () = hub.closed() => {}
            () = named::follow(&self.api, &hub, self.settings, keeper.as_ref()) => {}
        }
    }
}

/// Whether there is a port whose connections are judged by policies of the mesh.
fn follows_mesh(settings: &Settings) -> bool {
    settings.mesh_port.is_some() || settings.hbone_port.is_some()
}

/// The kinds that are followed as a whole. Policies of the root namespace apply to the whole mesh, so they are
/// followed even where one other namespace is watched.
fn targets(settings: &Settings) -> Vec<Target> {
    let wanted = RESOURCES.iter().filter(|resource| follows_mesh(settings) || !resource.mesh);
    let mut targets = Vec::new();
    for resource in wanted {
        let only = settings.watch_namespace.as_deref();
        targets.extend(Target::all(resource, only, settings));
        let root = settings.mesh_root_namespace.as_str();
        if resource.is_policy() && only.is_some_and(|only| only != root) {
            targets.extend(Target::all(resource, Some(root), settings));
        }
    }
    targets
}
