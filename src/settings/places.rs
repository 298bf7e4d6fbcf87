//! Settings that say where certificates are: in an object, or in files of this machine.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::field::Unit;
use super::value::Scalar;
use crate::names::object::ObjectName;

/// Where root certificates and revocation lists are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustPlace {
    ConfigMap(ObjectName),
    Secret(ObjectName),
    /// A PEM file, or a folder with `root-cert.pem` or `ca.crt`, and `ca-crl.pem` or `ca.crl` where there are lists.
    Path(PathBuf),
}

/// Where a certificate and its private key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairPlace {
    Secret(ObjectName),
    /// A folder with `tls.crt` and `tls.key`, or with `cert-chain.pem` and `key.pem`.
    Path(PathBuf),
}

/// As `portcullis ca` and istiod call it.
const LISTS: &str = "istio-ca-crl";

const CONFIG_MAP: &str = "configmap:";
const SECRET: &str = "secret:";

impl TrustPlace {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::ConfigMap(_) | Self::Secret(_) => None,
        }
    }

    /// The ConfigMap in which a CA of the mesh writes its revocation lists, where that of the roots is one: they are not
    /// in the same.
    pub fn lists(&self) -> Option<ObjectName> {
        match self {
            Self::ConfigMap(roots) => Some(ObjectName::new(roots.namespace.clone(), LISTS)),
            Self::Secret(_) | Self::Path(_) => None,
        }
    }

    /// The name of the object; what files hold is known by their path, in no namespace.
    pub fn object(&self) -> ObjectName {
        match self {
            Self::ConfigMap(name) | Self::Secret(name) => name.clone(),
            Self::Path(path) => object_of(path),
        }
    }
}

impl PairPlace {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Secret(_) => None,
        }
    }

    /// As [`TrustPlace::object`].
    pub fn object(&self) -> ObjectName {
        match self {
            Self::Secret(name) => name.clone(),
            Self::Path(path) => object_of(path),
        }
    }
}

/// The name that what is read from `path` goes by. No object of an API has one like it.
pub fn object_of(path: &Path) -> ObjectName {
    ObjectName::new("", path.to_string_lossy())
}

fn absolute(text: &str) -> Option<PathBuf> {
    text.starts_with('/').then(|| text.into())
}

impl Scalar for TrustPlace {
    fn read(text: &str, unit: Unit) -> Option<Self> {
        if let Some(path) = absolute(text) {
            return Some(Self::Path(path));
        }
        match text.strip_prefix(SECRET) {
            Some(name) => ObjectName::read(name, unit).map(Self::Secret),
            None => {
                ObjectName::read(text.strip_prefix(CONFIG_MAP).unwrap_or(text), unit).map(Self::ConfigMap)
            }
        }
    }

    fn write(&self, _: Unit) -> Json {
        match self {
            Self::ConfigMap(name) => Json::from(name.to_string()),
            Self::Secret(name) => Json::from(format!("{SECRET}{name}")),
            Self::Path(path) => Json::from(path.to_string_lossy()),
        }
    }

    fn expected(_: Unit) -> String {
        "a ConfigMap such as namespace/name, a Secret such as secret:namespace/name, or an absolute path"
            .into()
    }
}

impl Scalar for PairPlace {
    fn read(text: &str, unit: Unit) -> Option<Self> {
        if let Some(path) = absolute(text) {
            return Some(Self::Path(path));
        }
        ObjectName::read(text.strip_prefix(SECRET).unwrap_or(text), unit).map(Self::Secret)
    }

    fn write(&self, _: Unit) -> Json {
        match self {
            Self::Secret(name) => Json::from(name.to_string()),
            Self::Path(path) => Json::from(path.to_string_lossy()),
        }
    }

    fn expected(_: Unit) -> String {
        "a Secret such as namespace/name, or an absolute path".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_and_written_as_they_are_read() {
        let name = ObjectName::new("mesh", "roots");
        for (text, place) in [
            ("mesh/roots", Some(TrustPlace::ConfigMap(name.clone()))),
            ("configmap:mesh/roots", Some(TrustPlace::ConfigMap(name.clone()))),
            ("secret:mesh/roots", Some(TrustPlace::Secret(name.clone()))),
            ("/etc/mesh", Some(TrustPlace::Path("/etc/mesh".into()))),
            ("etc/mesh/roots", None),
            ("secret:/etc/mesh", None),
            ("roots", None),
        ] {
            assert_eq!(TrustPlace::read(text, Unit::None), place, "{text}");
            if let Some(place) = place {
                let written = place.write(Unit::None);
                assert_eq!(TrustPlace::read(written.as_str().unwrap(), Unit::None), Some(place));
            }
        }
        assert_eq!(PairPlace::read("mesh/roots", Unit::None), Some(PairPlace::Secret(name.clone())));
        assert_eq!(PairPlace::read("secret:mesh/roots", Unit::None), Some(PairPlace::Secret(name)));
        assert_eq!(PairPlace::read("/tls", Unit::None), Some(PairPlace::Path("/tls".into())));
        assert_eq!(PairPlace::read("configmap:mesh/roots", Unit::None), None);
    }
}
