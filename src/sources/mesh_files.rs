//! Certificates of the mesh in files, where the settings name paths: each path stands for a Secret without a
//! namespace, named like the path.
//!
//! Two small folders at most, so they are read once a second and compared: whichever way a writer replaces files
//! (rename, links swapped as kubelet does, mounts), it is seen. A pair that is read while only half of it is new does
//! not match, and leaves the last good one in force until the next look.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use tokio::sync::{mpsc, watch};
use zeroize::Zeroizing;

use super::{Batch, FileFindings};
use crate::diagnostics::{Diagnostic, Severity};
use crate::settings::Settings;
use crate::settings::places::{PairPlace, TrustPlace, object_of};
use crate::store::Event;
use crate::store::objects::{Authorities, Kind, Metadata, Object, PairFields, Secret, SecretOrigin};
use crate::tls::keys::KeyPair;

const INTERVAL: Duration = Duration::from_secs(1);
/// Larger files are no certificates.
const LARGEST: u64 = 1024 * 1024;

/// The paths that the settings name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshPaths(BTreeSet<PathBuf>);

impl MeshPaths {
    pub fn of(settings: &Settings) -> Self {
        let trust = TrustPlace::path(&settings.mesh_trust_bundle);
        let own = settings.hbone_certificate.as_ref().and_then(PairPlace::path);
        Self(trust.into_iter().chain(own).map(Path::to_owned).collect())
    }
}

/// What was found at each path last.
#[derive(Default)]
pub struct MeshFiles(BTreeMap<PathBuf, Found>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// SHA-256 over all of it.
    Content([u8; 32]),
    Nothing(String),
}

impl MeshFiles {
    /// Reads everything; gives what differs from the last time.
    pub fn look(&mut self, paths: &MeshPaths) -> Batch {
        let mut batch = Batch::default();
        let gone: Vec<_> = self.0.keys().filter(|path| !paths.0.contains(*path)).cloned().collect();
        for path in gone {
            self.0.remove(&path);
            batch.events.push(Event::Delete(Kind::Secret, object_of(&path)));
            batch.findings.push(FileFindings { file: Arc::new(path), diagnostics: Vec::new() });
        }
        for path in &paths.0 {
            let (found, secret) = match Content::read(path) {
                Ok(content) => (Found::Content(content.digest()), Some(content)),
                Err(error) => (Found::Nothing(error.to_string()), None),
            };
            if self.0.get(path) == Some(&found) {
                continue;
            }
            batch.events.push(match secret {
                Some(content) => Event::Apply(Object::Secret(content.into_secret(path))),
                None => Event::Delete(Kind::Secret, object_of(path)),
            });
            batch.findings.push(findings(path, &found));
            self.0.insert(path.clone(), found);
        }
        batch
    }

    /// Sends what changes, until the receiver is dropped.
    pub async fn run(mut self, mut paths: watch::Receiver<MeshPaths>, batches: mpsc::Sender<Batch>) {
        loop {
            let now = paths.borrow_and_update().clone();
            let batch = self.look(&now);
            if !batch.events.is_empty() && batches.send(batch).await.is_err() {
                return;
            }
            // Without paths there is nothing to look at until there are some.
            let changed = match now.0.is_empty() {
                true => paths.changed().await,
                false => tokio::time::timeout(INTERVAL, paths.changed()).await.unwrap_or(Ok(())),
            };
            if changed.is_err() {
                return;
            }
        }
    }
}

fn findings(path: &Path, found: &Found) -> FileFindings {
    let file = Arc::new(path.to_owned());
    let diagnostics = match found {
        Found::Content(_) => Vec::new(),
        Found::Nothing(why) => vec![Diagnostic {
            severity: Severity::Error,
            file: Some(file.clone()),
            object: None,
            field: String::new(),
            reason: "Unreadable",
            message: format!("the certificates of the mesh there cannot be read: {why}"),
        }],
    };
    FileFindings { file, diagnostics }
}

type Bytes = Zeroizing<Vec<u8>>;

/// The files of one path.
#[derive(Default)]
struct Content {
    certificates: Option<Bytes>,
    key: Option<Bytes>,
    roots: Option<Bytes>,
    revocations: Option<Bytes>,
}

