//! `ca issue`: a certificate with a new key, for tests, demos and workloads outside of a cluster.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::output::{CertificateView, Output};
use super::{Context, duration, now};
use crate::ca::authority::TtlPolicy;
use crate::ca::certificate::Certificate;
use crate::ca::csr::PublicKey;
use crate::ca::identity::WorkloadNames;
use crate::ca::key::{KeyAlgorithm, PrivateKey};
use crate::tls::spiffe::SpiffeId;

#[derive(Args)]
pub struct IssueArgs {
    /// Identity, such as spiffe://cluster.local/ns/default/sa/web.
    #[arg(long, value_name = "ID")]
    spiffe: String,
    /// DNS name to add; may be repeated.
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// Life of the certificate; it never outlives the CA.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "24h")]
    ttl: Duration,
    /// Key of the certificate.
    #[arg(long, value_enum, default_value_t = KeyAlgorithm::EcdsaP256)]
    key: KeyAlgorithm,
    /// Folder for cert-chain.pem, key.pem and root-cert.pem; without it they go to standard output.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A key with certificate and roots, as printed or written.
#[derive(Serialize)]
pub struct Bundle {
    pub certificate: CertificateView,
    pub cert_chain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub root_cert: String,
}

pub async fn issue(context: &Context, args: IssueArgs, output: Output) -> anyhow::Result<ExitCode> {
    let authority = context.authority().await?;
    let id = SpiffeId::parse(&args.spiffe).with_context(|| args.spiffe.clone())?;
    if id.trust_domain() != context.trust_domain {
        eprintln!(
            "warning: {id} is not of the trust domain {}, whose members turn it away",
            context.trust_domain
        );
    }
    let names = WorkloadNames::new(id, args.dns)?;
    let seconds = i64::try_from(args.ttl.as_secs()).unwrap_or(i64::MAX);
    let ttl = TtlPolicy::default().resolve(seconds)?;
    let key = PrivateKey::generate(args.key)?;
    let issued = authority.issue(&PublicKey::from_own_key(&key), &names, ttl, now())?;
    let leaf = Certificate::from_der(issued.leaf)?;
    let bundle = Bundle {
        certificate: CertificateView::new(&leaf, now()),
        cert_chain: authority.chain_pem(leaf.der()),
        key: Some(key.to_pem().to_string()),
        root_cert: authority.roots().to_pem(),
    };
    hand_over(bundle, args.out.as_deref(), output)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the files where a folder is named, and prints what was not written.
pub fn hand_over(mut bundle: Bundle, folder: Option<&Path>, output: Output) -> anyhow::Result<()> {
    let Some(folder) = folder else {
        return output.print(&bundle, |bundle| {
            format!("{}{}{}", bundle.cert_chain, bundle.key.as_deref().unwrap_or_default(), bundle.root_cert)
        });
    };
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    write(&folder.join("cert-chain.pem"), &bundle.cert_chain, 0o644)?;
    if let Some(key) = bundle.key.take() {
        write(&folder.join("key.pem"), &key, 0o600)?;
    }
    write(&folder.join("root-cert.pem"), &bundle.root_cert, 0o644)?;
    let place = folder.display().to_string();
    output.print(&bundle, |bundle| {
        format!("{}\nwrote cert-chain.pem, key.pem and root-cert.pem to {place}\n", bundle.certificate.line())
    })
}

fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let draft = path.with_extension("draft");
    let written = || {
        let _ = std::fs::remove_file(&draft);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    written().with_context(|| path.display().to_string())
}
