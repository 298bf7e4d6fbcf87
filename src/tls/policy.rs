//! The TLS policy of a host: versions, suites, key exchange groups, application protocols and client
//! certificates. Hosts of one policy share one [`TlsPolicy`], made when settings change and never in a handshake.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;

use super::client_auth::{AsksForCertificate, BoundTickets, ClientAuthorities};
use super::keys::ClientKeys;
use super::mesh::{AsksForIdentity, MeshClient, MeshTrust};
use super::tickets::Tickets;
use crate::settings::Settings;
use crate::settings::choices::TlsVersion;

/// One policy, shared by all hosts that have the same.
pub struct TlsPolicy {
    /// Without a certificate: each handshake adds the one chosen for its name.
    base: ServerConfig,
    clients: ClientPolicy,
    versions: Vec<&'static SupportedProtocolVersion>,
    tickets: Option<Arc<Tickets>>,
    /// The same for clients that are asked for certificates, by their authorities. For the control plane alone.
    asking: Mutex<HashMap<[u8; 32], Weak<Self>>>,
}

/// Which client certificates a policy asks for.
#[derive(Clone, Debug)]
enum ClientPolicy {
    None,
    /// Asked for and verified against the roots of the mesh; a client may have none.
    Mesh(Arc<MeshTrust>),
    /// Asked for in the name of these authorities; what comes of it is for each request to be judged by.
    Edge(Arc<ClientAuthorities>),
}

impl ClientPolicy {
    /// Whether a client that was asked for this has been asked for the other as well. Roots come and go while a mesh
    /// stays the same.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None | Self::Edge(_), Self::None) | (Self::Mesh(_), Self::Mesh(_)) => true,
            (Self::Edge(asked), Self::Edge(wanted)) => asked.is_same(wanted),
            (Self::None | Self::Mesh(_) | Self::Edge(_), _) => false,
        }
    }
}

/// A TLS setting that asks for something the TLS library does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsPolicyError {
    #[error("ssl-ciphers: {0} is not available; available are {available}", available = suite_names())]
    Cipher(String),
    #[error("ssl-ecdh-curve: {0} is not available; available are {available}", available = group_names())]
    Group(String),
    #[error("ssl-protocols: no version is left")]
    NoVersion,
    #[error("ssl-ciphers and ssl-protocols have nothing in common")]
    NothingInCommon,
}

impl TlsPolicy {
    /// The policy that `settings` ask for. Tickets are shared by every policy without client certificates.
    pub fn new(settings: &Settings, tickets: &Arc<Tickets>) -> Result<Self, TlsPolicyError> {
        let versions = versions(&settings.ssl_protocols);
        let mut base = base(settings, &versions, Arc::new(NoClientAuth))?;
        let tickets = settings.ssl_session_tickets.then(|| tickets.clone());
        match &tickets {
            Some(tickets) => base.ticketer = tickets.clone(),
            None => base.send_tls13_tickets = 0,
        }
        Ok(Self { base, clients: ClientPolicy::None, versions, tickets, asking: Mutex::default() })
    }

