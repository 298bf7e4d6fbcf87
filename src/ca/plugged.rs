//! A CA that the operator plugs in: files or a Secret with certificate, key, chain and roots.
//!
//! Two layouts are known: the classic `cacerts` one and `kubernetes.io/tls`. None of the files means that there is
//! no plugged-in CA; some but not all is an error that names the missing ones, never a silent self-signed root.
//! A reload takes all files of one moment or none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;
use time::OffsetDateTime;

use super::authority::{Authority, MaterialError};
use super::bundle::RootBundle;
use super::certificate::Certificate;
use super::key::PrivateKey;
use super::store::{Secret, SecretBytes, Store, StoreError};
use crate::store::objects::ObjectName;

/// The Secret that holds a plugged-in CA, in the storage namespace.
pub const SECRET_NAME: &str = "cacerts";

/// Present, and empty, in a `cacerts` that a control plane generated for itself: not an operator's CA.
const GENERATED_MARKER: &str = "istio-generated";

const CRL_FILE: &str = "ca-crl.pem";

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Names of the files in one layout.
#[derive(Debug)]
struct Layout {
    certificate: &'static str,
    key: &'static str,
    roots: &'static str,
    chain: &'static [&'static str],
    crl: Option<&'static str>,
}

const CLASSIC: Layout = Layout {
    certificate: "ca-cert.pem",
    key: "ca-key.pem",
    roots: "root-cert.pem",
    chain: &["cert-chain.pem"],
    crl: Some(CRL_FILE),
};

/// `tls.crt` holds the signing certificate and those above it; there is no file of its own for the chain.
const TLS: Layout = Layout {
    certificate: "tls.crt",
    key: "tls.key",
    roots: "ca.crt",
    chain: &["tls.crt", "ca.crt"],
    crl: None,
};

impl Layout {
    fn files(&self) -> impl Iterator<Item = &'static str> {
        let chain =
            self.chain.iter().copied().filter(|name| *name != self.certificate && *name != self.roots);
        [self.certificate, self.key, self.roots].into_iter().chain(chain)
    }
}

/// Why a plugged-in CA cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluggedError {
    #[error("{place}: incomplete signing CA bundle, missing {}", .missing.join(", "))]
    Incomplete { place: String, missing: Vec<&'static str> },
    #[error("{0}: no plugged-in CA found")]
    NotFound(String),
    #[error("{place}: {reason}")]
    Material { place: String, reason: MaterialError },
    #[error("{path}: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("{0}: the files keep changing while they are read")]
    Unstable(String),
    #[error(
        "{0}: the new roots neither contain the present ones nor are contained in them, so running workloads would lose each other; add the new root beside the old one first"
    )]
    UnrelatedRoots(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The files of a plugged-in CA, as bytes of one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Files {
    place: String,
    contents: BTreeMap<String, SecretBytes>,
}

impl Files {
    /// Reads a directory, for example a mounted Secret. All files are of one moment: two readings in a row have
    /// to agree, however the files or the link to them are swapped meanwhile.
    pub fn read(directory: &Path) -> Result<Self, PluggedError> {
        const ATTEMPTS: usize = 5;
        let mut previous = Self::read_once(directory)?;
        for _ in 0..ATTEMPTS {
            let again = Self::read_once(directory)?;
            if again == previous {
                return Ok(again);
            }
            previous = again;
        }
        Err(PluggedError::Unstable(directory.display().to_string()))
    }

    /// The data of a Secret.
    pub fn from_secret(secret: &Secret) -> Self {
        Self { place: format!("Secret {}", secret.name), contents: secret.data.clone() }
    }

    /// Checks everything and makes an authority; `None` if this is no plugged-in CA at all.
    pub fn authority(&self, now: OffsetDateTime) -> Result<Option<Authority>, PluggedError> {
        if self.contents.contains_key(GENERATED_MARKER) {
            return Ok(None);
        }
        let layout = match self.has(TLS.certificate) || (self.has(TLS.key) && !self.has(CLASSIC.key)) {
            true => TLS,
            false => CLASSIC,
        };
        let missing: Vec<&'static str> = layout.files().filter(|name| !self.has(name)).collect();
        match missing.len() {
            0 => {}
            _ if missing.len() == layout.files().count() => return Ok(None),
            _ => return Err(PluggedError::Incomplete { place: self.place.clone(), missing }),
        }
        let material = |reason| PluggedError::Material { place: self.place.clone(), reason };
        self.assemble(&layout, now).map(Some).map_err(material)
    }

    fn assemble(&self, layout: &Layout, now: OffsetDateTime) -> Result<Authority, MaterialError> {
        let certificates = |name: &'static str| {
            Certificate::from_pem(self.bytes(name)).map_err(|error| MaterialError::Certificate(name, error))
        };
        let signer = Certificate::first_from_pem(self.bytes(layout.certificate))
            .map_err(|error| MaterialError::Certificate(layout.certificate, error))?;
        let key = PrivateKey::from_pem(self.bytes(layout.key))
            .map_err(|error| MaterialError::Key(layout.key, error))?;
        let roots = RootBundle::new(certificates(layout.roots)?);
        let mut chain = Vec::new();
        for name in layout.chain {
            chain.extend(certificates(name)?);
        }
        let revocations = match layout.crl {
            Some(name) if self.has(name) => revocation_lists(self.bytes(name))?,
            _ => Vec::new(),
        };
        Authority::new(signer, key, chain, roots, revocations, now)
    }

    fn read_once(directory: &Path) -> Result<Self, PluggedError> {
        let names = CLASSIC.files().chain(TLS.files()).chain([CRL_FILE, GENERATED_MARKER]);
        let mut contents = BTreeMap::new();
        for name in names {
            if let Some(bytes) = read_file(&directory.join(name))? {
                contents.insert(name.to_owned(), bytes.into());
            }
        }
        Ok(Self { place: directory.display().to_string(), contents })
    }

    fn has(&self, name: &str) -> bool {
        self.contents.contains_key(name)
    }

    fn bytes(&self, name: &str) -> &[u8] {
        self.contents.get(name).map_or(&[], SecretBytes::as_slice)
    }
}

