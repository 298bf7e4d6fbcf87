//! Certificates of clients at the edge (`auth-tls-*`): what hosts verify them against, what a client has shown on its
//! connection, and how it stands with what its host asks for now.
//!
//! A certificate that is missing or bad does not end the handshake: whoever signs it with the key of what it shows gets
//! in, and the verdict is for each request to be answered by. It is passed once for each set of authorities, in the
//! handshake and again where another set has come since. None of this says who a client of the mesh is.

mod authorities;
mod handshake;
mod unversioned;

#[cfg(test)]
mod tests;

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use http::HeaderValue;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

pub use authorities::{AuthoritiesError, ClientAuthorities, ClientCa};
pub(super) use handshake::{AsksForCertificate, BoundTickets, remembering};

use super::{client_element, distinguished_name};
use crate::snapshot::search::SearchPattern;

/// Longest name of a client or an issuer that is told to backends, and that a client is let in with.
const LONGEST_NAME: usize = 4096;

/// What became of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leads to an authority over so many certificates in between.
    Good {
        intermediates: usize,
    },
    Bad(Fault),
}

/// A verdict, and the last second since the Unix epoch for which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    pub until: u64,
}

/// Why a chain is not good, in the words of OpenSSL, which backends may know from nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    SelfSigned,
    UnknownIssuer,
    Expired,
    NotYetValid,
    Revoked,
    NoList,
    ListExpired,
    BadList,
    BadSignature,
    Purpose,
    TooLong,
    /// Anything else.
    Rejected,
}

impl Fault {
    /// Whether only the authority is missing: what `optional_no_ca` lets pass.
    pub fn is_unknown_authority(self) -> bool {
        matches!(self, Self::SelfSigned | Self::UnknownIssuer)
    }

    /// The value of `ssl-client-verify`.
    pub fn failed(self) -> &'static str {
        match self {
            Self::SelfSigned => "FAILED:self-signed certificate",
            Self::UnknownIssuer => "FAILED:unable to get local issuer certificate",
            Self::Expired => "FAILED:certificate has expired",
            Self::NotYetValid => "FAILED:certificate is not yet valid",
            Self::Revoked => "FAILED:certificate revoked",
            Self::NoList => "FAILED:unable to get certificate CRL",
            Self::ListExpired => "FAILED:CRL has expired",
            Self::BadList => "FAILED:CRL signature failure",
            Self::BadSignature => "FAILED:certificate signature failure",
            Self::Purpose => "FAILED:unsuitable certificate purpose",
            Self::TooLong => "FAILED:certificate chain too long",
            Self::Rejected => "FAILED:certificate rejected",
        }
    }
}

/// What a client has shown on this very connection, or on the one whose session it goes on with.
pub struct ClientCertificate {
    /// Its own first; never empty.
    chain: Box<[CertificateDer<'static>]>,
    /// `None` where it is of no use to anybody.
    names: Option<Names>,
    /// PEM, percent-encoded; made when it is first asked for.
    escaped: OnceCell<Option<HeaderValue>>,
    judged: RefCell<Option<(Arc<ClientAuthorities>, Judgement)>>,
    matched: RefCell<Option<(Arc<SearchPattern>, bool)>>,
}

struct Names {
    subject: HeaderValue,
    issuer: HeaderValue,
}

impl ClientCertificate {
    /// `None` where the client has shown nothing. `judged` is what the handshake found.
    pub(super) fn new(
        chain: &[CertificateDer<'static>],
        judged: Option<(Arc<ClientAuthorities>, Judgement)>,
    ) -> Option<Self> {
        let names = Names::of(chain.first()?);
        let (judged, matched) = (RefCell::new(judged), RefCell::new(None));
        Some(Self { chain: chain.into(), names, escaped: OnceCell::new(), judged, matched })
    }

    /// How it stands with `authorities` at `now`, in seconds since the Unix epoch. Looked up once for each set of them.
    pub fn verdict(&self, authorities: &Arc<ClientAuthorities>, now: u64) -> Verdict {
        if self.names.is_none() {
            return Verdict::Bad(Fault::Rejected);
        }
        let mut judged = self.judged.borrow_mut();
        if let Some((known, judgement)) = &*judged
            && known.is_same(authorities)
            && now <= judgement.until
        {
            return judgement.verdict;
        }
        let judgement = authorities.judge(&self.chain, now);
        *judged = Some((authorities.clone(), judgement));
        judgement.verdict
    }

    /// Whether its subject is one that `pattern` is for. Looked up once for each pattern.
    pub fn is_for(&self, pattern: &Arc<SearchPattern>) -> bool {
        let mut matched = self.matched.borrow_mut();
        match &*matched {
            Some((known, matches)) if Arc::ptr_eq(known, pattern) => *matches,
            _ => {
                let matches = self.subject().is_some_and(|subject| pattern.is_match(subject.as_bytes()));
                *matched = Some((pattern.clone(), matches));
                matches
            }
        }
    }

    /// Its subject, as [`distinguished_name`] writes it.
    pub fn subject(&self) -> Option<&HeaderValue> {
        self.names.as_ref().map(|names| &names.subject)
    }

    pub fn issuer(&self) -> Option<&HeaderValue> {
        self.names.as_ref().map(|names| &names.issuer)
    }

    /// The certificate in PEM, percent-encoded.
    pub fn escaped(&self) -> Option<&HeaderValue> {
        let escaped = || HeaderValue::try_from(client_element::escaped_pem(self.chain.first()?)).ok();
        self.escaped.get_or_init(escaped).as_ref()
    }
}

impl Names {
    fn of(leaf: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let value = |name| {
            let text = distinguished_name::text(name);
            HeaderValue::try_from(text).ok().filter(|value| value.len() <= LONGEST_NAME)
        };
        Some(Self { subject: value(certificate.subject())?, issuer: value(certificate.issuer())? })
    }
}
