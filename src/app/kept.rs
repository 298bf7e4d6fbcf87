//! Certificates in use that only this generation has, on their way to the next one: as soon as there are others than
//! before, the supervisor gets them, so that they outlive a crash as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::compile::Compiled;
use crate::names::HostPattern;
use crate::snapshot::certificates::{Binding, Certificate};
use crate::store::Store;
use crate::store::objects::ObjectName;
use crate::supervisor::keepsake::Keepsake;
use crate::supervisor::link::Link;
use crate::tls::keys::KeyPair;

/// What the next generation would need.
#[derive(Default)]
pub(super) struct Kept {
    by_host: BTreeMap<HostPattern, Vec<Binding>>,
    /// The supervisor has what is in `by_host`.
    left: bool,
}

/// One certificate of one host, as it is written down. No field that is here is ever given another meaning.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// Empty for the default certificate.
    host: String,
    secret: (String, String),
    ingress: Option<(String, String)>,
    missing_since: Option<i64>,
    /// Chain and key.
    pem: Pem,
}

/// Wiped when it is dropped.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Pem(String);

impl Drop for Pem {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Kept {
    /// What the generation before has left, or nothing.
    pub fn from_predecessor(link: &Link) -> Self {
        let Some(keepsake) = link.keepsake() else { return Self::default() };
        let entries = keepsake.read().ok().and_then(|text| serde_json::from_slice::<Vec<Entry>>(&text).ok());
        let Some(entries) = entries else {
            tracing::warn!("what the generation before has left cannot be read");
            return Self::default();
        };
        let mut by_host: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut certificates = BTreeMap::new();
        for entry in entries {
            if let Some((host, binding)) = entry.into_binding(&mut certificates) {
                by_host.entry(host).or_default().push(binding);
            }
        }
        Self { by_host, left: true }
    }

    /// Has the first compile go by it.
    pub fn hand_to(&self, compiled: &mut Compiled) {
        for (host, bindings) in &self.by_host {
            compiled.hand_on(host.clone(), bindings.clone());
        }
    }

    /// Looks at `hosts` again, after a compile that can have changed what they have or where it is from.
    pub fn update<'a>(
        &mut self,
        compiled: &Compiled,
        store: &Store,
        hosts: impl Iterator<Item = &'a HostPattern>,
    ) {
        for host in hosts {
            let now = compiled.last_good(store, host);
            let before = self.by_host.get(host).map_or(&[][..], |before| before);
            let same = before.len() == now.len() && before.iter().zip(&now).all(|(a, b)| a.is_same(b));
            if same {
                continue;
            }
            self.left = false;
            match now.is_empty() {
                true => drop(self.by_host.remove(host)),
                false => drop(self.by_host.insert(host.clone(), now)),
            }
        }
    }

    /// The hosts with such a certificate.
    pub fn hosts(&self) -> impl Iterator<Item = &HostPattern> {
        self.by_host.keys()
    }

    /// Leaves it with the supervisor, unless that has it. Tried again with the next change where it fails.
    pub fn leave(&mut self, link: &Link) {
        if self.left {
            return;
        }
        let entries: Vec<_> = self
            .by_host
            .iter()
            .flat_map(|(host, bindings)| bindings.iter().filter_map(|binding| Entry::new(host, binding)))
            .collect();
        let left = serde_json::to_vec(&entries).map(Zeroizing::new).map_err(std::io::Error::from);
        match left.and_then(|text| Keepsake::of(&text)) {
            Ok(keepsake) => self.left = link.leave(&keepsake),
            Err(error) => tracing::warn!(%error, "certificates in use cannot be left to the next generation"),
        }
    }
}

impl Entry {
    fn new(host: &HostPattern, binding: &Binding) -> Option<Self> {
        let pair = |name: &ObjectName| (name.namespace.to_string(), name.name.to_string());
        Some(Self {
            host: if *host == HostPattern::Any { String::new() } else { host.to_string() },
            secret: binding.certificate.secret.as_ref().map(pair)?,
            ingress: binding.ingress.as_ref().map(pair),
            missing_since: binding.missing_since,
            pem: Pem(binding.certificate.pair.to_pem()),
        })
    }

    /// Hosts with the same certificate share it, as they do where it is compiled.
    fn into_binding(
        self,
        known: &mut BTreeMap<(ObjectName, [u8; 32]), Arc<Certificate>>,
    ) -> Option<(HostPattern, Binding)> {
        let name = |(namespace, name): &(String, String)| ObjectName::new(&**namespace, &**name);
        let host = HostPattern::parse(&self.host).ok()?;
        let pair = KeyPair::parse(self.pem.0.as_bytes(), self.pem.0.as_bytes()).ok()?;
        let secret = name(&self.secret);
        let certificate = known.entry((secret.clone(), pair.digest));
        let certificate = certificate
            .or_insert_with(|| {
                Arc::new(Certificate {
                    pair: Arc::new(pair),
                    secret: Some(secret),
                    handshakes: Arc::default(),
                })
            })
            .clone();
        let ingress = self.ingress.as_ref().map(name);
        Some((host, Binding { certificate, ingress, missing_since: self.missing_since }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::certificates::Authority;

    #[test]
    fn a_binding_arrives_as_it_was_left() {
        let pair = Arc::new(Authority::new("test").pair(&["*.a.test"]));
        let secret = Some(ObjectName::new("default", "a"));
        let certificate = Arc::new(Certificate { pair: pair.clone(), secret, handshakes: Arc::default() });
        let ingress = Some(ObjectName::new("default", "web"));
        let binding = Binding { certificate, ingress, missing_since: Some(7) };
        for host in ["*.a.test", "x.a.test", ""].map(|host| HostPattern::parse(host).unwrap()) {
            let text = serde_json::to_string(&Entry::new(&host, &binding).unwrap()).unwrap();
            let entry: Entry = serde_json::from_str(&text).unwrap();
            let (arrived_host, arrived) = entry.into_binding(&mut BTreeMap::new()).unwrap();
            assert_eq!(arrived_host, host);
            assert_eq!(arrived.certificate.pair.digest, pair.digest);
            assert_eq!(arrived.certificate.secret, binding.certificate.secret);
            assert_eq!((arrived.ingress, arrived.missing_since), (binding.ingress.clone(), Some(7)));
        }
    }
}
