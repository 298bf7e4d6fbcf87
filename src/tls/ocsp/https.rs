//! TLS to a responder with an https URL.
//!
//! The response carries its own signature; TLS adds only that onlookers don't see which certificate is asked
//! about. So the responder may be certified by a public root or by the very CA it answers for: private
//! hierarchies put their responders under their own issuer, and no setting is needed for that.

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls::provider;

static PUBLIC_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    roots
});

/// Performs the handshake with the responder `host`, a name or an address without brackets.
pub async fn connect<S>(stream: S, host: &str, issuer: &CertificateDer<'_>) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = client_config(issuer).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn client_config(issuer: &CertificateDer<'_>) -> Result<ClientConfig, rustls::Error> {
    let mut roots = PUBLIC_ROOTS.clone();
    // An issuer that cannot be an anchor merely adds none.
    roots.add_parsable_certificates([issuer.clone()]);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}
