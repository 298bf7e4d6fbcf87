//! Backends: for each Service port that a route leads to, the endpoints that can take its requests.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::digest;

use super::SharedMap;
use crate::names::object::{ObjectName, ServicePortRef};

/// Names a backend: a Service and one of its ports, as the Ingress wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    pub service: ObjectName,
    pub port: ServicePortRef,
}

impl ClusterKey {
    /// The least key that a backend of `service` can have.
    pub fn first_of(service: &ObjectName) -> Self {
        Self { service: service.clone(), port: ServicePortRef::Number(0) }
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.port {
            ServicePortRef::Number(port) => write!(f, "{}:{port}", self.service),
            ServicePortRef::Name(port) => write!(f, "{}:{port}", self.service),
        }
    }
}

/// All backends by key.
#[derive(Clone, Debug, Default)]
pub struct ClusterMap(pub SharedMap<Arc<ClusterKey>, Arc<Cluster>>);

impl ClusterMap {
    pub fn get(&self, key: &ClusterKey) -> Option<&Arc<Cluster>> {
        self.0.get(key)
    }
}

/// One backend. An unchanged backend is the same `Arc` from snapshot to snapshot.
#[derive(Debug)]
pub struct Cluster {
    pub key: Arc<ClusterKey>,
    /// Ready endpoints, else those that are terminating but still serving; empty means 503. In a fixed order.
    pub endpoints: Box<[Arc<Endpoint>]>,
    /// Why there is no endpoint, in words for an error page and a log: `None` while there is one.
    pub unavailable: Option<&'static str>,
    /// What sessions know the endpoints by, in their order.
    ids: Box<[u64]>,
    tag: u32,
    next: AtomicUsize,
}

impl Cluster {
    pub fn new(
        key: Arc<ClusterKey>,
        endpoints: impl Into<Box<[Arc<Endpoint>]>>,
        unavailable: Option<&'static str>,
    ) -> Self {
        let endpoints = endpoints.into();
        let name = key.to_string();
        let ids = endpoints.iter().map(|endpoint| hash(&[&name, &endpoint.to_string()])).collect();
        // The other half would do as well: one of the two has to go.
        let tag = (hash(&[&name]) >> 32) as u32;
        Self { key, endpoints, unavailable, ids, tag, next: AtomicUsize::new(0) }
    }

    /// The identities of the endpoints, in their order: the same in every version and replica of the gateway.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Tells the backend from others, in every version and replica.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The next endpoint in turn; shared by all workers.
    pub fn pick(&self) -> Option<&Arc<Endpoint>> {
        if self.endpoints.is_empty() {
            return None;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.endpoints.get(turn % self.endpoints.len())
    }
}

/// Of texts and where each ends, from which nobody reads the texts.
fn hash(texts: &[&str]) -> u64 {
    let mut context = digest::Context::new(&digest::SHA256);
    for text in texts {
        context.update(text.as_bytes());
        context.update(b"\0");
    }
    let digest = context.finish();
    digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Address(SocketAddr),
    /// The target of an ExternalName Service, resolved when a connection is made.
    Name {
        host: Box<str>,
        port: u16,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}
