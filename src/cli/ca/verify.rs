//! `ca verify`: does a chain verify against the trusted roots, and whose is it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::output::{CertificateView, Output};
use super::{Context, now, read, read_roots};
use crate::ca::authority;
use crate::ca::certificate::Certificate;

#[derive(Args)]
pub struct VerifyArgs {
    /// PEM file: the certificate first, then its chain.
    file: PathBuf,
    /// PEM file with the roots to trust, instead of the CA's own bundle.
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
}

#[derive(Serialize)]
struct Verdict {
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    certificate: CertificateView,
}

pub async fn verify(context: &Context, args: VerifyArgs, output: Output) -> anyhow::Result<ExitCode> {
    let chain = Certificate::from_pem(&read(&args.file)?).with_context(|| args.file.display().to_string())?;
    let (leaf, intermediates) =
        chain.split_first().with_context(|| format!("{}: no certificate found", args.file.display()))?;
    let roots = match &args.roots {
        Some(path) => read_roots(path)?,
        None => context.authority().await?.roots().clone(),
    };
    let usages = [webpki::KeyUsage::server_auth(), webpki::KeyUsage::client_auth()];
    let check = |usage| authority::verify(leaf.der(), intermediates, &roots, usage, now());
    let reason = usages.into_iter().find_map(|usage| check(usage).err()).map(|error| in_words(&error));
    let verdict = Verdict { valid: reason.is_none(), reason, certificate: CertificateView::new(leaf, now()) };
    output.print(&verdict, |verdict| {
        let word = verdict.reason.as_deref().unwrap_or("OK");
        format!("{}\n{word}\n", verdict.certificate.line())
    })?;
    Ok(ExitCode::from(u8::from(!verdict.valid)))
}

/// What is wrong with a chain, for whoever has to repair it.
fn in_words(error: &webpki::Error) -> String {
    let words = match error {
        webpki::Error::UnknownIssuer => {
            "no trusted root has signed this chain, or a certificate in between is missing"
        }
        webpki::Error::InvalidSignatureForPublicKey => {
            "no trusted root has signed this chain: one has the name of its issuer, and another key"
        }
        webpki::Error::CertExpired { .. } => "a certificate of the chain has expired",
        webpki::Error::CertNotValidYet { .. } => "a certificate of the chain is not valid yet",
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            "the certificate is not for clients and servers of TLS"
        }
        webpki::Error::CaUsedAsEndEntity => "this is the certificate of a CA, not of a workload",
        other => return format!("the chain does not verify: {other}"),
    };
    words.to_owned()
}
