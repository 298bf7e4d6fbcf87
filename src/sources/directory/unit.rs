//! Which files of a folder make objects: a manifest by itself, or a certificate and its key together.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// The files that are read together, named by the one that sorts and reports for them.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The manifest, or the certificate of a pair.
    pub path: PathBuf,
    /// The private key of a pair.
    pub key: Option<PathBuf>,
}

/// By the bytes of its paths, which is what they are made of here; comparing and hashing them component by
/// component would take a good part of a start with thousands of files.
impl Unit {
    fn bytes(&self) -> (&[u8], Option<&[u8]>) {
        let key = self.key.as_ref().map(|key| key.as_os_str().as_encoded_bytes());
        (self.path.as_os_str().as_encoded_bytes(), key)
    }
}

impl PartialEq for Unit {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Unit {}

impl PartialOrd for Unit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Unit {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes().cmp(&other.bytes())
    }
}

impl Hash for Unit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl Unit {
    /// The unit that the file `path` belongs to; `None` for files that are not read.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        if is_hidden(path) {
            return None;
        }
        let pair = |certificate: &str, key: &str| {
            Some(Self { path: path.with_file_name(certificate), key: Some(path.with_file_name(key)) })
        };
        match name.rsplit_once('.')? {
            (_, "yaml" | "yml" | "json") => Some(Self { path: path.to_owned(), key: None }),
            ("fullchain" | "privkey", "pem") => pair("fullchain.pem", "privkey.pem"),
            // The issuer's certificate beside a pair, as in a mounted Secret.
            ("ca", "crt") => None,
            (stem, "crt" | "key") => pair(&format!("{stem}.crt"), &format!("{stem}.key")),
            _ => None,
        }
    }

    /// The Secret name of a pair: its folder for `tls.crt` and `fullchain.pem`, else its own name, made a
    /// lower-case RFC 1123 name.
    pub fn secret_name(&self) -> String {
        let stem = self.path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        // Absolute, as `.` has a name as well.
        let path = std::path::absolute(&self.path).unwrap_or_default();
        let folder = path.parent().and_then(|parent| parent.file_name()).and_then(OsStr::to_str);
        let name = match stem {
            "tls" | "fullchain" => folder.unwrap_or(stem),
            _ => stem,
        };
        let plain = |char: char| match char.to_ascii_lowercase() {
            char if char.is_ascii_alphanumeric() || char == '-' || char == '.' => char,
            _ => '-',
        };
        let name: String = name.chars().map(plain).take(253).collect();
        let parts = name.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty());
        match parts.collect::<Vec<_>>().join(".") {
            name if name.is_empty() => stem.to_owned(),
            name => name,
        }
    }

    /// The files it is made of.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&*self.path).chain(self.key.as_deref())
    }
}

/// Dot files, editors' swap files and the timestamped folders of a mounted volume among them.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}
