//! The ConfigMap with settings, read once before a generation is put together: the first one starts with what the
//! ConfigMap says, and not with the defaults until the source has listed it. Later ones have it from the supervisor.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1;
use kube::api::{Api, ListParams};
use tokio::time::timeout;

use crate::settings::Settings;
use crate::settings::choices::Source;
use crate::sources::kubernetes;
use crate::store::objects::ConfigMap;
use crate::supervisor::messages::SettingsMap;

/// An API server that does not answer holds up a start for no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The ConfigMap that `settings` name; `None` where they name none, or there is none.
///
/// # Errors
/// The API server does not answer, or refuses. The source tries on.
pub fn read(settings: &Settings) -> anyhow::Result<Option<ConfigMap>> {
    if settings.source != Source::Kubernetes || settings.configmap.is_none() {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { timeout(PATIENCE, list(settings)).await })?
}

/// By a list, as the source follows it: the right to get it is not needed.
async fn list(settings: &Settings) -> anyhow::Result<Option<ConfigMap>> {
    let name = settings.configmap.as_ref().context("no ConfigMap is named")?;
    let client = kubernetes::connect(settings.kubeconfig.as_deref()).await?.client().clone();
    let config_maps: Api<v1::ConfigMap> = Api::namespaced(client, &name.namespace);
    let selector = ListParams::default().fields(&format!("metadata.name={}", name.name));
    let found = config_maps.list(&selector).await?.items.into_iter().next();
    Ok(found.map(|found| {
        let (namespace, name) = (name.namespace.to_string(), name.name.to_string());
        SettingsMap { namespace, name, data: found.data.unwrap_or_default() }.into()
    }))
}
