//! `ca serve`: the whole CA in the foreground, on a state directory or in a cluster.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{Context, duration, metrics_port, read_roots};
use crate::ca::accounts::AccountOptions;
use crate::ca::authn::impersonation::Impersonation;
use crate::ca::authn::issuers::{IssuerOptions, KeySource};
use crate::ca::authority::TtlPolicy;
use crate::ca::controller::Options;
use crate::ca::hosts::HostOptions;
use crate::ca::identity::CustomDnsNames;
use crate::ca::instance::{Instance, Setup};
use crate::ca::key::KeyAlgorithm;
use crate::ca::metrics::Metrics;
use crate::ca::renewal::Grace;
use crate::ca::roots::RootOptions;
use crate::pod::PodIdentity;
use crate::settings::Settings;
use crate::settings::choices::{LogFormat, LogLevel};
use crate::telemetry::logging::Logging;

#[derive(Args)]
pub struct ServeArgs {
    /// Address and port of the CSR service.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8060")]
    grpc_address: String,
    /// Address and port that answer /metrics and /healthz; none without it.
    #[arg(long, value_name = "ADDRESS")]
    admin_address: Option<String>,
    /// DNS names and addresses in the service's certificate.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "istio-ca,istio-citadel,localhost,127.0.0.1"
    )]
    grpc_host_identities: Vec<String>,
    /// `iss` of tokens that are accepted; may be repeated, each with a --jwks of its own.
    #[arg(long, value_name = "ISSUER", requires = "jwks")]
    jwt_issuer: Vec<String>,
    /// Keys of that issuer (JWKS): a file, read again when it changes, or an https URL, fetched again every 5 minutes.
    #[arg(long, value_name = "FILE|URL", requires = "jwt_issuer")]
    jwks: Vec<String>,
    /// PEM file with the roots that https URLs of --jwks verify against, in place of the web's.
    #[arg(long, value_name = "FILE", requires = "jwks")]
    jwks_roots: Option<PathBuf>,
    /// Audiences of which a token needs one.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "istio-ca")]
    token_audiences: Vec<String>,
    /// What callers call this cluster; an empty name means it too.
    #[arg(long, value_name = "NAME", default_value = "Kubernetes")]
    cluster_id: String,
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
    /// Make TLS Secrets for Ingresses with the annotation portcullis.dev/issue-certificate.
    #[arg(long)]
    ingress_certificates: bool,
    /// How often everything is looked at although nothing tells of a change.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    resync: Duration,
    /// The least severe log line that is written: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", env = "PORTCULLIS_LOG_LEVEL", default_value_t = LogLevel::Info)]
    log_level: LogLevel,
    /// How log lines are written: text or json.
    #[arg(long, value_name = "FORMAT", env = "PORTCULLIS_LOG_FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

pub async fn serve(context: Context, args: ServeArgs) -> anyhow::Result<ExitCode> {
    let log = Settings { log_level: args.log_level, log_format: args.log_format, ..Settings::default() };
    let _logging = Logging::start(&log)?;
    let setup = setup(&context, &args)?;
    let metrics = Metrics::default();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let instance = Instance::start(context.store, setup, metrics).await?;

    let listener =
        TcpListener::bind(&args.grpc_address).with_context(|| format!("binding {}", args.grpc_address))?;
    let address = listener.local_addr()?;
    if let Some(admin) = &args.admin_address {
        let listener = tokio::net::TcpListener::bind(admin).await;
        let listener = listener.with_context(|| format!("binding {admin}"))?;
        println!("serving /metrics on {}", listener.local_addr()?);
        tokio::spawn(metrics_port::serve(listener, registry));
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.send_replace(true);
    });
    println!("serving istio.v1.auth.IstioCertificateService on {address}");
    instance.run(vec![listener], stopped).await?;
    Ok(ExitCode::SUCCESS)
}

fn setup(context: &Context, args: &ServeArgs) -> anyhow::Result<Setup> {
    anyhow::ensure!(
        args.jwt_issuer.len() == args.jwks.len(),
        "each --jwt-issuer needs a --jwks of its own, in the same order"
    );
    let issuer = |(issuer, keys): (&String, &String)| {
        let keys = KeySource::parse(keys).map_err(|reason| anyhow::anyhow!("--jwks {keys}: {reason}"))?;
        Ok(IssuerOptions { issuer: issuer.clone(), keys })
    };
    let issuer_roots = match &args.jwks_roots {
        Some(path) => Some(read_roots(path)?),
        None => None,
    };
    Ok(Setup {
        controller: options(context, args)?,
        ca_dir: context.ca_dir.clone(),
        ttl: TtlPolicy { default: args.workload_cert_ttl, max: args.max_workload_cert_ttl },
        hosts: args.grpc_host_identities.clone(),
        issuers: args.jwt_issuer.iter().zip(&args.jwks).map(issuer).collect::<anyhow::Result<_>>()?,
        issuer_roots,
        audiences: args.token_audiences.clone(),
        trusted: Impersonation::parse_trusted(&args.trusted_node_accounts).map_err(anyhow::Error::msg)?,
        cluster: args.cluster_id.clone(),
        own: None,
        pod: PodIdentity::from_environment(),
        resync: args.resync,
    })
}

fn options(context: &Context, args: &ServeArgs) -> anyhow::Result<Options> {
    let (dns_names, faults) = CustomDnsNames::parse(&args.custom_dns_names);
    for fault in faults {
        tracing::warn!(%fault, "entry left out");
    }
    anyhow::ensure!(
        args.secret_cert_ttl >= Duration::from_secs(3600),
        "--secret-cert-ttl must be at least 1h: certificates are replaced well before their end"
    );
    let grace = Grace { ratio: args.workload_cert_grace_period_ratio, ..Grace::default() };
    grace.check()?;
    let accounts = AccountOptions {
        trust_domain: context.trust_domain.clone(),
        storage_namespace: context.root.storage_namespace.clone(),
        key: args.workload_key_algorithm,
        life: args.secret_cert_ttl,
        grace,
        dns_names,
        ..AccountOptions::default()
    };
    let accounts = (!args.server_only).then_some(accounts);
    let hosts = HostOptions {
        key: args.workload_key_algorithm,
        life: args.secret_cert_ttl,
        grace,
        reserved: args.grpc_host_identities.clone(),
    };
    let hosts = args.ingress_certificates.then_some(hosts);
    let root = RootOptions { longest_life: Some(args.max_workload_cert_ttl), ..context.root.clone() };
    Ok(Options { root, accounts, hosts, maps: context.maps })
}
