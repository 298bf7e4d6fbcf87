//! Objects that an Ingress or a setting names and that are in no watch of a whole kind: Secrets of other types than
//! `kubernetes.io/tls`, and ConfigMaps. Each is followed by name, also if it does not exist yet, for as long as it
//! is named.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::hub::{Found, Hub};
use super::keeper::Keeper;
use super::target::{Target, named_shelf};
use super::watch::Watch;
use super::{Api, Resource, follows_mesh};
use crate::diagnostics::ObjectRef;
use crate::settings::Settings;
use crate::settings::places::{PairPlace, TrustPlace};
use crate::sources::ObjectFindings;
use crate::store::Event;
use crate::store::objects::{Ingress, Kind, Object, ObjectName};

/// Objects followed by name at once, each on a connection of its own; of more, those that settings name and then
/// the first by name are.
const MOST: usize = 256;
/// What changes shortly after another change is looked at together with it.
const PAUSE: Duration = Duration::from_millis(20);

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
                self.set(ingress.metadata.name.clone(), secrets_of(ingress))
            }
            Event::Delete(Kind::Ingress, name) => self.set(name.clone(), BTreeSet::new()),
            Event::Apply(Object::Secret(secret)) => {
                let name = secret.metadata.name.clone();
                self.missing.remove(&(Kind::Secret, name.clone()));
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

    /// Those that settings name first.
    pub fn missing(&self) -> Vec<Reference> {
        let (first, others): (Vec<_>, Vec<_>) =
            self.missing.iter().cloned().partition(|reference| self.by_settings.contains(reference));
        [first, others].concat()
    }

    pub fn is_watched(&self, (kind, name): &Reference) -> bool {
        *kind == Kind::Secret && self.watched.contains(name)
    }
}

fn secrets_of(ingress: &Ingress) -> BTreeSet<ObjectName> {
    let secrets = ingress.tls.iter().filter_map(|tls| tls.secret.as_deref());
    secrets.map(|secret| ObjectName::new(ingress.metadata.name.namespace.clone(), secret)).collect()
}

/// What settings name: it is followed wherever it is.
fn named_by(settings: &Settings) -> BTreeSet<Reference> {
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

/// Follows the missing objects by name, until it is dropped.
pub(super) async fn follow(
    api: &Api,
    hub: &Rc<Hub>,
    mut settings: Receiver<Arc<Settings>>,
    keeper: Option<&Keeper>,
) {
    let first = hub.register();
    let mut watches = Watches { api, hub, keeper, tasks: JoinSet::new(), by_name: HashMap::new() };
    let mut listed = false;
    let mut announced = false;
    loop {
        hub.set_named_by_settings(named_by(&settings.borrow_and_update()));
        // Until all TLS Secrets are known, nobody can tell which of the others are missing.
        let newly = !listed && hub.all_listed_but(first);
        listed |= newly;
        watches.reconcile(listed).await;
        if newly {
            watches.forget_others().await;
            hub.listed(first);
        }
        if hub.is_synced() && !std::mem::replace(&mut announced, true) {
            hub.send_named(Found::default(), None).await;
        }
        tokio::select! {
            () = hub.changed() => {}
            changed = settings.changed() => if changed.is_err() { return },
        }
        if announced {
            sleep(PAUSE).await;
        }
    }
}

struct Watches<'a> {
    api: &'a Api,
    hub: &'a Rc<Hub>,
    keeper: Option<&'a Keeper>,
    tasks: JoinSet<()>,
    by_name: HashMap<Reference, (AbortHandle, Arc<str>)>,
}

impl Watches<'_> {
    /// Starts and ends watches; those of Secrets only where they are `listed`.
    async fn reconcile(&mut self, listed: bool) {
        let mut wanted = self.hub.missing();
        wanted.retain(|(kind, _)| listed || *kind != Kind::Secret);
        if wanted.len() > MOST {
            tracing::warn!(
                missing = wanted.len(),
                "too many objects to follow by name; the first {MOST} are"
            );
            wanted.truncate(MOST);
        }
        let wanted: BTreeSet<_> = wanted.into_iter().collect();
        let stale: Vec<_> = self.by_name.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for reference in stale {
            self.stop(reference).await;
        }
        for reference in wanted {
            if self.by_name.contains_key(&reference) {
                continue;
            }
            let Some(resource) = Resource::of(reference.0) else { continue };
            let target = Target::one(resource, &reference.1);
            let name = target.name.clone();
            let watch = Watch::of_one(self.api.clone(), target, self.hub.clone(), self.keeper);
            self.by_name.insert(reference, (self.tasks.spawn_local(watch.run()), name));
        }
        // The ended ones, which were stopped above.
        while self.tasks.try_join_next().is_some() {}
    }

    /// Forgets what was kept of objects that nobody has named since the last start.
    async fn forget_others(&self) {
        let Some(keeper) = self.keeper else { return };
        for resource in [Kind::Secret, Kind::ConfigMap].into_iter().filter_map(Resource::of) {
            let names = self.by_name.keys().filter(|(kind, _)| *kind == resource.kind);
            let names = names.map(|(_, name)| name.clone()).collect();
            keeper.of(named_shelf(resource)).only(names).await;
        }
    }

    /// Ends the watch of an object that is no longer named, or that has become part of another watch.
    async fn stop(&mut self, reference: Reference) {
        let Some((task, watch)) = self.by_name.remove(&reference) else { return };
        task.abort();
        if let (Some(keeper), Some(resource)) = (self.keeper, Resource::of(reference.0)) {
            keeper.of(named_shelf(resource)).objects(vec![(reference.1.clone(), None)]).await;
        }
        let mut found = Found::default();
        if !self.hub.is_watched(&reference) {
            let (kind, name) = reference;
            let about = ObjectRef::new(kind, &name);
            found.events.push(Event::Delete(kind, name));
            found.findings.push(ObjectFindings { about, diagnostics: Vec::new() });
        }
        self.hub.send_end(found, watch).await;
    }
}
