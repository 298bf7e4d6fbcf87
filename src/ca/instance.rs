//! A CA that is up: the controller, the CSR service on a thread of its own, and what keeps both fed (key sets of
//! issuers, pods, the election of the replica that writes).
//!
//! `portcullis ca serve` runs one in the foreground, the gateway one beside its workers. [`Instance::start`] gives the
//! authority or the reason why there is none; [`Instance::run`] works until it is told to stop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::authn::Authenticators;
use super::authn::api_server::ApiServer;
use super::authn::impersonation::{Impersonation, Pods};
use super::authn::issuers::{IssuerOptions, Issuers, KeysError};
use super::authn::jwt::JwtIssuer;
use super::authn::token_review::Reviewer;
use super::authority::TtlPolicy;
use super::bundle::RootBundle;
use super::controller::{Controller, Options, StartError};
use super::listener;
use super::metrics::Metrics;
use super::own_certificate::OwnCertificate;
use super::server::{Endpoint, EndpointError, csr_tls};
use super::service::{CertificateService, Limits};
use super::store::any::AnyStore;
use super::store::kubernetes::{Kubernetes, Needs};
use super::store::{Revision, Store};
use crate::pod::PodIdentity;
use crate::status::lease::Election;
use crate::store::objects::ObjectName;
use crate::tls::own_identity::OwnIdentity;
use crate::tls::services::ServiceTls;
use crate::tls::spiffe::{SpiffeError, SpiffeId};

/// The Lease that says which replica writes.
const LEASE: &str = "portcullis-ca-leader";
/// Changes that come shortly after another are looked at with it.
const GATHER: Duration = Duration::from_millis(200);
/// The shortest time between two looks without a change.
const LEAST_PACE: Duration = Duration::from_millis(100);

/// Everything an operator may choose.
#[derive(Clone, Debug)]
pub struct Setup {
    pub controller: Options,
    /// A folder with a plugged-in CA.
    pub ca_dir: Option<PathBuf>,
    pub ttl: TtlPolicy,
    /// DNS names and addresses in the service's certificate.
    pub hosts: Vec<String>,
    pub issuers: Vec<IssuerOptions>,
    /// Whom https key sets are verified against; the web's roots if `None`.
    pub issuer_roots: Option<RootBundle>,
    /// Audiences of which a token needs one.
    pub audiences: Vec<String>,
    /// Accounts that may ask for the identities of workloads on their node.
    pub trusted: BTreeSet<(String, String)>,
    /// What callers call the cluster that the CA is in.
    pub cluster: String,
    /// The account whose identity the process itself takes, and where it is kept up to date.
    pub own: Option<(ObjectName, OwnIdentity)>,
    /// Who takes part in the election of the replica that writes.
    pub pod: PodIdentity,
    /// How often everything is looked at although the store tells of no change.
    pub resync: Duration,
}

