//! `ca csr`: makes a key and has a running CSR service sign it, as a workload would.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use rustls_pki_types::CertificateDer;

use super::issue::{Bundle, hand_over};
use super::output::{CertificateView, Output};
use super::{Context, duration, now, read, read_roots};
use crate::ca::authn::impersonation;
use crate::ca::certificate::Certificate;
use crate::ca::client;
use crate::ca::csr;
use crate::ca::key::{KeyAlgorithm, PrivateKey};
use crate::ca::proto::IstioCertificateRequest;
use crate::ca::proto::istio_certificate_service_client::IstioCertificateServiceClient;

#[derive(Args)]
pub struct CsrArgs {
    /// Address and port of the CSR service.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8060")]
    address: String,
    /// Name in the service's certificate, if it is not the host of the address.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// File with a ServiceAccount token that proves the identity.
    #[arg(long, value_name = "FILE", required_unless_present = "client_cert")]
    token: Option<PathBuf>,
    /// PEM chain of a certificate to renew, instead of a token.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Identity of a workload to ask for, as an agent of its node may.
    #[arg(long, value_name = "ID")]
    impersonate: Option<String>,
    /// PEM file with the roots that the service must verify against; the state directory's, if not given.
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    /// Life of the certificate; the service's default, if not given.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Duration>,
    /// Key of the certificate.
    #[arg(long, value_enum, default_value_t = KeyAlgorithm::EcdsaP256)]
    key: KeyAlgorithm,
    /// Folder for cert-chain.pem, key.pem and root-cert.pem; without it they go to standard output.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub async fn csr(context: &Context, args: CsrArgs, output: Output) -> anyhow::Result<ExitCode> {
    let roots = match &args.roots {
        Some(path) => read_roots(path)?,
        None => context.authority().await?.roots().clone(),
    };
    let key = PrivateKey::generate(args.key)?;
    let request = request(&args, &key)?;
    let anchors = roots.iter().map(Certificate::der);
    let sender =
        client::connect(&args.address, args.server_name.as_deref(), anchors, identity(&args)?).await?;
    let origin = format!("https://{}", args.address).parse()?;
    let mut service = IstioCertificateServiceClient::with_origin(client::GrpcService(sender), origin);
    let answer = service.create_certificate(request).await.map_err(|status| {
        anyhow::anyhow!("the service refused: {} ({:?})", status.message(), status.code())
    })?;
    let chain = answer.into_inner().cert_chain;
    let (root_cert, chain) = chain.split_last().context("the answer is empty")?;
    let cert_chain = chain.concat();
    let leaf = Certificate::first_from_pem(cert_chain.as_bytes())?;
    anyhow::ensure!(leaf.public_key_info == key.public_key_info(), "the answer is for another key than ours");
    let bundle = Bundle {
        certificate: CertificateView::new(&leaf, now()),
        cert_chain,
        key: Some(key.to_pem().to_string()),
        root_cert: root_cert.clone(),
    };
    hand_over(bundle, args.out.as_deref(), output)?;
    Ok(ExitCode::SUCCESS)
}

fn request(args: &CsrArgs, key: &PrivateKey) -> anyhow::Result<tonic::Request<IstioCertificateRequest>> {
    let seconds = args.ttl.map_or(0, |ttl| i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX));
    let metadata = args.impersonate.as_ref().map(|identity| {
        let value = Value { kind: Some(Kind::StringValue(identity.clone())) };
        Struct { fields: [(impersonation::METADATA_KEY.to_owned(), value)].into() }
    });
    let message = IstioCertificateRequest { csr: csr::create(key)?, validity_duration: seconds, metadata };
    let mut request = tonic::Request::new(message);
    if let Some(path) = &args.token {
        let token =
            String::from_utf8(read(path)?).with_context(|| format!("{}: not text", path.display()))?;
        let header = format!("Bearer {}", token.trim()).parse().context("the token has odd characters")?;
        request.metadata_mut().insert("authorization", header);
    }
    Ok(request)
}

type Identity = (Vec<CertificateDer<'static>>, rustls_pki_types::PrivateKeyDer<'static>);

fn identity(args: &CsrArgs) -> anyhow::Result<Option<Identity>> {
    let (Some(chain), Some(key)) = (&args.client_cert, &args.client_key) else { return Ok(None) };
    let chain = Certificate::from_pem(&read(chain)?).with_context(|| chain.display().to_string())?;
    let key = PrivateKey::from_pem(&read(key)?).with_context(|| key.display().to_string())?;
    let key = key.to_der().context("the key has no DER form")?;
    Ok(Some((chain.iter().map(|link| link.der().clone()).collect(), key)))
}
