//! Objects that an Ingress or a setting names and that are in no watch of a whole kind: Secrets of other types than
//! `kubernetes.io/tls`, and ConfigMaps.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::follows_mesh;
use crate::settings::Settings;
use crate::settings::places::{PairPlace, TrustPlace};
use crate::store::objects::{Kind, Object, ObjectName};
use crate::store::{Event, ingress_secrets};

/// An object as something else names it.
pub(super) type Reference = (Kind, ObjectName);

/// Which objects are named, and which of them are in no watch of a whole kind.
#[derive(Default)]
pub(super) struct References {
    by_settings: BTreeSet<Reference>,
    by_ingress: HashMap<ObjectName, BTreeSet<ObjectName>>,
    /// How many name it.
    uses: HashMap<Reference, usize>,
    /// Secrets of the type that is watched as a whole.
    watched: HashSet<ObjectName>,
    missing: BTreeSet<Reference>,
    /// Those of the missing that were passed on when they were looked at by name last.
    found: HashSet<Reference>,
    /// Those that were missing until a watch of a whole kind had them.
    taken_over: HashSet<Reference>,
    /// The same, where what was said of them by name has not been taken back yet.
    unsaid: Vec<Reference>,
}

impl References {
    /// Takes note of what settings name.
    pub fn set_named_by_settings(&mut self, named: BTreeSet<Reference>) {
        let before = std::mem::replace(&mut self.by_settings, named.clone());
        named.into_iter().for_each(|reference| self.add(reference));
        before.iter().for_each(|reference| self.drop_use(reference));
    }

    /// Takes events of whole kinds into account; `true` where other objects may be missing now.
    pub fn observe(&mut self, events: &[Event]) -> bool {
        let before = self.missing.len();
        let mut changed = false;
        for event in events {
            changed |= self.observe_one(event);
        }
        changed || self.missing.len() != before
    }

    fn observe_one(&mut self, event: &Event) -> bool {
        match event {
            Event::Apply(Object::Ingress(ingress)) => {
                self.set(ingress.metadata.name.clone(), ingress_secrets(ingress))
            }
            Event::Delete(Kind::Ingress, name) => self.set(name.clone(), BTreeSet::new()),
            Event::Apply(Object::Secret(secret)) => {
                let name = secret.metadata.name.clone();
                let reference = (Kind::Secret, name.clone());
                if self.missing.remove(&reference) {
                    self.found.remove(&reference);
                    self.unsaid.push(reference.clone());
                    self.taken_over.insert(reference);
                }
                self.watched.insert(name)
            }
            Event::Delete(Kind::Secret, name) => {
                let reference = (Kind::Secret, name.clone());
                if self.watched.remove(name) && self.uses.contains_key(&reference) {
                    self.missing.insert(reference);
                }
                true
            }
            _ => false,
        }
    }

    fn set(&mut self, ingress: ObjectName, secrets: BTreeSet<ObjectName>) -> bool {
        let old = match secrets.is_empty() {
            true => self.by_ingress.remove(&ingress),
            false => self.by_ingress.insert(ingress, secrets.clone()),
        };
        let old = old.unwrap_or_default();
        if old == secrets {
            return false;
        }
        secrets.into_iter().for_each(|secret| self.add((Kind::Secret, secret)));
        old.into_iter().for_each(|secret| self.drop_use(&(Kind::Secret, secret)));
        true
    }

    fn add(&mut self, reference: Reference) {
        if !self.is_watched(&reference) {
            self.missing.insert(reference.clone());
        }
        *self.uses.entry(reference).or_default() += 1;
    }

    fn drop_use(&mut self, reference: &Reference) {
        let Some(uses) = self.uses.get_mut(reference) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(reference);
            self.missing.remove(reference);
        }
    }

    /// What is in no watch of a whole kind, by how much it matters that it is followed: what settings name, then what
    /// is known to exist, then the rest. Among equals namespaces take turns, so that one that names much takes
    /// nothing from the others.
    pub fn missing(&self) -> Vec<Reference> {
        let mut before = HashMap::<_, usize>::new();
        let rank = |reference: &Reference| {
            let minor = !self.by_settings.contains(reference);
            let class = (minor, minor && !self.found.contains(reference));
            let before = before.entry((class, reference.1.namespace.clone())).or_default();
            *before += 1;
            (class, *before)
        };
        let mut ranked: Vec<_> = self.missing.iter().map(rank).zip(self.missing.iter().cloned()).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, reference)| reference).collect()
    }

    /// Takes note of whether an object that is looked at by name is there; `true` where that is another answer than
    /// before.
    pub fn set_found(&mut self, reference: &Reference, found: bool) -> bool {
        match found {
            true => self.found.insert(reference.clone()),
            false => self.found.remove(reference),
        }
    }

    /// Whether an object that is looked at by name was passed on.
    pub fn is_found(&self, reference: &Reference) -> bool {
        self.found.contains(reference)
    }

    /// The references that a watch of a whole kind has had since this was asked last. What was seen of them by name
    /// counts no more, also if they are missing again.
    pub fn take_taken_over(&mut self) -> HashSet<Reference> {
        std::mem::take(&mut self.taken_over)
    }

    /// The references that a watch of a whole kind has had since this was asked last, which has to say anew what there is
    /// to say of them.
    pub fn take_unsaid(&mut self) -> Vec<Reference> {
        std::mem::take(&mut self.unsaid)
    }

    /// Whether it is a Secret of the type that is watched as a whole.
    pub fn is_watched(&self, (kind, name): &Reference) -> bool {
        *kind == Kind::Secret && self.watched.contains(name)
    }
}

/// What settings name: it is followed wherever it is.
pub(super) fn named_by(settings: &Settings) -> BTreeSet<Reference> {
    let mut named = BTreeSet::new();
    let mut add = |kind, name: Option<&ObjectName>| named.extend(name.map(|name| (kind, name.clone())));
    add(Kind::ConfigMap, settings.configmap.as_ref());
    add(Kind::Secret, settings.default_ssl_certificate.as_ref());
    add(Kind::Secret, settings.ssl_session_ticket_secret.as_ref());
    if let Some(PairPlace::Secret(name)) = &settings.hbone_certificate {
        add(Kind::Secret, Some(name));
    }
    match &settings.mesh_trust_bundle {
        _ if !follows_mesh(settings) => {}
        place @ TrustPlace::ConfigMap(name) => {
            add(Kind::ConfigMap, Some(name));
            add(Kind::ConfigMap, place.lists().as_ref());
        }
        TrustPlace::Secret(name) => add(Kind::Secret, Some(name)),
        TrustPlace::Path(_) => {}
    }
    named
}
