//! Certificates in use that cannot be compiled from the objects there are: those of Secrets that broke, went or were
//! replaced by worse ones since. A successor starts with them as the outcome of before, and falls back on them just as
//! its predecessor did.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Compiled;
use crate::names::HostPattern;
use crate::snapshot::certificates::{Binding, HostCertificates};
use crate::store::Store;
use crate::store::objects::ObjectName;

/// By host; `Any` is for the default certificate.
pub(super) type HandedOn = BTreeMap<HostPattern, Arc<HostCertificates>>;

impl Compiled {
    /// What `host` is served with and could not have from the objects in `store`; `Any` stands for the default.
    pub fn last_good(&self, store: &Store, host: &HostPattern) -> Vec<Binding> {
        let certificates = &self.snapshot.certificates;
        let served = match host {
            HostPattern::Any => Some(&certificates.default),
            host => certificates.get(host),
        };
        let bindings = served.into_iter().flat_map(|served| served.iter());
        bindings.filter(|binding| !self.is_in(store, host, binding)).cloned().collect()
    }

    fn is_in(&self, store: &Store, host: &HostPattern, binding: &Binding) -> bool {
        let Some(secret) = &binding.certificate.secret else { return true };
        let names = |ingress: &ObjectName| {
            let mut entries = store.ingress(ingress).into_iter().flat_map(|ingress| &ingress.tls);
            entries.any(|entry| entry.secret.name() == Some(&*secret.name))
        };
        let is_named = match (&binding.ingress, host) {
            (Some(ingress), _) => names(ingress),
            (None, HostPattern::Any) => {
                self.snapshot.settings.default_ssl_certificate.as_ref() == Some(secret)
            }
            (None, _) => true,
        };
        let pair = store.secret(secret).and_then(|secret| secret.pair.as_ref()?.as_ref().ok());
        is_named && pair.is_some_and(|pair| pair.digest == binding.certificate.pair.digest)
    }

    /// Has the first compile go by what a generation before this one served to `host`.
    pub fn hand_on(&mut self, host: HostPattern, bindings: Vec<Binding>) {
        let mut bindings = bindings.into_iter();
        if let Some(first) = bindings.next() {
            self.handed_on.insert(host, Arc::new(HostCertificates::new(first, bindings)));
        }
    }
}
