//! The workload CA beside the workers: a thread and runtime of its own, with less weight than theirs, so that it delays
//! no handshake and no compile.
//!
//! The gateway serves with or without it: a CA that cannot start says why (`problem`) and is tried again. It starts
//! when this generation serves and ends before it drains, so that two generations do its work for a moment at most.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;

use crate::api_server;
use crate::ca::accounts::AccountOptions;
use crate::ca::authn::issuers::{IssuerOptions, KeySource};
use crate::ca::authority::TtlPolicy;
use crate::ca::bundle::RootBundle;
use crate::ca::controller::Options;
use crate::ca::distribution::MapNames;
use crate::ca::hosts::HostOptions;
use crate::ca::identity;
use crate::ca::instance::{Instance, Setup, yield_to_workers};
use crate::ca::key::KeyAlgorithm;
use crate::ca::metrics::Metrics;
use crate::ca::renewal::Grace;
use crate::ca::roots::RootOptions;
use crate::ca::store::any::AnyStore;
use crate::ca::store::directory::Directory;
use crate::ca::store::kubernetes::Kubernetes;
use crate::net::listen;
use crate::pod::PodIdentity;
use crate::settings::Settings;
use crate::settings::choices::Source;
use crate::telemetry::causes::with_causes;
use crate::tls::own_identity::OwnIdentity;

/// The pause after a start that failed.
const RETRY: Duration = Duration::from_secs(30);
/// How often the CA looks at everything although nothing told of a change.
const RESYNC: Duration = Duration::from_secs(5);

/// The CA of this generation.
pub struct WorkloadCa {
    settings: Arc<Settings>,
    identity: OwnIdentity,
    pod: PodIdentity,
    metrics: Metrics,
    sockets: Vec<TcpListener>,
    problem: watch::Sender<Option<String>>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl WorkloadCa {
    /// `None` where the settings have none. It supplies `identity` if they name an account for the gateway.
    pub fn new(
        settings: &Arc<Settings>,
        sockets: Vec<TcpListener>,
        identity: &OwnIdentity,
        pod: &PodIdentity,
    ) -> Option<Self> {
        settings.ca.then(|| Self {
            settings: Arc::clone(settings),
            identity: identity.clone(),
            pod: pod.clone(),
            metrics: Metrics::default(),
            sockets,
            problem: watch::Sender::new(None),
            stop: watch::Sender::new(false),
            thread: None,
        })
    }

    /// The folders that it writes into, which are a source too where there is no cluster. They exist from now on.
    pub fn source_folders(&self) -> Vec<PathBuf> {
        match (self.settings.source, &self.settings.state_dir) {
            (Source::Directory, Some(state)) => Directory::new(state, Vec::new()).make_own_folders().into(),
            _ => Vec::new(),
        }
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Why it is not up, where it is not.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }

    /// Starts it, once.
    pub fn start(&mut self) -> anyhow::Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        for socket in &self.sockets {
            listen::start(socket).context("cannot listen on the port of the CA")?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (settings, metrics) = (Arc::clone(&self.settings), self.metrics.clone());
        let (sockets, problem) = (std::mem::take(&mut self.sockets), self.problem.clone());
        let (identity, pod) = (self.identity.clone(), self.pod.clone());
        let mut stop = self.stop.subscribe();
        let work = move || {
            yield_to_workers();
            runtime.block_on(async {
                loop {
                    match run(&settings, &identity, &pod, &metrics, &sockets, &problem, stop.clone()).await {
                        Ok(()) => return,
                        Err(error) => {
                            problem.send_replace(Some(with_causes(&error)));
                        }
                    }
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = told(&mut stop) => return,
                    }
                }
            });
        };
        self.thread = Some(thread::Builder::new().name("ca".to_owned()).spawn(work)?);
        Ok(())
    }

