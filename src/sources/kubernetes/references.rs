//! Secrets that an Ingress or a setting names although they are not of the type that is watched as a whole
//! (`kubernetes.io/tls`): each is followed by name. So are names of Secrets that don't exist yet.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::hub::{Found, Hub};
use super::keeper::Keeper;
use super::watch::{Target, Watch, named_shelf};
use super::{Api, Resource};
use crate::diagnostics::ObjectRef;
use crate::sources::ObjectFindings;
use crate::store::Event;
use crate::store::objects::{Ingress, Kind, Object, ObjectName};

/// Secrets followed by name at once, each on a connection of its own; of more, the first by name are.
const MOST: usize = 256;
/// What changes shortly after another change is looked at together with it.
const PAUSE: Duration = Duration::from_millis(20);

/// Which Secrets are named, and which of them are missing.
#[derive(Default)]
pub(super) struct References {
    by_ingress: HashMap<ObjectName, BTreeSet<ObjectName>>,
    /// How many name it.
    uses: HashMap<ObjectName, usize>,
    watched: HashSet<ObjectName>,
    missing: BTreeSet<ObjectName>,
}

impl References {
    /// `secrets` are those that settings name.
    pub fn new(secrets: impl IntoIterator<Item = ObjectName>) -> Self {
        let mut references = Self::default();
        secrets.into_iter().for_each(|name| references.add(name));
        references
    }

    /// Takes events of whole kinds into account; `true` where other Secrets are missing now.
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
                self.missing.remove(&name);
                self.watched.insert(name)
            }
            Event::Delete(Kind::Secret, name) => {
                if self.watched.remove(name) && self.uses.contains_key(name) {
                    self.missing.insert(name.clone());
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
        secrets.into_iter().for_each(|secret| self.add(secret));
        old.iter().for_each(|secret| self.drop_use(secret));
        true
    }

    fn add(&mut self, secret: ObjectName) {
        if !self.watched.contains(&secret) {
            self.missing.insert(secret.clone());
        }
        *self.uses.entry(secret).or_default() += 1;
    }

    fn drop_use(&mut self, secret: &ObjectName) {
        let Some(uses) = self.uses.get_mut(secret) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(secret);
            self.missing.remove(secret);
        }
    }

    pub fn missing(&self) -> &BTreeSet<ObjectName> {
        &self.missing
    }

    pub fn is_watched(&self, secret: &ObjectName) -> bool {
        self.watched.contains(secret)
    }
}

fn secrets_of(ingress: &Ingress) -> BTreeSet<ObjectName> {
    let secrets = ingress.tls.iter().filter_map(|tls| tls.secret.as_deref());
    secrets.map(|secret| ObjectName::new(ingress.metadata.name.namespace.clone(), secret)).collect()
}

/// Follows the missing Secrets by name, until it is dropped.
pub(super) async fn follow(api: &Api, hub: &Rc<Hub>, secrets: &'static Resource, keeper: Option<&Keeper>) {
    let first = hub.register();
    while !hub.all_listed_but(first) {
        hub.changed().await;
    }
    let mut watches = Watches { api, hub, secrets, keeper, tasks: JoinSet::new(), by_name: HashMap::new() };
    watches.reconcile().await;
    if let Some(keeper) = keeper {
        // Those that nobody has named since the last start.
        keeper.of(named_shelf(secrets)).only(watches.by_name.keys().cloned().collect()).await;
    }
    hub.listed(first);
    hub.send_named(Found::default(), None).await;
    loop {
        hub.changed().await;
        sleep(PAUSE).await;
        watches.reconcile().await;
    }
}

struct Watches<'a> {
    api: &'a Api,
    hub: &'a Rc<Hub>,
    secrets: &'static Resource,
    keeper: Option<&'a Keeper>,
    tasks: JoinSet<()>,
    by_name: HashMap<ObjectName, AbortHandle>,
}

impl Watches<'_> {
    async fn reconcile(&mut self) {
        let missing = self.hub.missing();
        if missing.len() > MOST {
            tracing::warn!(
                missing = missing.len(),
                "too many Secrets to follow by name; the first {MOST} are"
            );
        }
        let wanted: BTreeSet<_> = missing.into_iter().take(MOST).collect();
        let stale: Vec<_> = self.by_name.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in stale {
            self.stop(name).await;
        }
        for name in wanted {
            if !self.by_name.contains_key(&name) {
                let target = Target::one(self.secrets, &name);
                let watch = Watch::of_one(self.api.clone(), target, self.hub.clone(), self.keeper);
                self.by_name.insert(name, self.tasks.spawn_local(watch.run()));
            }
        }
        // The ended ones, which were stopped above.
        while self.tasks.try_join_next().is_some() {}
    }

    /// Ends the watch of a Secret that is no longer named, or that has become part of the other watch.
    async fn stop(&mut self, name: ObjectName) {
        if let Some(task) = self.by_name.remove(&name) {
            task.abort();
        }
        if let Some(keeper) = self.keeper {
            keeper.of(named_shelf(self.secrets)).objects(vec![(name.clone(), None)]).await;
        }
        if !self.hub.is_watched(&name) {
            let about = ObjectRef::new(Kind::Secret, &name);
            let mut found = Found::default();
            found.events.push(Event::Delete(Kind::Secret, name));
            found.findings.push(ObjectFindings { about, diagnostics: Vec::new() });
            self.hub.send_named(found, None).await;
        }
    }
}
