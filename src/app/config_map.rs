//! The ConfigMap with settings: read before anything starts, because listeners may be among them.
//!
//! It counts with the Kubernetes source only; on a machine there is the settings file. Once the gateway runs, its
//! changes come from the watch as those of every object do.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Control;
use crate::api_server::{self, Api};
use crate::settings::Settings;
use crate::settings::choices::Source;
use crate::settings::load::{Inputs, Loaded};
use crate::sources::kubernetes::{kept_config_map, read_config_map};
use crate::store::objects::{ConfigMap, ObjectName};
use crate::supervisor::messages::Start;

/// How long a first generation waits for it. Without it the gateway starts with what else there is.
const PATIENCE: Duration = Duration::from_secs(5);

/// The ConfigMap that settings are read from.
pub(super) fn name(settings: &Settings) -> Option<&ObjectName> {
    settings.configmap.as_ref().filter(|_| settings.source == Source::Kubernetes)
}

/// Reads the ConfigMap into `inputs`, and the settings anew with it.
///
/// # Errors
/// Another generation serves until this one does, and the ConfigMap cannot be read or is bad: without it this one
/// would serve by other settings. Where there is no other generation that is no error; it is told later.
pub(super) async fn load(inputs: &mut Inputs, loaded: Loaded, start: &Start) -> anyhow::Result<Loaded> {
    // One in place of another that crashed has its settings already, and hears of the ConfigMap from the watch.
    let Some(name) = name(&loaded.settings).filter(|_| start.settings.is_none()) else { return Ok(loaded) };
    let api = api_server::connect(loaded.settings.kubeconfig.as_deref()).await?;
    inputs.config_map = match start.takes_over {
        true => read_config_map(&api, name).await.with_context(|| format!("ConfigMap {name}"))?,
        false => read_or_kept(&api, name, &loaded.settings).await,
    };
    match inputs.load() {
        Err(error) if !start.takes_over => {
            tracing::error!(%error, "the gateway starts without the settings in the ConfigMap");
            Ok(loaded)
        }
        read => Ok(read?),
    }
}

async fn read_or_kept(api: &Api, name: &ObjectName, settings: &Settings) -> Option<ConfigMap> {
    let error = match timeout(PATIENCE, read_config_map(api, name)).await {
        Ok(Ok(config_map)) => return config_map,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the API server did not answer in time".into(),
    };
    let state_dir = settings.state_dir.as_deref().filter(|_| settings.keep_objects);
    let kept = state_dir.and_then(|dir| kept_config_map(api, objects_folder(dir), name));
    let instead = if kept.is_some() { "as it was kept on disk" } else { "unknown for now" };
    tracing::warn!(config_map = %name, %error, "the ConfigMap cannot be read: it counts {instead}");
    kept
}

impl Control {
    /// Hands the ConfigMap with settings to whoever reads settings.
    pub(super) fn pass_on_config_map(&mut self, sender: &watch::Sender<Option<ConfigMap>>) {
        // Before everything is listed, that it is not there means nothing.
        let Some(name) = name(&self.settings).filter(|_| self.sources.synced) else { return };
        let now = self.store.config_map(name).map(|config_map| ConfigMap::clone(config_map));
        let first = !std::mem::replace(&mut self.config_map_known, true);
        sender.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed || first
        });
    }
}

/// Where objects are kept.
pub(super) fn objects_folder(state_dir: &Path) -> std::path::PathBuf {
    state_dir.join("objects")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_directory_source_there_is_none() {
        let configmap = Some(ObjectName::new("ingress", "settings"));
        let mut settings = Settings { configmap, ..Settings::default() };
        assert_eq!(name(&settings), None);
        settings.source = Source::Kubernetes;
        assert!(name(&settings).is_some());
    }
}
