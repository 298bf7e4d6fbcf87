//! `portcullis ca`: make, look at and rotate the root, issue and check certificates, run the CSR service.
//!
//! Works on a state directory, without a cluster, or on the objects of one. Exit codes: 0 done, 1 the operation found an error or was
//! refused, 2 wrong usage.

mod csr;
mod issue;
mod metrics_port;
mod output;
mod root;
mod serve;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use time::OffsetDateTime;

use self::output::Output;
use crate::api_server;
use crate::ca::authority::Authority;
use crate::ca::bundle::RootBundle;
use crate::ca::distribution::MapNames;
use crate::ca::identity;
use crate::ca::key::KeyAlgorithm;
use crate::ca::plugged::{Plugged, PluggedError};
use crate::ca::roots::{self, RootOptions, SelfSigned};
use crate::ca::store::any::AnyStore;
use crate::ca::store::directory::Directory;
use crate::ca::store::kubernetes::Kubernetes;

/// Arguments of `portcullis ca`.
#[derive(Args)]
pub struct CaArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Box<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Make the self-signed root, or show the one that is there.
    Init,
    /// Show root, bundle and a key replacement under way.
    Show(root::ShowArgs),
    /// Renew the root with the same key and subject.
    Rotate(root::RotateArgs),
    /// Enter the next phase of replacing the CA key: trust the next root, sign with it, drop the old one.
    RotateKey(root::RotateKeyArgs),
    /// Issue a certificate with a new key.
    Issue(issue::IssueArgs),
    /// Have a running CSR service sign a new key, authenticated by a token or by a certificate to renew.
    Csr(csr::CsrArgs),
    /// Check a certificate chain against the trusted roots.
    Verify(verify::VerifyArgs),
    /// Run the CA: CSR service, Secrets of accounts, ConfigMaps with the roots, rotation.
    Serve(serve::ServeArgs),
}

#[derive(Args)]
#[command(next_help_heading = "The CA, for every ca command")]
struct Common {
    /// Where Secrets, ConfigMaps and ServiceAccounts are.
    #[arg(long, global = true, value_enum, env = "PORTCULLIS_SOURCE", default_value_t = Source::Directory)]
    source: Source,
    /// Kubeconfig file; without one the Service Account of the pod, then ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE", env = "PORTCULLIS_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Folder that holds Secrets and ConfigMaps.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "PORTCULLIS_STATE_DIR",
        default_value = "portcullis-state"
    )]
    state_dir: PathBuf,
    /// Folder with manifests of ServiceAccounts and Namespaces.
    #[arg(long, global = true, value_name = "DIR")]
    manifests: Vec<PathBuf>,
    /// Folder with a plugged-in CA (ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem; or tls.crt, tls.key, ca.crt).
    #[arg(long, global = true, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// SPIFFE trust domain.
    #[arg(long, global = true, value_name = "NAME", default_value = identity::DEFAULT_TRUST_DOMAIN)]
    trust_domain: String,
    /// Namespace of the CA's own Secret.
    #[arg(
        long,
        global = true,
        value_name = "NAMESPACE",
        alias = "citadel-storage-namespace",
        default_value = "istio-system"
    )]
    storage_namespace: String,
    /// Algorithm of the key of a root that is made.
    #[arg(long, global = true, value_enum, default_value_t = KeyAlgorithm::EcdsaP256)]
    key_algorithm: KeyAlgorithm,
    /// Life of a root that is made, such as 3650d.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration, default_value = "3650d")]
    ca_ttl: Duration,
    /// PEM file with roots of others that workloads shall trust too.
    #[arg(long, global = true, value_name = "FILE")]
    root_cert: Option<PathBuf>,
    /// Text for people or JSON for programs.
    #[arg(long, global = true, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// A state directory and folders of manifests.
    Directory,
    /// The Kubernetes API.
    Kubernetes,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    Text,
    Json,
}