impl Content {
    fn read(path: &Path) -> io::Result<Self> {
        if !fs::metadata(path)?.is_dir() {
            return Ok(Self { roots: read(path)?, ..Self::default() });
        }
        let first = |names: [&str; 2]| {
            let mut found = Ok(None);
            for name in names {
                if let Ok(None) = found {
                    found = read(&path.join(name));
                }
            }
            found
        };
        let content = Self {
            certificates: first(["tls.crt", "cert-chain.pem"])?,
            key: first(["tls.key", "key.pem"])?,
            roots: first(["root-cert.pem", "ca.crt"])?,
            revocations: first(["ca-crl.pem", "ca.crl"])?,
        };
        let empty = content.files().all(Option::is_none);
        match empty {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "the folder holds no certificates")),
            false => Ok(content),
        }
    }

    fn files(&self) -> impl Iterator<Item = &Option<Bytes>> {
        [&self.certificates, &self.key, &self.roots, &self.revocations].into_iter()
    }

    fn digest(&self) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        for file in self.files() {
            let length = file.as_ref().map_or(u64::MAX, |file| file.len() as u64);
            context.update(&length.to_be_bytes());
            context.update(file.as_ref().map_or(&[], |file| file));
        }
        context.finish().as_ref().try_into().unwrap_or_default()
    }

    fn into_secret(self, path: &Path) -> Secret {
        let half = self.certificates.is_some() || self.key.is_some();
        let pair = half.then(|| {
            let (certificates, key) = (self.certificates.unwrap_or_default(), self.key.unwrap_or_default());
            KeyPair::parse(&certificates, &key).map(Arc::new)
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into();
        let authorities = self.roots.map(|roots| {
            let revocations = text(&self.revocations.unwrap_or_default());
            Arc::new(Authorities { roots: text(&roots), revocations })
        });
        let (labels, annotations) = (BTreeMap::new(), BTreeMap::new());
        let metadata = Metadata { name: object_of(path), created: None, labels, annotations };
        let (kind, origin) = ("kubernetes.io/tls".into(), SecretOrigin::Object);
        let fields = PairFields::default();
        let (ticket_keys, client_ca, users) = (None, None, None);
        Secret { metadata, kind, origin, pair, fields, ticket_keys, authorities, client_ca, users }
    }
}

/// The bytes of a file; `None` where there is no such file.
fn read(path: &Path) -> io::Result<Option<Bytes>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > LARGEST => {
            Err(io::Error::new(io::ErrorKind::FileTooLarge, "a file is larger than 1 MiB"))
        }
        Ok(_) => fs::read(path).map(|bytes| Some(Zeroizing::new(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::certificates::Authority;

    fn paths(path: &Path) -> MeshPaths {
        MeshPaths([path.to_owned()].into())
    }

    fn secret(batch: &Batch) -> &Secret {
        match &batch.events[..] {
            [Event::Apply(Object::Secret(secret))] => secret,
            events => panic!("{events:?}"),
        }
    }

    #[test]
    fn a_folder_is_told_about_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = paths(folder.path());
        let mut files = MeshFiles::default();
        let first = files.look(&path);
        assert!(matches!(first.events[..], [Event::Delete(Kind::Secret, _)]));
        assert_eq!(first.findings[0].diagnostics[0].reason, "Unreadable");
        assert!(files.look(&path).events.is_empty());

        let authority = Authority::new("mesh");
        let pair = authority.leaf(&["gateway.test"]).issue();
        fs::write(folder.path().join("cert-chain.pem"), pair.certificates_pem()).unwrap();
        fs::write(folder.path().join("root-cert.pem"), authority.pem()).unwrap();
        assert!(matches!(secret(&files.look(&path)).pair, Some(Err(_))), "the key is missing");
        fs::write(folder.path().join("key.pem"), &pair.key_pem).unwrap();
        let whole = files.look(&path);
        assert!(whole.findings[0].diagnostics.is_empty());
        let secret = secret(&whole);
        assert!(matches!(secret.pair, Some(Ok(_))));
        assert_eq!(&*secret.authorities.as_ref().unwrap().roots, authority.pem());
        assert_eq!(secret.metadata.name, object_of(folder.path()));
        assert!(files.look(&path).events.is_empty());

        let none = files.look(&MeshPaths::default());
        assert!(matches!(none.events[..], [Event::Delete(Kind::Secret, _)]));
    }

    #[test]
    fn a_file_is_roots() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roots.pem");
        fs::write(&file, Authority::new("mesh").pem()).unwrap();
        let batch = MeshFiles::default().look(&paths(&file));
        assert!(secret(&batch).pair.is_none());
        assert!(secret(&batch).authorities.as_ref().unwrap().roots.contains("BEGIN CERTIFICATE"));
    }
}
