//! Certificates for tests: a small authority that issues what a test asks for.
//!
//! Panics where a certificate cannot be made: in a test that is the right answer.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, CustomExtension,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use crate::tls::keys::{Algorithm, KeyPair};

/// An authority, self-signed or signed by another.
pub struct Authority {
    issuer: CertifiedIssuer<'static, rcgen::KeyPair>,
    /// Certificates from this authority up to the one below the root, as a chain is served.
    chain_pem: String,
}

impl Authority {
    /// A self-signed root with this common name.
    pub fn new(name: &str) -> Self {
        let issuer = CertifiedIssuer::self_signed(authority_params(name), generate(Algorithm::EcdsaP256));
        Self { issuer: issuer.expect("a root"), chain_pem: String::new() }
    }

    /// An intermediate below `self`.
    pub fn intermediate(&self, name: &str) -> Self {
        self.intermediate_with_serial(name, fastrand::u64(1..))
    }

    /// The certificate of this authority, for clients to trust.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// As [`pem`](Self::pem), in DER.
    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The certificates below the root that a server sends after its leaf; empty for a root.
    pub fn chain_pem(&self) -> &str {
        &self.chain_pem
    }

    /// Starts a server certificate for these DNS names: P-256, valid from yesterday for 90 days.
    pub fn leaf(&self, names: &[&str]) -> Leaf<'_> {
        let yesterday = OffsetDateTime::now_utc() - Duration::days(1);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("DNS names");
        params.distinguished_name = DistinguishedName::new();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = yesterday;
        params.not_after = yesterday + Duration::days(90);
        Leaf { authority: self, params, algorithm: Algorithm::EcdsaP256 }
    }

    /// The list of the certificates that are revoked, by their serial numbers, in PEM.
    pub fn revocation_list(&self, serials: &[u64]) -> String {
        let now = OffsetDateTime::now_utc();
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: now - Duration::hours(1),
            next_update: now + Duration::days(1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).and_then(|list| list.pem()).expect("a list")
    }

    /// As [`intermediate`](Self::intermediate), with this serial number.
    pub fn intermediate_with_serial(&self, name: &str, serial: u64) -> Self {
        let mut params = authority_params(name);
        params.serial_number = Some(SerialNumber::from(serial));
        let issuer = CertifiedIssuer::signed_by(params, generate(Algorithm::EcdsaP256), &self.issuer);
        let issuer = issuer.expect("an intermediate");
        let chain_pem = format!("{}{}", issuer.pem(), self.chain_pem);
        Self { issuer, chain_pem }
    }

    /// The certificate of a workload of the mesh: who it is is its only name.
    pub fn workload(&self, uri: &str) -> Leaf<'_> {
        self.leaf(&[]).uri(uri).for_clients()
    }

    /// A server certificate as [`leaf`](Self::leaf) makes it, parsed.
    pub fn pair(&self, names: &[&str]) -> KeyPair {
        self.leaf(names).issue().parse()
    }
}

/// A server certificate to be issued.
pub struct Leaf<'a> {
    authority: &'a Authority,
    params: CertificateParams,
    algorithm: Algorithm,
}

impl Leaf<'_> {
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Validity in seconds since the Unix epoch.
    #[must_use]
    pub fn valid(mut self, not_before: i64, not_after: i64) -> Self {
        let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).expect("a date");
        (self.params.not_before, self.params.not_after) = (at(not_before), at(not_after));
        self
    }

    #[must_use]
    pub fn serial(mut self, serial: u64) -> Self {
        self.params.serial_number = Some(SerialNumber::from(serial));
        self
    }

    #[must_use]
    pub fn common_name(mut self, name: &str) -> Self {
        self.params.distinguished_name.push(DnType::CommonName, name);
        self
    }

    /// Puts an OCSP responder into the authority information access (RFC 5280, section 4.2.2.1).
    #[must_use]
    pub fn ocsp_responder(mut self, url: &str) -> Self {
        let length = u8::try_from(url.len()).expect("a short URL");
        let identifier = [6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 1];
        let mut access = identifier.to_vec();
        access.extend([0x86, length]);
        access.extend(url.as_bytes());
        let wrapped = |content: Vec<u8>| {
            let mut der = vec![0x30, u8::try_from(content.len()).expect("a short URL")];
            assert!(content.len() < 128, "a short URL");
            der.extend(content);
            der
        };
        let content = wrapped(wrapped(access));
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], content);
        self.params.custom_extensions.push(extension);
        self
    }

    /// Adds the TLS feature extension that asks for a staple (RFC 7633).
    #[must_use]
    pub fn must_staple(mut self) -> Self {
        let extension =
            CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5]);
        self.params.custom_extensions.push(extension);
        self
    }

    /// Adds a URI to its names.
    #[must_use]
    pub fn uri(mut self, uri: &str) -> Self {
        self.params.subject_alt_names.push(SanType::URI(uri.try_into().expect("a URI")));
        self
    }

    /// Lets a client show it as well.
    #[must_use]
    pub fn for_clients(mut self) -> Self {
        self.params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        self
    }

    pub fn issue(self) -> PemPair {
        let key = generate(self.algorithm);
        let leaf = self.params.signed_by(&key, &self.authority.issuer).expect("a leaf");
        PemPair {
            leaf_pem: leaf.pem(),
            chain_pem: self.authority.chain_pem.clone(),
            key_pem: key.serialize_pem(),
        }
    }
}

/// A leaf, the certificates above it and its key, as PEM.
#[derive(Clone)]
pub struct PemPair {
    pub leaf_pem: String,
    pub chain_pem: String,
    pub key_pem: String,
}

impl PemPair {
    /// What `tls.crt` holds.
    pub fn certificates_pem(&self) -> String {
        format!("{}{}", self.leaf_pem, self.chain_pem)
    }

    pub fn parse(&self) -> KeyPair {
        KeyPair::parse(self.certificates_pem().as_bytes(), self.key_pem.as_bytes()).expect("a usable pair")
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    params
}

fn generate(algorithm: Algorithm) -> rcgen::KeyPair {
    let algorithm = match algorithm {
        Algorithm::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        Algorithm::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        Algorithm::EcdsaP521 => &rcgen::PKCS_ECDSA_P521_SHA512,
        Algorithm::Ed25519 => &rcgen::PKCS_ED25519,
        Algorithm::Rsa => &rcgen::PKCS_RSA_SHA256,
    };
    rcgen::KeyPair::generate_for(algorithm).expect("a key")
}
