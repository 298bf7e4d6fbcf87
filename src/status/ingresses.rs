//! `status.loadBalancer` of the Ingresses that are served: server-side apply with a field manager of our own,
//! and only where something else is written there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use imbl::OrdMap;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::MANAGER;
use crate::sources::{Address, IngressStatus};
use crate::store::objects::ObjectName;

/// Requests under way at once.
const CONCURRENT: usize = 8;
/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);
/// After this long without seeing what was written, it is written again.
const RETRY: Duration = Duration::from_secs(30);

/// What was written, until it is seen.
#[derive(Default)]
pub(super) struct Writer {
    written: HashMap<ObjectName, Written>,
}

struct Written {
    /// What the watch had shown before.
    before: Arc<IngressStatus>,
    addresses: Vec<Address>,
    at: Instant,
}

impl Writer {
    /// Writes `addresses` to each Ingress in `served` that has others, for as long as `leader` holds.
    pub async fn write(
        &mut self,
        client: &Client,
        served: &OrdMap<ObjectName, Arc<IngressStatus>>,
        addresses: &[Address],
        leader: &watch::Receiver<bool>,
    ) {
        if addresses.is_empty() {
            return;
        }
        self.written.retain(|name, _| served.contains_key(name));
        let due: Vec<_> = served
            .iter()
            .filter(|(name, status)| {
                status.addresses != addresses && !self.is_under_way(name, status, addresses)
            })
            .collect();
        let writes = futures_util::stream::iter(due).map(|(name, status)| async move {
            let written = *leader.borrow() && apply(client, name, addresses).await;
            written.then(|| (name.clone(), status.clone()))
        });
        let written: Vec<_> = writes.buffer_unordered(CONCURRENT).collect().await;
        for (name, before) in written.into_iter().flatten() {
            let written = Written { before, addresses: addresses.to_vec(), at: Instant::now() };
            self.written.insert(name, written);
        }
    }

    /// Whether this was written and the watch has not yet said what came of it.
    fn is_under_way(&self, name: &ObjectName, status: &Arc<IngressStatus>, addresses: &[Address]) -> bool {
        self.written.get(name).is_some_and(|written| {
            Arc::ptr_eq(&written.before, status)
                && written.addresses == addresses
                && written.at.elapsed() < RETRY
        })
    }
}

/// Takes our addresses out of the status of every Ingress that has any.
pub(super) async fn clear(client: &Client, served: &OrdMap<ObjectName, Arc<IngressStatus>>) {
    let filled = served.iter().filter(|(_, status)| !status.addresses.is_empty());
    let writes = futures_util::stream::iter(filled).map(|(name, _)| apply(client, name, &[]));
    let cleared: Vec<bool> = writes.buffer_unordered(CONCURRENT).collect().await;
    tracing::info!(ingresses = cleared.iter().filter(|cleared| **cleared).count(), "status cleared");
}

async fn apply(client: &Client, name: &ObjectName, addresses: &[Address]) -> bool {
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), &name.namespace);
    let params = PatchParams::apply(MANAGER).force();
    let patch = Patch::Apply(status(name, addresses));
    match timeout(REQUEST, ingresses.patch_status(&name.name, &params, &patch)).await {
        Ok(Ok(_)) => true,
        // Deleted in the meantime.
        Ok(Err(Error::Api(status))) if status.code == 404 => true,
        Ok(Err(error)) => {
            tracing::warn!(ingress = %name, %error, "status not written");
            false
        }
        Err(_) => {
            tracing::warn!(ingress = %name, "status not written: the API server did not answer in time");
            false
        }
    }
}

fn status(name: &ObjectName, addresses: &[Address]) -> Value {
    let ingress: Vec<_> = addresses
        .iter()
        .map(|address| match address {
            Address::Ip(ip) => json!({ "ip": ip }),
            Address::Hostname(name) => json!({ "hostname": name }),
        })
        .collect();
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": { "namespace": *name.namespace, "name": *name.name },
        "status": { "loadBalancer": { "ingress": ingress } },
    })
}
