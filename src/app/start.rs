//! What the control loop starts beside itself: the admin port and the sources.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use rustix::fs::{Access, access};
use tokio::sync::mpsc;

use super::workload_ca::WorkloadCa;
use super::{Control, config_map};
use crate::admin::{self, AdminState};
use crate::api_server;
use crate::settings::Settings;
use crate::settings::choices::Source;
use crate::sources::Batch;
use crate::sources::directory::Directory;
use crate::sources::kubernetes::{Keep, Kubernetes};
use crate::sources::mesh_files::MeshFiles;
use crate::status::Outbox;

/// The directory source has nothing to read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no manifests: name a folder with --manifests DIR")]
pub struct NoManifests;

/// Makes the folder for what outlives the process. Serving goes on without one.
pub(super) fn make_state_dir(settings: &Settings) {
    let Some(folder) = &settings.state_dir else { return };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let usable = made.and_then(|()| Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?));
    if let Err(error) = usable {
        tracing::warn!(state_dir = %folder.display(), %error, "nothing can be kept in the state directory");
    }
}

impl Control {
    pub(super) fn start_admin(&mut self) -> anyhow::Result<()> {
        let Some(listener) = self.admin.take() else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut registry = Registry::default();
        self.stapler.metrics().register(registry.sub_registry_with_prefix("portcullis"));
        if let Some(ca) = &self.ca {
            // Under the names that dashboards for Istio's CA know.
            ca.metrics().register(&mut registry);
        }
        let state = AdminState {
            shared: self.shared.clone(),
            workers: self.workers.stats.clone(),
            access_logs: Some(self.workers.access_logs.clone()),
            applied: self.applied.clone(),
            registry: Some(Arc::new(registry)),
            view: self.view.subscribe(),
        };
        self.admin_task = Some(tokio::task::spawn_local(admin::serve(listener, Arc::new(state))));
        Ok(())
    }

    /// The first look comes before everything else, so that the first handshake can be verified.
    pub(super) fn start_mesh_files(&mut self, batches: mpsc::Sender<Batch>) {
        let mut files = MeshFiles::default();
        let paths = self.mesh_paths.subscribe();
        let first = files.look(&paths.borrow());
        self.apply(first);
        tokio::task::spawn_local(files.run(paths, batches));
    }

    pub(super) async fn start_source(&mut self, batches: mpsc::Sender<Batch>) -> anyhow::Result<()> {
        match self.settings.source {
            Source::Directory => {
                if self.settings.manifests.is_empty() {
                    return Err(NoManifests.into());
                }
                let mut roots = self.settings.manifests.clone();
                roots.extend(self.ca.iter().flat_map(WorkloadCa::source_folders));
                let source = Directory { roots, pem_namespace: self.settings.pem_namespace.clone() };
                self.source = Some(tokio::task::spawn_local(source.run(batches)).abort_handle());
            }
            Source::Kubernetes => {
                let api = api_server::connect(self.settings.kubeconfig.as_deref()).await?;
                self.outbox = Some(Outbox::start(api.client().clone(), self.settings.clone(), &self.pod));
                self.api = Some(api.clone());
                let keep =
                    self.kept_objects().map(|folder| Keep { folder, restore: !self.handover.takes_over });
                let source = Kubernetes { api, keep, settings: self.settings_sender.subscribe() };
                self.source = Some(tokio::task::spawn_local(source.run(batches)).abort_handle());
            }
        }
        Ok(())
    }

    /// Where objects are kept on disk.
    pub(super) fn kept_objects(&self) -> Option<PathBuf> {
        let kept = self.settings.keep_objects && self.settings.source == Source::Kubernetes;
        self.settings.state_dir.as_deref().filter(|_| kept).map(config_map::objects_folder)
    }
}