    /// Ends it. Calls that are under way get a moment; whatever it was writing is done or not done.
    pub async fn end(self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

async fn told(stop: &mut watch::Receiver<bool>) {
    // The sender is gone only when the process is ending.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn run(
    settings: &Settings,
    identity: &OwnIdentity,
    pod: &PodIdentity,
    metrics: &Metrics,
    sockets: &[TcpListener],
    problem: &watch::Sender<Option<String>>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut stopped = stop.clone();
    let start = async {
        let setup = setup(settings, identity, pod)?;
        Ok(Instance::start(store(settings).await?, setup, metrics.clone()).await?)
    };
    let instance: anyhow::Result<Instance> = tokio::select! {
        instance = start => instance,
        () = told(&mut stopped) => return Ok(()),
    };
    let instance = instance?;
    problem.send_replace(None);
    let sockets = sockets.iter().map(TcpListener::try_clone).collect::<Result<_, _>>()?;
    Ok(instance.run(sockets, stop).await?)
}

async fn store(settings: &Settings) -> anyhow::Result<AnyStore> {
    Ok(match settings.source {
        Source::Kubernetes => {
            AnyStore::Kubernetes(Kubernetes::new(api_server::connect(settings.kubeconfig.as_deref()).await?))
        }
        Source::Directory => {
            let state = settings.state_dir.clone().context("no state directory")?;
            AnyStore::Directory(Directory::new(state, settings.manifests.clone()))
        }
    })
}

/// What the settings make of the CA.
fn setup(settings: &Settings, identity: &OwnIdentity, pod: &PodIdentity) -> anyhow::Result<Setup> {
    let trust_domain = identity::trust_domain(&settings.ca_trust_domain)?;
    let storage_namespace = settings.ca_storage_namespace.clone();
    let accounts = AccountOptions {
        trust_domain: trust_domain.clone(),
        storage_namespace: storage_namespace.clone(),
        life: settings.ca_secret_cert_ttl,
        ..AccountOptions::default()
    };
    let hosts = HostOptions {
        key: KeyAlgorithm::default(),
        life: settings.ca_secret_cert_ttl,
        grace: Grace::default(),
        reserved: settings.ca_host_identities.clone(),
    };
    let issuer = |(issuer, keys): (&String, &String)| {
        let keys = KeySource::parse(keys).map_err(|reason| anyhow::anyhow!("ca-jwt-issuers: {reason}"))?;
        Ok(IssuerOptions { issuer: issuer.clone(), keys })
    };
    let issuer_roots = match &settings.ca_jwks_roots {
        Some(path) => {
            let pem = std::fs::read(path).with_context(|| path.display().to_string())?;
            Some(RootBundle::from_pem(&pem).with_context(|| path.display().to_string())?)
        }
        None => None,
    };
    let trusted = settings.ca_trusted_node_accounts.iter();
    Ok(Setup {
        controller: Options {
            root: RootOptions {
                storage_namespace,
                trust_domain,
                longest_life: Some(settings.ca_max_workload_cert_ttl),
                ..RootOptions::default()
            },
            accounts: settings.ca_accounts.then_some(accounts),
            hosts: settings.ca_ingress_certificates.then_some(hosts),
            maps: MapNames::default(),
        },
        ca_dir: settings.ca_dir.clone(),
        ttl: TtlPolicy { default: settings.ca_workload_cert_ttl, max: settings.ca_max_workload_cert_ttl },
        hosts: settings.ca_host_identities.clone(),
        issuers: settings.ca_jwt_issuers.iter().map(issuer).collect::<anyhow::Result<_>>()?,
        issuer_roots,
        audiences: settings.ca_token_audiences.clone(),
        trusted: trusted.map(|name| (name.namespace.to_string(), name.name.to_string())).collect(),
        cluster: settings.ca_cluster_id.clone(),
        own: settings.ca_gateway_account.clone().map(|account| (account, identity.clone())),
        pod: pod.clone(),
        resync: RESYNC,
    })
}