/// Where the operator keeps the CA.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Directory(PathBuf),
    Secret(ObjectName),
}

/// Follows a plugged-in CA.
pub struct Plugged {
    place: Place,
    /// What was found last that could be used.
    files: Files,
    /// What was found since and could not, and why: said once, and tried again, since it may only be too early.
    refused: Option<(Files, PluggedError)>,
}

impl Plugged {
    /// Reads and checks the directory; `None` if there is no plugged-in CA in it.
    pub fn load(directory: &Path, now: OffsetDateTime) -> Result<Option<(Self, Authority)>, PluggedError> {
        Self::new(Place::Directory(directory.to_owned()), Files::read(directory)?, now)
    }

    /// Reads and checks the Secret `cacerts` in `namespace`; `None` if there certainly is none, or no plugged-in CA
    /// in it.
    pub async fn load_secret<S: Store>(
        store: &S,
        namespace: &str,
        now: OffsetDateTime,
    ) -> Result<Option<(Self, Authority)>, PluggedError> {
        let name = ObjectName::new(namespace, SECRET_NAME);
        match store.secret(&name).await? {
            Some(secret) => Self::new(Place::Secret(name), Files::from_secret(&secret), now),
            None => Ok(None),
        }
    }

    /// Whether it lies in files, which no store tells of.
    pub fn is_in_files(&self) -> bool {
        matches!(self.place, Place::Directory(_))
    }

    /// Whether what lies there now is not what is in use, and may become usable without being changed.
    pub fn is_waiting(&self) -> bool {
        self.refused.is_some()
    }

    /// Looks again. `None` if nothing changed that matters; an error leaves the present authority in use, and is
    /// given once for each change.
    pub async fn reload<S: Store>(
        &mut self,
        store: &S,
        current: &Authority,
        now: OffsetDateTime,
    ) -> Result<Option<Authority>, PluggedError> {
        let files = match &self.place {
            Place::Directory(directory) => Files::read(directory)?,
            Place::Secret(name) => match store.secret(name).await? {
                Some(secret) => Files::from_secret(&secret),
                None => Files { place: self.files.place.clone(), contents: BTreeMap::new() },
            },
        };
        self.take(files, current, now)
    }

    fn new(
        place: Place,
        files: Files,
        now: OffsetDateTime,
    ) -> Result<Option<(Self, Authority)>, PluggedError> {
        let authority = files.authority(now)?;
        Ok(authority.map(|authority| (Self { place, files, refused: None }, authority)))
    }

    fn take(
        &mut self,
        files: Files,
        current: &Authority,
        now: OffsetDateTime,
    ) -> Result<Option<Authority>, PluggedError> {
        if files == self.files {
            self.refused = None;
            return Ok(None);
        }
        match next_authority(&files, current, now) {
            Ok(next) => {
                self.files = files;
                self.refused = None;
                Ok(next)
            }
            Err(error) => {
                let refused = Some((files, error.clone()));
                let said = self.refused == refused;
                self.refused = refused;
                if said { Ok(None) } else { Err(error) }
            }
        }
    }
}

/// The authority that `files` make; `None` if it is no other than `current`.
fn next_authority(
    files: &Files,
    current: &Authority,
    now: OffsetDateTime,
) -> Result<Option<Authority>, PluggedError> {
    let place = || files.place.clone();
    let gone = || PluggedError::Incomplete { place: place(), missing: CLASSIC.files().collect() };
    let next = files.authority(now)?.ok_or_else(gone)?;
    if is_same(current, &next) {
        return Ok(None);
    }
    if !(next.roots().contains_all(current.roots()) || current.roots().contains_all(next.roots())) {
        return Err(PluggedError::UnrelatedRoots(place()));
    }
    Ok(Some(next))
}

/// Every list in a PEM text, which must hold one.
fn revocation_lists(text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, MaterialError> {
    let refused = |why: &str| MaterialError::RevocationList(why.to_owned());
    let lists = CertificateRevocationListDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    match lists.map_err(|_| refused("malformed PEM"))? {
        lists if lists.is_empty() => Err(refused("there is none in the file")),
        lists => Ok(lists),
    }
}

/// Same certificates, as sets, and same revocations: other bytes of the files do not matter.
fn is_same(one: &Authority, other: &Authority) -> bool {
    one.signer() == other.signer()
        && one.chain() == other.chain()
        && one.roots().same_as(other.roots())
        && one.revocations() == other.revocations()
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, PluggedError> {
    let unreadable = |reason: String| PluggedError::Unreadable { path: path.display().to_string(), reason };
    let size = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| unreadable(error.to_string()))?.len(),
    };
    if size > MAX_FILE_BYTES {
        return Err(unreadable(format!("{size} bytes are more than the {MAX_FILE_BYTES} allowed")));
    }
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|error| unreadable(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