/// Why the CA is not up.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("keys of token issuers: {0}")]
    Keys(#[from] KeysError),
    #[error("certificate of the CSR service: {0}")]
    Endpoint(#[from] EndpointError),
    #[error("the identity of the gateway: {0}")]
    Identity(#[from] SpiffeError),
    #[error("the CSR service cannot run: {0}")]
    Service(#[from] std::io::Error),
}

/// A CA that is ready to run.
pub struct Instance {
    store: AnyStore,
    setup: Setup,
    controller: Controller<AnyStore>,
    service: Arc<CertificateService>,
    endpoint: Endpoint,
    own: Option<OwnCertificate>,
    issuers: Issuers,
}

impl Instance {
    /// Loads or makes the CA. Tasks that follow the store belong to the present runtime.
    pub async fn start(store: AnyStore, setup: Setup, metrics: Metrics) -> Result<Self, InstanceError> {
        let store = store.follow(&Needs {
            storage_namespace: setup.controller.root.storage_namespace.clone(),
            accounts: setup.controller.accounts.is_some(),
            hosts: setup.controller.hosts.is_some(),
            pods: !setup.trusted.is_empty(),
        });
        let issuers =
            Issuers::load(setup.issuers.clone(), setup.audiences.clone(), setup.issuer_roots.clone()).await?;
        let (options, directory) = (setup.controller.clone(), setup.ca_dir.as_deref());
        let controller = Controller::start(store.clone(), options, directory, metrics.clone(), now).await?;
        let authority = controller.authority();
        let endpoint = Endpoint::new(csr_tls, &setup.hosts, authority.load_full(), now())?;
        let own = setup.own.as_ref().map(|(account, identity)| {
            let trust_domain = &setup.controller.root.trust_domain;
            let id = SpiffeId::new(trust_domain, &account.namespace, &account.name)?;
            Ok::<_, SpiffeError>(OwnCertificate::new(id, setup.ttl.default, identity.clone()))
        });
        let own = own.transpose()?;
        let authenticators = Tokens::new(&store, &setup, &issuers).authenticators(issuers.current());
        let service =
            CertificateService::new(authority, authenticators, setup.ttl, Limits::default(), metrics, now);
        let trusted = setup.trusted.clone();
        service.set_impersonation(Impersonation { trusted, clusters: BTreeMap::new() });
        Ok(Self { store, setup, controller, service: Arc::new(service), endpoint, own, issuers })
    }

    /// Serves on `listeners` and keeps everything up to date until `stop` becomes true; then lets calls that are under
    /// way finish for a moment.
    pub async fn run(
        self,
        listeners: Vec<TcpListener>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), InstanceError> {
        let Self { store, setup, mut controller, service, mut endpoint, mut own, issuers } = self;
        let server = serve(listeners, endpoint.tls(), Arc::clone(&service), stop.clone())?;
        let mut tasks = JoinSet::new();
        let (election, elected) = match &store {
            AnyStore::Directory(_) => (None, None),
            AnyStore::Kubernetes(store) => {
                let election = election(store, &setup.pod);
                let leads = election.leader();
                (Some(tokio::spawn(election.run(stop.clone()))), Some(leads))
            }
        };
        if let Some(leads) = elected {
            controller.write_while(leads);
        }
        if let AnyStore::Kubernetes(store) = &store
            && !setup.trusted.is_empty()
        {
            tasks.spawn(follow_pods(store.clone(), setup.clone(), Arc::clone(&service)));
        }
        if !setup.issuers.is_empty() {
            let tokens = Tokens::new(&store, &setup, &issuers);
            let service = Arc::clone(&service);
            tasks.spawn(
                issuers.follow(move |issuers| service.set_authenticators(tokens.authenticators(issuers))),
            );
        }
        let authority = controller.authority();
        let mut pace = interval(setup.resync.max(LEAST_PACE));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = pace.tick() => {}
                () = controller.changed() => sleep(GATHER).await,
                _ = stop.wait_for(|stop| *stop) => break,
            }
            // A turn that is cut off has written some objects, each of them whole.
            tokio::select! {
                () = controller.turn(now()) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
            match endpoint.refresh(&authority.load_full(), now()) {
                Ok(false) => {}
                Ok(true) => tracing::info!("the CSR service has a new certificate"),
                Err(error) => tracing::error!(%error, "the CSR service keeps its present certificate"),
            }
            match own.as_mut().map(|own| own.refresh(&authority.load_full(), now())) {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) => tracing::info!("the gateway has a new certificate of its own"),
                Some(Err(error)) => tracing::error!(%error, "the gateway keeps its present certificate"),
            }
        }
        if let Some(election) = election {
            let _ = election.await;
        }
        let joined = tokio::task::spawn_blocking(move || server.join()).await;
        match joined {
            Ok(Ok(())) => Ok(()),
            _ => Err(std::io::Error::other("its thread panicked").into()),
        }
    }
}

/// What makes authenticators of the issuers there are.
struct Tokens {
    trust_domain: String,
    unknown_key: Arc<tokio::sync::Notify>,
    review: Option<Reviewer>,
}

impl Tokens {
    fn new(store: &AnyStore, setup: &Setup, issuers: &Issuers) -> Self {
        let review = match store {
            AnyStore::Directory(_) => None,
            AnyStore::Kubernetes(store) => {
                let server = ApiServer::new(store.api().clone(), &setup.cluster);
                Some(Reviewer::new(Arc::new(server), setup.audiences.clone()))
            }
        };
        let trust_domain = setup.controller.root.trust_domain.clone();
        Self { trust_domain, unknown_key: issuers.unknown_key(), review }
    }

    fn authenticators(&self, jwt: Vec<JwtIssuer>) -> Authenticators {
        Authenticators {
            trust_domain: self.trust_domain.clone(),
            jwt,
            unknown_key: Arc::clone(&self.unknown_key),
            token_review: self.review.clone(),
        }
    }
}

/// Serves on a thread and runtime of its own: a turn over thousands of accounts must not hold up a call.
fn serve(
    listeners: Vec<TcpListener>,
    tls: watch::Receiver<ServiceTls>,
    service: Arc<CertificateService>,
    stop: watch::Receiver<bool>,
) -> std::io::Result<thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut ready = Vec::new();
    {
        let _inside = runtime.enter();
        for listener in listeners {
            listener.set_nonblocking(true)?;
            ready.push(tokio::net::TcpListener::from_std(listener)?);
        }
    }
    let work = move || {
        yield_to_workers();
        runtime.block_on(async {
            let mut serving = JoinSet::new();
            for listener in ready {
                let server = Arc::clone(&service).into_server();
                serving.spawn(listener::serve(listener, tls.clone(), server, stop.clone()));
            }
            serving.join_all().await;
        });
    };
    thread::Builder::new().name("ca-service".to_owned()).spawn(work)
}

/// Gives this thread less weight than those that serve requests. Linux has a priority for each thread.
pub fn yield_to_workers() {
    if let Err(error) = rustix::process::nice(5) {
        tracing::debug!(%error, "the CA keeps the priority of the process");
    }
}

fn election(store: &Kubernetes, pod: &PodIdentity) -> Election {
    let client = store.api().client().clone();
    let namespace = pod.namespace().unwrap_or(client.default_namespace()).to_owned();
    Election::new(client, &namespace, LEASE, pod.lease_holder())
}

/// Hands the pods there are to the rules of impersonation, whenever they change.
async fn follow_pods(store: Kubernetes, setup: Setup, service: Arc<CertificateService>) {
    let mut seen: Option<Revision> = None;
    loop {
        if let Some(seen) = &seen {
            store.changed(seen).await;
            sleep(GATHER).await;
        }
        seen = store.revision().await.ok();
        if let Some(pods) = store.pods() {
            let pods = Arc::new(Pods::new(pods));
            let clusters = [String::new(), setup.cluster.clone()].map(|name| (name, Arc::clone(&pods)));
            let trusted = setup.trusted.clone();
            service.set_impersonation(Impersonation { trusted, clusters: clusters.into() });
        }
    }
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
