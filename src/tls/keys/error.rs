//! Why a key pair was refused, and what was odd about one that is served. Neither carries a byte of input,
//! so both can be logged and shown as they are.

use std::fmt;

use super::{MAX_CERTIFICATES, MAX_NAMES, MAX_PEM_BYTES};

/// Why a pair was refused. Never carries input bytes; lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyPairError {
    #[error("{0} is longer than {limit} KiB", limit = MAX_PEM_BYTES / 1024)]
    TooLarge(Part),
    #[error("{part}, line {line}: {problem}")]
    PemInvalid { part: Part, line: usize, problem: PemProblem },
    #[error("there is no PEM block of type CERTIFICATE")]
    CertificateMissing,
    #[error("there are more than {MAX_CERTIFICATES} certificates")]
    TooManyCertificates,
    #[error("the certificate in line {line} cannot be decoded")]
    CertificateInvalid { line: usize },
    #[error("the certificate has more than {MAX_NAMES} subject alternative names")]
    TooManyNames,
    #[error("there is no private key")]
    KeyMissing,
    #[error("the private key in line {line} cannot be decoded")]
    KeyInvalid { line: usize },
    #[error("the private key in line {line} is encrypted: store it without a passphrase")]
    KeyEncrypted { line: usize },
    #[error("the private key in line {line} is {what}: use RSA, ECDSA (P-256, P-384, P-521) or Ed25519")]
    KeyUnsupported { line: usize, what: &'static str },
    #[error("the RSA key has {bits} bits: at least 2048 are needed")]
    WeakKey { bits: usize },
    #[error("the RSA key has {bits} bits: at most 4096 are supported")]
    KeyTooLarge { bits: usize },
    #[error("no certificate has the public key of the private key")]
    KeyMismatch,
}

impl KeyPairError {
    /// The CamelCase word for diagnostics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "TooLarge",
            Self::PemInvalid { .. } => "PemInvalid",
            Self::CertificateMissing => "CertificateMissing",
            Self::TooManyCertificates => "TooManyCertificates",
            Self::CertificateInvalid { .. } => "CertificateInvalid",
            Self::TooManyNames => "TooManyNames",
            Self::KeyMissing => "KeyMissing",
            Self::KeyInvalid { .. } => "KeyInvalid",
            Self::KeyEncrypted { .. } => "KeyEncrypted",
            Self::KeyUnsupported { .. } => "KeyUnsupported",
            Self::WeakKey { .. } => "WeakKey",
            Self::KeyTooLarge { .. } => "KeyTooLarge",
            Self::KeyMismatch => "KeyMismatch",
        }
    }

    /// Which of the two inputs is at fault.
    pub fn part(&self) -> Part {
        match self {
            Self::TooLarge(part) | Self::PemInvalid { part, .. } => *part,
            Self::CertificateMissing
            | Self::TooManyCertificates
            | Self::CertificateInvalid { .. }
            | Self::TooManyNames => Part::Certificate,
            Self::KeyMissing
            | Self::KeyInvalid { .. }
            | Self::KeyEncrypted { .. }
            | Self::KeyUnsupported { .. }
            | Self::WeakKey { .. }
            | Self::KeyTooLarge { .. }
            | Self::KeyMismatch => Part::Key,
        }
    }
}

/// One of the two inputs of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Certificate,
    Key,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "the certificate",
            Self::Key => "the private key",
        })
    }
}

/// What is wrong with a PEM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemProblem {
    BeginLine,
    NotEnded,
    OtherEnd,
    Base64,
}

impl fmt::Display for PemProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeginLine => "a BEGIN line must end with five dashes and have nothing after them",
            Self::NotEnded => "the block that begins here does not end",
            Self::OtherEnd => "this END line is not the one of the block before it",
            Self::Base64 => "the block that begins here is not base64",
        })
    }
}

/// Something odd about a pair that is served all the same; lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyPairWarning {
    #[error("line {line}: a private key among the certificates is ignored")]
    KeyAmongCertificates { line: usize },
    #[error("line {line}: only the first private key is used")]
    SecondKey { line: usize },
    #[error("line {line}: something stands before BEGIN, so the block that follows is ignored")]
    BeginWithin { part: Part, line: usize },
    #[error("line {line}: this certificate has no part in the chain and is left out")]
    UnrelatedCertificate { line: usize },
    #[error("{count} names of the certificate are not host names or one-label wildcards and are ignored")]
    NamesIgnored { count: usize },
}

impl KeyPairWarning {
    /// The CamelCase word for diagnostics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::KeyAmongCertificates { .. } => "KeyAmongCertificates",
            Self::SecondKey { .. } => "SecondKey",
            Self::BeginWithin { .. } => "BeginWithin",
            Self::UnrelatedCertificate { .. } => "UnrelatedCertificate",
            Self::NamesIgnored { .. } => "NamesIgnored",
        }
    }

    /// Which of the two inputs it is about.
    pub fn part(&self) -> Part {
        match self {
            Self::SecondKey { .. } => Part::Key,
            Self::BeginWithin { part, .. } => *part,
            Self::KeyAmongCertificates { .. }
            | Self::UnrelatedCertificate { .. }
            | Self::NamesIgnored { .. } => Part::Certificate,
        }
    }
}

/// Why the default pair could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a self-signed certificate: {0}")]
pub enum GenerateError {
    Issue(#[from] rcgen::Error),
    Parse(#[from] KeyPairError),
}
