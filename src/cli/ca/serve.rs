//! `ca serve`: the whole CA in the foreground, on a state directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{Context, duration, now, read};
use crate::ca::accounts::AccountOptions;
use crate::ca::authn::Authenticators;
use crate::ca::authn::impersonation::Impersonation;
use crate::ca::authn::jwt::{Jwks, JwtIssuer};
use crate::ca::authority::TtlPolicy;
use crate::ca::controller::{Controller, Options};
use crate::ca::identity::CustomDnsNames;
use crate::ca::key::KeyAlgorithm;
use crate::ca::metrics::Metrics;
use crate::ca::server::{Endpoint, csr_config};
use crate::ca::service::{CertificateService, Limits};
use crate::tls::ca_server;

#[derive(Args)]
pub struct ServeArgs {
    /// Address and port of the CSR service.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8060")]
    grpc_address: String,
    /// DNS names and addresses in the service's certificate.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "istio-ca,istio-citadel,localhost,127.0.0.1"
    )]
    grpc_host_identities: Vec<String>,
    /// `iss` of the tokens that are accepted.
    #[arg(long, value_name = "ISSUER", requires = "jwks")]
    jwt_issuer: Option<String>,
    /// JWKS file with the issuer's keys; read again when it changes.
    #[arg(long, value_name = "FILE", requires = "jwt_issuer")]
    jwks: Option<PathBuf>,
    /// Audiences of which a token needs one.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "istio-ca")]
    token_audiences: Vec<String>,
    /// Accounts that may ask for the identities of workloads on their node, as NAMESPACE/ACCOUNT,…
    #[arg(long, value_name = "LIST", default_value = "", env = "CA_TRUSTED_NODE_ACCOUNTS")]
    trusted_node_accounts: String,
    /// Life of certificates whose request names none.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "24h")]
    workload_cert_ttl: Duration,
    /// Longest life that a request may name.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "90d")]
    max_workload_cert_ttl: Duration,
    /// Life of certificates in Secrets of accounts.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "90d")]
    secret_cert_ttl: Duration,
    /// Secrets are refreshed in this last share of a certificate's life, 0 to 1.
    #[arg(long, value_name = "RATIO", default_value_t = 0.5)]
    workload_cert_grace_period_ratio: f64,
    /// Key of certificates in Secrets of accounts.
    #[arg(long, value_enum, default_value_t = KeyAlgorithm::EcdsaP256)]
    workload_key_algorithm: KeyAlgorithm,
    /// DNS names for accounts, as ACCOUNT.NAMESPACE:DNSNAME,…
    #[arg(long, value_name = "LIST", default_value = "")]
    custom_dns_names: String,
    /// Serve requests only; leave Secrets of accounts alone.
    #[arg(long)]
    server_only: bool,
    /// How often root, ConfigMaps and Secrets are looked at.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    resync: Duration,
}

pub async fn serve(context: Context, args: ServeArgs) -> anyhow::Result<ExitCode> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let options = options(&context, &args)?;
    let mut tokens = Tokens::new(&context, &args)?;
    let metrics = Metrics::default();
    let directory = context.ca_dir.as_deref();
    let mut controller = Controller::start(context.store, options, directory, metrics.clone(), now).await?;
    let authority = controller.authority();

    let ttl = TtlPolicy { default: args.workload_cert_ttl, max: args.max_workload_cert_ttl };
    let limits = Limits::default();
    let service =
        CertificateService::new(authority.clone(), tokens.authenticators()?, ttl, limits, metrics, now);
    let trusted = Impersonation::parse_trusted(&args.trusted_node_accounts).map_err(anyhow::Error::msg)?;
    service.set_impersonation(Impersonation { trusted, ..Impersonation::default() });
    let service = Arc::new(service);

    let mut endpoint = Endpoint::new(csr_config, &args.grpc_host_identities, authority.load_full(), now())?;
    let listener = std::net::TcpListener::bind(&args.grpc_address)
        .with_context(|| format!("binding {}", args.grpc_address))?;
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let server = start_server(listener, endpoint.config(), Arc::clone(&service), stopped)?;
    println!("serving istio.v1.auth.IstioCertificateService on {address}");

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A pace of zero would be no pace at all.
    let mut pace = tokio::time::interval(args.resync.max(Duration::from_millis(100)));
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = pace.tick() => {}
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
        controller.turn(now()).await;
        match endpoint.refresh(&authority.load_full(), now()) {
            Ok(false) => {}
            Ok(true) => tracing::info!("the CSR service has a new certificate"),
            Err(error) => tracing::error!(%error, "the CSR service keeps its present certificate"),
        }
        match tokens.changed() {
            Ok(None) => {}
            Ok(Some(authenticators)) => service.set_authenticators(authenticators),
            Err(error) => tracing::error!(%error, "the present JWKS stays in use"),
        }
    }
    stop.send_replace(true);
    let drained = tokio::task::spawn_blocking(move || server.join()).await?;
    drained.map_err(|_| anyhow::anyhow!("the CSR service panicked"))?;
    Ok(ExitCode::SUCCESS)
}

