//! Which files of a folder make objects: a manifest by itself, or a certificate and its key together.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::store::objects::PairFields;
use crate::tls::keys::Part;

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
            // The issuer's certificate beside a pair, as in a mounted Secret, or a private CA: nothing to serve.
            ("ca", "crt" | "key") => None,
            (stem, "crt" | "key") => pair(&format!("{stem}.crt"), &format!("{stem}.key")),
            _ => None,
        }
    }

    /// The Secret name of a pair: its folder for `tls.crt` and `fullchain.pem`, else its own name, made a
    /// lower-case RFC 1123 name. A wildcard, `_.` or `*.` in front, keeps a name apart from that of its parent.
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
        let label = |(at, label): (usize, &str)| match label {
            "_" | "*" if at == 0 => "wildcard".to_owned(),
            _ => label.chars().map(plain).collect::<String>().trim_matches('-').to_owned(),
        };
        let labels = name.split('.').enumerate().map(label).filter(|label| !label.is_empty());
        match labels.collect::<Vec<_>>().join(".") {
            name if name.is_empty() => stem.to_owned(),
            name => name.chars().take(253).collect(),
        }
    }

    /// The file that `field` of the pair's Secret is read from.
    pub fn file_of(&self, field: &str) -> &Path {
        match &self.key {
            Some(key) if field == PairFields::default().of(Part::Key) => key,
            _ => &self.path,
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

/// The link that is replaced when a mounted volume changes.
pub fn is_volume(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "..data")
}
