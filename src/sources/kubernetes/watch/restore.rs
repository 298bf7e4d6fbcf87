//! What a watch does with the state directory: it keeps there what it passes on, and where the API server does
//! not answer at the start it passes on what was kept, until the first list says what differs by now.

use std::time::Duration;

use super::{Found, Need, Node, Watch, version_of};
use crate::clock::now;
use crate::sources::kubernetes::keeper::TargetKeeper;
use crate::sources::kubernetes::kept::Loaded;

/// How long the first list may take where there is something to serve without it.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long the first list may take.
pub(super) fn patience(keeper: Option<&TargetKeeper>) -> Option<Duration> {
    keeper.filter(|keeper| keeper.can_restore()).map(|_| PATIENCE)
}

impl Watch {
    /// Keeps what was found.
    pub(super) async fn keep(&self, found: &mut Found) {
        if let Some(keeper) = &self.keeper {
            keeper.objects(std::mem::take(&mut found.kept)).await;
        }
    }

    /// Notes that what is kept is what the server has at `version`; the first time, that there is nothing else.
    pub(super) async fn confirm(&mut self, version: &str) {
        let Some(keeper) = &self.keeper else { return };
        match &self.target.object {
            _ if self.pruned => {}
            None => keeper.only(self.known.keys().cloned().collect()).await,
            Some(name) if !self.known.contains_key(name) => keeper.objects(vec![(name.clone(), None)]).await,
            Some(_) => {}
        }
        self.pruned = true;
        keeper.confirmed(version).await;
    }

    /// Passes on what was kept, once, where nothing was listed yet. That counts as listed. Of an object that is
    /// followed by name, and of a kind that there may have been no right to see, it counts also that none was kept, if
    /// other objects come from the disk.
    pub(super) async fn restore(&mut self) {
        if self.state.synced || self.state.stale_since.is_some() {
            return;
        }
        let Some(keeper) = &self.keeper else { return };
        let Some(loaded) = keeper.restore(self.target.object.clone()).await else {
            if self.target.need == Need::Optional && self.hub.is_restored() {
                self.pass_on(Found::default(), None).await;
            }
            return;
        };
        if self.target.object.is_some() && loaded.objects.is_empty() && !self.hub.is_restored() {
            return;
        }
        let Loaded { label, objects, mut unreadable } = loaded;
        let mut found = Found::default();
        for text in &objects {
            let node = serde_json::from_slice::<Node<'_>>(text).ok();
            // Other namespaces may have been selected then.
            if node.as_ref().is_some_and(|node| !self.is_wanted(node)) {
                continue;
            }
            let decoded = node.and_then(|mut node| {
                let object = (self.decode(&mut found, &node)?, version_of(&node).into());
                node.wipe();
                Some(object)
            });
            match decoded {
                Some((name, version)) => drop(self.known.insert(name, version)),
                None => unreadable += 1,
            }
        }
        // It lies there already.
        found.kept.clear();
        // A server whose data is older than this has been restored from a backup.
        self.saw(&label.version);
        if unreadable > 0 {
            tracing::warn!(what = %self.target.name, files = unreadable, "kept objects that cannot be read are passed over");
        }
        tracing::warn!(
            what = %self.target.name,
            objects = self.known.len(),
            "the API server does not answer: objects are served as they were kept on disk"
        );
        self.pass_on(found, Some(label.confirmed)).await;
    }

    async fn pass_on(&mut self, found: Found, confirmed: Option<i64>) {
        self.state.stale_since = confirmed.or(Some(now()));
        self.select();
        match self.target.object {
            Some(_) => self.hub.listed(self.id),
            None => self.hub.restored(self.id),
        }
        self.send(found, true).await;
    }
}