/// Serves on a thread and runtime of its own: a turn over thousands of accounts must not hold up a call.
fn start_server(
    listener: std::net::TcpListener,
    config: Arc<ArcSwap<ca_server::ServerConfig>>,
    service: Arc<CertificateService>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let serve = move || runtime.block_on(ca_server::serve(listener, config, service.into_server(), stop));
    Ok(std::thread::Builder::new().name("ca-service".to_owned()).spawn(serve)?)
}

fn options(context: &Context, args: &ServeArgs) -> anyhow::Result<Options> {
    let (dns_names, faults) = CustomDnsNames::parse(&args.custom_dns_names);
    for fault in faults {
        tracing::warn!(%fault, "entry left out");
    }
    let accounts = AccountOptions {
        trust_domain: context.trust_domain.clone(),
        storage_namespace: context.root.storage_namespace.clone(),
        key: args.workload_key_algorithm,
        life: args.secret_cert_ttl,
        grace_ratio: args.workload_cert_grace_period_ratio,
        dns_names,
        ..AccountOptions::default()
    };
    accounts.check()?;
    let accounts = (!args.server_only).then_some(accounts);
    Ok(Options { root: context.root.clone(), accounts, maps: context.maps })
}

/// The issuer of tokens as configured, followed while its key file changes.
struct Tokens {
    trust_domain: String,
    audiences: Vec<String>,
    issuer: Option<(String, PathBuf)>,
    seen: Vec<u8>,
}

impl Tokens {
    fn new(context: &Context, args: &ServeArgs) -> anyhow::Result<Self> {
        let issuer = args.jwt_issuer.clone().zip(args.jwks.clone());
        let seen = issuer.as_ref().map_or(Ok(Vec::new()), |(_, path)| read(path))?;
        let audiences = args.token_audiences.clone();
        Ok(Self { trust_domain: context.trust_domain.clone(), audiences, issuer, seen })
    }

    fn authenticators(&self) -> anyhow::Result<Authenticators> {
        let issuer = self.issuer.as_ref().map(|(issuer, path)| self.issuer(issuer, path)).transpose()?;
        let jwt = issuer.into_iter().collect();
        Ok(Authenticators { trust_domain: self.trust_domain.clone(), jwt, token_review: None })
    }

    fn issuer(&self, issuer: &str, path: &Path) -> anyhow::Result<JwtIssuer> {
        let keys = Jwks::from_json(&self.seen).with_context(|| path.display().to_string())?;
        Ok(JwtIssuer { issuer: issuer.to_owned(), audiences: self.audiences.clone(), keys })
    }

    /// New authenticators if the key file has other bytes than when it was last looked at.
    fn changed(&mut self) -> anyhow::Result<Option<Authenticators>> {
        let Some((_, path)) = &self.issuer else { return Ok(None) };
        let bytes = read(path)?;
        if bytes == self.seen {
            return Ok(None);
        }
        self.seen = bytes;
        self.authenticators().map(Some)
    }
}