    /// This policy for a host whose clients are asked for certificates of `authorities`; one for all hosts with the same.
    pub fn asking(&self, authorities: &Arc<ClientAuthorities>) -> Result<Arc<Self>, TlsPolicyError> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = asking.get(authorities.id()).and_then(Weak::upgrade) {
            return Ok(known);
        }
        asking.retain(|_, policy| policy.strong_count() > 0);
        let asks = Arc::new(AsksForCertificate::new(authorities.clone()));
        let provider = self.base.crypto_provider().clone();
        let mut base = config(provider, &self.versions, asks)?;
        base.alpn_protocols.clone_from(&self.base.alpn_protocols);
        base.send_tls13_tickets = self.base.send_tls13_tickets;
        if let Some(tickets) = &self.tickets {
            let (tickets, authorities) = (tickets.clone(), authorities.clone());
            base.ticketer = Arc::new(BoundTickets { tickets, authorities });
        }
        let policy = Arc::new(Self {
            base,
            clients: ClientPolicy::Edge(authorities.clone()),
            versions: self.versions.clone(),
            tickets: self.tickets.clone(),
            asking: Mutex::default(),
        });
        asking.insert(*authorities.id(), Arc::downgrade(&policy));
        Ok(policy)
    }

    /// The policy of the mesh port. It gives out no tickets and takes none: an identity is one that was verified on
    /// this very connection.
    pub fn mesh(settings: &Settings, trust: Arc<MeshTrust>) -> Result<Self, TlsPolicyError> {
        let asks = AsksForIdentity { trust: trust.clone(), required: false };
        let versions = versions(&settings.ssl_protocols);
        let mut base = base(settings, &versions, Arc::new(asks))?;
        base.send_tls13_tickets = 0;
        let clients = ClientPolicy::Mesh(trust);
        Ok(Self { base, clients, versions, tickets: None, asking: Mutex::default() })
    }

    /// The configuration of the HBONE port, complete with the gateway's own certificate: HTTP/2 over TLS 1.3, as node
    /// proxies speak it, without tickets for the same reason as [`mesh`](Self::mesh).
    pub(super) fn hbone(
        settings: &Settings,
        trust: Arc<MeshTrust>,
        own: Arc<CertifiedKey>,
    ) -> Result<ServerConfig, TlsPolicyError> {
        let asks = AsksForIdentity { trust, required: settings.hbone_client_certificate };
        let mut config = base(settings, &[&rustls::version::TLS13], Arc::new(asks))?;
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.cert_resolver = Arc::new(Chosen(own));
        Ok(config)
    }

    /// Who the client is that showed `certificates` in a handshake of this policy; `None` where that says nothing,
    /// or there are none.
    pub(super) fn client(&self, certificates: Option<&[CertificateDer<'static>]>) -> Option<MeshClient> {
        let ClientPolicy::Mesh(trust) = &self.clients else { return None };
        client_of(trust, certificates?)
    }

    /// The authorities in whose name clients at the edge are asked for a certificate.
    pub fn authorities(&self) -> Option<&Arc<ClientAuthorities>> {
        match &self.clients {
            ClientPolicy::Edge(authorities) => Some(authorities),
            ClientPolicy::None | ClientPolicy::Mesh(_) => None,
        }
    }

    /// Whether a connection made under this policy may carry requests for a host with the other one: all that one asks
    /// of clients was asked. Versions and suites may have changed since; an open connection is not touched.
    pub fn admits(&self, other: &Self) -> bool {
        self.clients.covers(&other.clients)
    }

    /// The kinds of certificate that `hello` can be answered with. In TLS 1.3 the client's signature schemes say all. A
    /// suite of TLS 1.2 goes with one kind of key besides (RFC 5246, section 7.4.2), while clients list the schemes
    /// of both; which version it will be, the suites in common tell, for each belongs to one.
    pub(super) fn keys(&self, hello: &ClientHello<'_>) -> ClientKeys {
        let keys = ClientKeys::of_schemes(hello.signature_schemes());
        let mut of_suites = ClientKeys::NONE;
        for suite in &self.base.crypto_provider().cipher_suites {
            if hello.cipher_suites().contains(&suite.suite()) {
                match suite {
                    SupportedCipherSuite::Tls13(_) => return keys,
                    SupportedCipherSuite::Tls12(suite) => {
                        of_suites = of_suites.or(ClientKeys::of_schemes(suite.sign));
                    }
                }
            }
        }
        keys.and(of_suites)
    }

    /// The configuration for one handshake that serves `certified`.
    pub(super) fn for_certificate(&self, certified: Arc<CertifiedKey>) -> Arc<ServerConfig> {
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(Chosen(certified));
        Arc::new(config)
    }
}

/// The client of the mesh that showed `chain` in a handshake.
pub(super) fn client_of(trust: &Arc<MeshTrust>, chain: &[CertificateDer<'static>]) -> Option<MeshClient> {
    // The handshake has made sure that there is an identity.
    let id = trust.identity(chain.first()?).ok()?;
    Some(MeshClient::new(id, chain).verified_by(trust.clone()))
}

fn base(
    settings: &Settings,
    versions: &[&'static SupportedProtocolVersion],
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsPolicyError> {
    let mut cipher_suites = cipher_suites(&settings.ssl_ciphers)?;
    cipher_suites.retain(|suite| versions.contains(&suite.version()));
    let provider = CryptoProvider {
        cipher_suites,
        kx_groups: groups(&settings.ssl_ecdh_curve)?,
        ..CryptoProvider::clone(&super::provider())
    };
    if versions.is_empty() {
        return Err(TlsPolicyError::NoVersion);
    }
    let mut base = config(Arc::new(provider), versions, clients)?;
    base.alpn_protocols = match settings.use_http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    Ok(base)
}

fn config(
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsPolicyError> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|_| TlsPolicyError::NothingInCommon)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(NoCertificate));
    config.ignore_client_order = true;
    // Sessions live in tickets alone: a cache would be a lock between workers, and memory for strangers.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// Serves the certificate that was chosen when the ClientHello had been read.
struct Chosen(Arc<CertifiedKey>);

impl ResolvesServerCert for Chosen {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chosen")
    }
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

fn versions(wanted: &[TlsVersion]) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(TlsVersion::Tls13, &rustls::version::TLS13), (TlsVersion::Tls12, &rustls::version::TLS12)];
    all.into_iter().filter(|(version, _)| wanted.contains(version)).map(|(_, version)| version).collect()
}

