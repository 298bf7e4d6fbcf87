//! Follows by name what is named and is in no watch of a whole kind, also if it does not exist yet, for as long as it
//! is named: what matters most by a watch of each object, and the rest by looking at it from time to time.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Resource;
use super::hub::Hub;
use super::keeper::Keeper;
use super::references::{Reference, named_by};
use super::rest::Rest;
use super::target::{Target, named_shelf};
use super::watch::Watch;
use crate::api_server::Api;
use crate::settings::Settings;
use crate::store::objects::Kind;

/// Objects watched by name at once, each on a connection of its own.
pub(super) const MOST: usize = 256;
/// What changes shortly after another change is looked at together with it.
const PAUSE: Duration = Duration::from_millis(20);

/// Follows the missing objects by name, until it is dropped.
pub(super) async fn follow(
    api: &Api,
    hub: &Rc<Hub>,
    mut settings: Receiver<Arc<Settings>>,
    keeper: Option<&Keeper>,
) {
    let first = hub.register();
    let mut named = Named { api, hub, keeper, watches: HashMap::new(), rest: Rest::new() };
    let mut listed = false;
    let mut announced = false;
    loop {
        hub.set_named_by_settings(named_by(&settings.borrow_and_update()));
        // Until all TLS Secrets are known, nobody can tell which of the others are missing.
        let newly = !listed && hub.all_listed_but(first);
        listed |= newly;
        named.reconcile(listed).await;
        if newly {
            named.forget_others().await;
            hub.listed(first);
        }
        if hub.is_synced() && !std::mem::replace(&mut announced, true) {
            hub.announce().await;
        }
        let pause = announced || !named.rest.is_empty();
        let mut changed = pin!(async {
            let alive = tokio::select! {
                () = hub.changed() => true,
                changed = settings.changed() => changed.is_ok(),
            };
            if pause {
                sleep(PAUSE).await;
            }
            alive
        });
        loop {
            tokio::select! {
                alive = &mut changed => match alive {
                    true => break,
                    false => return,
                },
                () = named.rest.turn() => {}
            }
        }
    }
}

struct Named<'a> {
    api: &'a Api,
    hub: &'a Rc<Hub>,
    keeper: Option<&'a Keeper>,
    /// One task for each object that is watched.
    watches: HashMap<Reference, JoinSet<()>>,
    rest: Rest,
}

impl Named<'_> {
    /// Starts and ends what looks at objects; at Secrets only where they are `listed`.
    async fn reconcile(&mut self, listed: bool) {
        let mut watched = self.hub.missing();
        watched.retain(|(kind, _)| listed || *kind != Kind::Secret);
        let rest: BTreeSet<_> = watched.split_off(MOST.min(watched.len())).into_iter().collect();
        let watched: BTreeSet<_> = watched.into_iter().collect();
        if !rest.is_empty() && self.rest.is_empty() {
            tracing::warn!(
                rest = rest.len(),
                "more objects are named than the {MOST} that are followed by name: the rest is looked at in turn"
            );
        }
        let taken_over = self.hub.take_taken_over();
        let stays = |wanted: &BTreeSet<Reference>, reference: &Reference| {
            wanted.contains(reference) && !taken_over.contains(reference)
        };
        let in_rest = self.rest.references();
        let is_new = |known: bool, reference: &Reference| !known || taken_over.contains(reference);
        // Before the others end, since what counts as listed waits for all that there are.
        let to_watch = watched.iter().filter(|it| is_new(self.watches.contains_key(*it), it));
        let to_watch: Vec<_> = to_watch.filter_map(|reference| self.new_watch(reference)).collect();
        let to_rest = rest.iter().filter(|it| is_new(in_rest.contains(*it), it));
        let to_rest: Vec<_> = to_rest.filter_map(|reference| self.new_watch(reference)).collect();
        let stale = self.watches.keys().filter(|reference| !stays(&watched, reference)).cloned();
        let mut ended: HashSet<_> = stale.collect();
        for reference in &ended {
            if let Some(mut task) = self.watches.remove(reference) {
                // What it is about to send comes before anything below, or never.
                task.shutdown().await;
            }
        }
        ended.extend(self.rest.retain(|reference| stays(&rest, reference)).await);
        for reference in ended {
            if taken_over.contains(&reference) || !(watched.contains(&reference) || rest.contains(&reference))
            {
                self.end(&reference).await;
            }
        }
        for (reference, mut watch) in to_watch {
            watch.assume(self.hub.is_found(&reference));
            let mut task = JoinSet::new();
            task.spawn_local(watch.run());
            self.watches.insert(reference, task);
        }
        for (reference, mut watch) in to_rest {
            watch.assume(self.hub.is_found(&reference));
            watch.set_late();
            self.rest.add(reference, watch);
        }
    }

    fn new_watch(&self, reference: &Reference) -> Option<(Reference, Watch)> {
        let target = Target::one(Resource::of(reference.0)?, &reference.1);
        Some((reference.clone(), Watch::new(self.api.clone(), target, self.hub.clone(), self.keeper)))
    }

    /// Forgets what was kept of objects that nobody has named since the last start.
    async fn forget_others(&self) {
        let Some(keeper) = self.keeper else { return };
        let named = self.hub.missing();
        for resource in [Kind::Secret, Kind::ConfigMap].into_iter().filter_map(Resource::of) {
            let names = named.iter().filter(|(kind, _)| *kind == resource.kind);
            let names = names.map(|(_, name)| name.clone()).collect();
            keeper.of(named_shelf(resource)).only(names).await;
        }
    }

    /// Says what becomes of an object that is no longer named, or that has become part of another watch.
    async fn end(&self, reference: &Reference) {
        let Some(resource) = Resource::of(reference.0) else { return };
        if let Some(keeper) = self.keeper {
            keeper.of(named_shelf(resource)).objects(vec![(reference.1.clone(), None)]).await;
        }
        self.hub.send_end(reference, Target::one(resource, &reference.1).name).await;
    }
}