impl CaArgs {
    /// Runs the command and says how it went.
    ///
    /// # Errors
    /// The operation failed, and the output is text: as JSON, errors are told here.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let output = Output { json: self.common.output == OutputFormat::Json };
        execute(self, output).or_else(|error| output.tell(error))
    }
}

fn execute(args: CaArgs, output: Output) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let context = Context::new(args.common).await?;
        match *args.command {
            Command::Init => root::init(&context, output).await,
            Command::Show(args) => root::show(&context, args, output).await,
            Command::Rotate(args) => root::rotate(&context, args, output).await,
            Command::RotateKey(args) => root::rotate_key(&context, args, output).await,
            Command::Issue(args) => issue::issue(&context, args, output).await,
            Command::Csr(args) => csr::csr(&context, args, output).await,
            Command::Verify(args) => verify::verify(&context, args, output).await,
            Command::Serve(args) => serve::serve(context, args).await,
        }
    })
}

/// The common arguments, checked.
struct Context {
    store: AnyStore,
    root: RootOptions,
    ca_dir: Option<PathBuf>,
    maps: MapNames,
    trust_domain: String,
}

impl Context {
    async fn new(common: Common) -> anyhow::Result<Self> {
        let trust_domain = identity::trust_domain(&common.trust_domain)?;
        let extra_roots = match &common.root_cert {
            Some(path) => read_roots(path)?,
            None => RootBundle::default(),
        };
        let root = RootOptions {
            storage_namespace: common.storage_namespace,
            trust_domain: trust_domain.clone(),
            key: common.key_algorithm,
            life: common.ca_ttl,
            extra_roots,
            ..RootOptions::default()
        };
        let store = match common.source {
            Source::Directory => AnyStore::Directory(Directory::new(common.state_dir, common.manifests)),
            Source::Kubernetes => AnyStore::Kubernetes(Kubernetes::new(
                api_server::connect(common.kubeconfig.as_deref()).await?,
            )),
        };
        Ok(Self { store, root, ca_dir: common.ca_dir, maps: MapNames::default(), trust_domain })
    }

    /// The self-signed root; refused where there is a plugged-in CA, whose root is not ours to change.
    async fn self_signed(&self) -> anyhow::Result<SelfSigned> {
        anyhow::ensure!(
            self.plugged().await?.is_none(),
            "a plugged-in CA is rotated by its operator, not by this command"
        );
        Ok(roots::load(&self.store, &self.root, now()).await?)
    }

    /// The authority that signs: the plugged-in one if there is one, else the self-signed root.
    async fn authority(&self) -> anyhow::Result<Arc<Authority>> {
        match self.plugged().await? {
            Some(authority) => Ok(Arc::new(authority)),
            None => Ok(roots::load(&self.store, &self.root, now()).await?.authority),
        }
    }

    /// The plugged-in CA: in the folder that was named, else in the Secret `cacerts`.
    async fn plugged(&self) -> anyhow::Result<Option<Authority>> {
        let found = match &self.ca_dir {
            None => Plugged::load_secret(&self.store, &self.root.storage_namespace, now()).await?,
            Some(directory) => match Plugged::load(directory, now())? {
                None => return Err(PluggedError::NotFound(directory.display().to_string()).into()),
                found => found,
            },
        };
        Ok(found.map(|(_, authority)| authority))
    }
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// The certificates of a PEM file that are to be trusted.
fn read_roots(path: &std::path::Path) -> anyhow::Result<RootBundle> {
    use anyhow::Context as _;
    let roots = RootBundle::from_pem(&read(path)?).with_context(|| path.display().to_string())?;
    anyhow::ensure!(!roots.is_empty(), "{} holds no certificate", path.display());
    Ok(roots)
}

fn read(path: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    use anyhow::Context as _;
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// Reads `90d`, `24h`, `15m`, `30s` or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(format!("{unit:?} is no unit: use s, m, h or d")),
    };
    let number: u64 =
        number.parse().map_err(|_| "expected a whole number and a unit, such as 24h".to_owned())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "too long".to_owned())
}
