//! Certificates that clients of these tests trust.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls_pki_types::CertificateDer;

/// An authority for one test.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub struct Pair {
    pub certificate: CertificateDer<'static>,
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Unlike that of certificates, or OpenSSL would take them for self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its own certificate and key, as files of a plugged-in CA are made of.
    pub fn files(&self) -> [String; 2] {
        [self.0.pem(), self.0.key().serialize_pem()]
    }

    pub fn issue(&self, host: &str) -> Pair {
        self.issue_for(&[host])
    }

    /// For several names and addresses.
    pub fn issue_for(&self, hosts: &[&str]) -> Pair {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.sign(CertificateParams::new(hosts).unwrap())
    }

    /// The certificate of a workload of the mesh, whose identity is this URI.
    pub fn issue_workload(&self, id: &str) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![SanType::URI(id.try_into().unwrap())];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair {
            certificate: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Pair {
    /// A Secret with it.
    pub fn manifest(&self, namespace: &str, name: &str) -> String {
        let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{ namespace: {namespace}, name: {name} }}\n\
             type: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
            indented(&self.certificate_pem),
            indented(&self.key_pem)
        )
    }

    /// Writes it for kubectl; the `--cert` and `--key` arguments.
    pub fn write(&self, dir: &Path, name: &str) -> [String; 2] {
        let file = |end: &str, content: &str| {
            let path = dir.join(format!("{name}.{end}"));
            fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (certificate, key) = (file("crt", &self.certificate_pem), file("key", &self.key_pem));
        [format!("--cert={certificate}"), format!("--key={key}")]
    }
}