/// The suites of TLS 1.2 that `wanted` names, in its order, and all of TLS 1.3, which OpenSSL-style lists do
/// not speak about. AES-128-GCM comes first: it is the fastest and strong enough.
fn cipher_suites(wanted: &[String]) -> Result<Vec<SupportedCipherSuite>, TlsPolicyError> {
    let all = aws_lc_rs::ALL_CIPHER_SUITES;
    let first = |suite: &&SupportedCipherSuite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256;
    let tls13 = all.iter().filter(|suite| suite.tls13().is_some());
    let mut suites: Vec<_> =
        tls13.clone().filter(first).chain(tls13.filter(|s| !first(s))).copied().collect();
    if wanted.is_empty() {
        suites.extend(all.iter().filter(|suite| suite.tls13().is_none()));
        suites.sort_by_key(|suite| !format!("{:?}", suite.suite()).contains("AES_128_GCM"));
        return Ok(suites);
    }
    for name in wanted {
        let found = all.iter().find(|suite| openssl_name(suite.suite()) == *name);
        // DHE suites stand in ingress-nginx's default list; rustls has none, the others of the list remain.
        match found {
            Some(suite) if !suites.contains(suite) => suites.push(*suite),
            Some(_) => {}
            None if name.starts_with("DHE-") => {}
            None => return Err(TlsPolicyError::Cipher(name.clone())),
        }
    }
    Ok(suites)
}

/// `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256` is `ECDHE-ECDSA-AES128-GCM-SHA256` to OpenSSL; names of TLS 1.3
/// are the same in both.
fn openssl_name(suite: CipherSuite) -> String {
    let name = format!("{suite:?}");
    match name.strip_prefix("TLS_") {
        Some(name) => name
            .replace("_WITH", "")
            .replace("AES_", "AES")
            .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
            .replace('_', "-"),
        None => name.replace("TLS13_", "TLS_"),
    }
}

fn suite_names() -> String {
    aws_lc_rs::ALL_CIPHER_SUITES
        .iter()
        .map(|suite| openssl_name(suite.suite()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Group names as OpenSSL and the IANA registry spell them.
const GROUPS: [(&str, &dyn SupportedKxGroup); 7] = [
    ("X25519MLKEM768", aws_lc_rs::kx_group::X25519MLKEM768),
    ("X25519", aws_lc_rs::kx_group::X25519),
    ("prime256v1", aws_lc_rs::kx_group::SECP256R1),
    ("secp384r1", aws_lc_rs::kx_group::SECP384R1),
    ("P-256", aws_lc_rs::kx_group::SECP256R1),
    ("P-384", aws_lc_rs::kx_group::SECP384R1),
    ("secp256r1", aws_lc_rs::kx_group::SECP256R1),
];

fn groups(wanted: &[String]) -> Result<Vec<&'static dyn SupportedKxGroup>, TlsPolicyError> {
    if wanted.is_empty() || wanted == ["auto"] {
        return Ok(GROUPS.iter().take(4).map(|(_, group)| *group).collect());
    }
    let find = |name: &String| {
        let group = GROUPS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        group.map(|(_, group)| *group).ok_or_else(|| TlsPolicyError::Group(name.clone()))
    };
    wanted.iter().map(find).collect()
}

fn group_names() -> String {
    GROUPS.iter().take(4).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy(change: impl FnOnce(&mut Settings)) -> Result<TlsPolicy, TlsPolicyError> {
        let mut settings = Settings::default();
        change(&mut settings);
        TlsPolicy::new(&settings, &Tickets::new(Duration::from_secs(60)).unwrap())
    }

    #[test]
    fn defaults_prefer_the_post_quantum_group_and_aes_128() {
        let policy = policy(|_| {}).unwrap();
        let provider = policy.base.crypto_provider();
        assert_eq!(provider.kx_groups[0].name(), rustls::NamedGroup::X25519MLKEM768);
        assert_eq!(provider.cipher_suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert!(policy.base.ticketer.enabled());
        assert_eq!(policy.base.max_early_data_size, 0);
    }

    #[test]
    fn every_suite_of_tls_1_2_can_be_asked_for_by_its_openssl_name() {
        for name in [
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ] {
            let policy = policy(|s| s.ssl_ciphers = vec![name.into()]).unwrap();
            let suites = &policy.base.crypto_provider().cipher_suites;
            assert_eq!(suites.iter().filter(|suite| suite.tls13().is_none()).count(), 1, "{name}");
        }
    }

    #[test]
    fn what_the_library_lacks_is_refused_by_name() {
        let cipher = policy(|s| s.ssl_ciphers = vec!["AES128-SHA".into()]).err().unwrap();
        assert!(cipher.to_string().contains("AES128-SHA is not available"), "{cipher}");
        assert!(cipher.to_string().contains("ECDHE-RSA-CHACHA20-POLY1305"), "{cipher}");
        let group = policy(|s| s.ssl_ecdh_curve = vec!["sect571r1".into()]).err().unwrap();
        assert_eq!(group, TlsPolicyError::Group("sect571r1".into()));
        assert_eq!(policy(|s| s.ssl_protocols.clear()).err(), Some(TlsPolicyError::NoVersion));
    }

    #[test]
    fn groups_keep_the_order_asked_for() {
        let policy = policy(|s| s.ssl_ecdh_curve = vec!["P-384".into(), "x25519".into()]).unwrap();
        let names: Vec<_> = policy.base.crypto_provider().kx_groups.iter().map(|g| g.name()).collect();
        assert_eq!(names, [rustls::NamedGroup::secp384r1, rustls::NamedGroup::X25519]);
    }
}
