//! The one loop that follows a kind: list, then watch from the version of the list.
//!
//! ```text
//! list ──► watch ──► ended in order ──► version looked at ──► watch
//!  ▲         │                              │
//!  │         └─ expired, broken, hung ──┐   └─ older than before (etcd was restored)
//!  └──────────────── pause ◄────────────┴─────────────────┘
//! ```
//!
//! Whatever is not an ordinary end of a watch leads to a new list, since a server that comes back may have
//! other data than before. A list is compared with what is known: only what differs is decoded and passed on,
//! so that listing again costs little and never empties first.

mod restore;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep, timeout_at};

use super::Need;
use super::hub::{Found, Hub, WatchId};
use super::keeper::{Keeper, TargetKeeper};
use super::kept::text_of;
use super::named::MOST;
use super::target::Target;
use super::wire::{Line, Page, ingress_status, policy_status, status_of, version_of};
use crate::api_server::{Api, ApiError, Backoff, Lines, Status};
use crate::clock::now;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::sources::{ObjectFindings, WatchState};
use crate::store::Event;
use crate::store::objects::{Decoded, Findings, Kind, Node, Object, ObjectName};

/// Objects on a page of a list: what is in memory as text at once, while a list is read.
const PAGE: usize = 200;
/// How long the server lets a watch run, and at most as much again by chance. Short, because the end of a watch
/// is when we see that a silent one had nothing to say.
const WATCH: Duration = Duration::from_secs(45);
/// How much later than that a watch may end before the server counts as hung.
const GRACE: Duration = Duration::from_secs(5);
/// Events that are passed on together, where as many have arrived.
const BURST: usize = 500;

/// Follows one target.
pub(super) struct Watch {
    api: Api,
    target: Target,
    hub: Rc<Hub>,
    id: WatchId,
    /// Changes are noticed late, for want of a watch.
    late: bool,
    /// The namespaces that are selected, where that matters.
    selection: Receiver<Option<BTreeSet<Arc<str>>>>,
    /// What was passed on, with the version of each object.
    known: HashMap<ObjectName, Box<str>>,
    /// Objects that there is something to say about.
    faulty: HashSet<ObjectName>,
    /// The latest version seen, where it is a number.
    latest: Option<u64>,
    state: WatchState,
    /// Keeps what is passed on in the state directory.
    keeper: Option<TargetKeeper>,
    /// What was kept and is there no longer has been dropped.
    pruned: bool,
    /// How long the pages of the first list may take, where there is something to serve without it.
    patience: Option<Duration>,
}

impl Watch {
    pub fn new(api: Api, target: Target, hub: Rc<Hub>, keeper: Option<&Keeper>) -> Self {
        let id = hub.register();
        let (name, since) = (target.name.clone(), now());
        let state =
            WatchState { name, synced: false, absent: false, last_error: None, since, stale_since: None };
        let (known, faulty, selection) = (HashMap::new(), HashSet::new(), hub.selection());
        let keeper = keeper.map(|keeper| keeper.of(target.shelf()));
        let patience = restore::patience(keeper.as_ref());
        let (latest, late, pruned) = (None, false, false);
        Self { api, target, hub, id, late, selection, known, faulty, latest, state, keeper, pruned, patience }
    }

    /// Of a single object: whether another watch has passed it on before. It is passed on once more, or is seen to be
    /// gone.
    pub fn assume(&mut self, found: bool) {
        if found && let Some(name) = &self.target.object {
            self.known.insert(name.clone(), Box::default());
            self.faulty.insert(name.clone());
        }
    }

    /// It is looked at from time to time, in place of being watched.
    pub fn set_late(&mut self) {
        self.late = true;
    }

    /// Whether it has listed.
    pub fn is_listed(&self) -> bool {
        self.state.synced
    }

    /// Runs for as long as it is not dropped.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        if self.target.in_selected && self.selection.wait_for(Option::is_some).await.is_err() {
            return;
        }
        loop {
            let error = match self.list().await {
                Ok(version) => {
                    let Err(error) = self.watch(version, &mut backoff).await;
                    error
                }
                Err(error) => error,
            };
            let pause = backoff.next(&error);
            self.failed(&error).await;
            self.restore().await;
            sleep(pause).await;
        }
    }

    /// Looks once, without watching.
    ///
    /// # Errors
    /// Nothing could be seen; what was known stays, or what was kept is served.
    pub async fn look(&mut self) -> Result<(), ApiError> {
        match self.list().await {
            Ok(_) => {
                self.recovered().await;
                Ok(())
            }
            Err(error) => {
                self.failed(&error).await;
                self.restore().await;
                Err(error)
            }
        }
    }

    /// Looks only at what was kept, since the API server has just not answered.
    ///
    /// # Errors
    /// Always: what the API server has is still to be seen.
    pub async fn look_at_kept(&mut self) -> Result<(), ApiError> {
        self.restore().await;
        Err(ApiError::Timeout)
    }

    /// Reads everything and passes on what differs from what is known. The version to watch from. Where it fails, or
    /// is given up half-way, it is as if it had not been tried.
    async fn list(&mut self) -> Result<String, ApiError> {
        let deadline = self.patience.take().map(|patience| Instant::now() + patience);
        let not_found = match self.list_all(deadline).await {
            Err(error @ ApiError::Refused { code: 404, .. }) => error,
            other => return other,
        };
        match in_time(deadline, self.newest_version()).await? {
            None => Err(ApiError::Absent),
            Some(version) if version == self.target.api_version => Err(not_found),
            Some(version) => {
                self.target.api_version = version;
                self.list_all(deadline).await
            }
        }
    }

    async fn newest_version(&self) -> Result<Option<&'static str>, ApiError> {
        let resource = self.target.resource;
        self.api.first_version(resource.kind.api_versions(), resource.plural).await
    }

    /// The deadline is for what the API server has to send: what it has sent is taken as a whole.
    async fn list_all(&mut self, deadline: Option<Instant>) -> Result<String, ApiError> {
        // What changes from here on leads to another list.
        self.selection.mark_unchanged();
        let mut listing = Listing::default();
        let mut limit = PAGE;
        loop {
            let size = limit.to_string();
            let path = self.target.path(&[("limit", &size), ("continue", &listing.next)]);
            let text = match in_time(deadline, self.api.get(&path)).await {
                Err(ApiError::TooLarge) if limit > 1 => {
                    limit /= 2;
                    continue;
                }
                text => text?,
            };
            let page: Page = serde_json::from_slice(&text).map_err(|_| ApiError::Unreadable)?;
            let version = page.metadata.resource_version;
            if self.is_rewound(&version) {
                // The same version may stand for something else now.
                self.known.values_mut().for_each(|version| *version = Box::default());
                self.latest = None;
            }
            for mut object in page.items.unwrap_or_default() {
                self.take_listed(&mut listing, &object);
                object.wipe();
            }
            // Page by page, so that not all of them are in memory once more.
            self.keep(&mut listing.found).await;
            listing.next = page.metadata.next;
            if listing.next.is_empty() {
                self.finish(listing, &version).await;
                return Ok(version);
            }
        }
    }

    fn take_listed(&mut self, listing: &mut Listing, object: &Node<'_>) {
        if !self.is_wanted(object) {
            return;
        }
        let version = version_of(object);
        if let Some(name) = self.name_of(object)
            && self.known.get(&name).is_some_and(|known| **known == *version && !version.is_empty())
        {
            listing.seen.insert(name);
            return;
        }
        if let Some(name) = self.decode(&mut listing.found, object) {
            listing.versions.push((name.clone(), version.into()));
            listing.seen.insert(name);
        }
    }

    async fn finish(&mut self, mut listing: Listing, version: &str) {
        let gone: Vec<_> = self.known.keys().filter(|name| !listing.seen.contains(*name)).cloned().collect();
        for name in gone {
            self.delete(&mut listing.found, name);
        }
        self.known.extend(listing.versions);
        self.saw(version);
        if !std::mem::replace(&mut self.state.synced, true) {
            self.state.since = now();
        }
        self.state.stale_since = None;
        match self.late {
            // There may be many, again and again.
            true => tracing::debug!(what = %self.target.name, "looked at"),
            false => tracing::info!(what = %self.target.name, objects = self.known.len(), "listed"),
        }
        self.select();
        self.hub.listed(self.id);
        self.send(listing.found, true).await;
        self.confirm(version).await;
    }

    /// Passes on changes from `version` on, until something calls for a new list.
    async fn watch(
        &mut self,
        mut version: String,
        backoff: &mut Backoff,
    ) -> Result<std::convert::Infallible, ApiError> {
        loop {
            let opened = Instant::now();
            let runs = WATCH.mul_f64(1.0 + fastrand::f64());
            let seconds = runs.as_secs().to_string();
            let path = self.target.path(&[
                ("watch", "1"),
                ("allowWatchBookmarks", "true"),
                ("timeoutSeconds", &seconds),
                ("resourceVersion", &version),
            ]);
            let mut lines = self.api.watch(&path).await?;
            self.recovered().await;
            while self.fill(&mut lines, opened + runs + GRACE).await? {
                self.take_burst(&mut lines, &mut version).await?;
                backoff.reset();
            }
            // A server that ends watches at once is not to be asked without a pause.
            match opened.elapsed() < Duration::from_secs(1) {
                true => sleep(backoff.next(&ApiError::Ended)).await,
                false => backoff.reset(),
            }
            self.look_at_version().await?;
            self.confirm(&version).await;
        }
    }

    /// Waits for more; `false` at the end.
    async fn fill(&mut self, lines: &mut Lines, deadline: Instant) -> Result<bool, ApiError> {
        tokio::select! {
            filled = timeout_at(deadline, lines.fill()) => filled.map_err(|_| ApiError::Timeout)?,
            Ok(()) = self.selection.changed(), if self.target.in_selected => Err(ApiError::Reselected),
        }
    }

    /// Takes what has arrived by now and passes it on at once.
    async fn take_burst(&mut self, lines: &mut Lines, version: &mut String) -> Result<(), ApiError> {
        let mut found = Found::default();
        let taken = loop {
            let mut result = Ok(());
            while let Some(line) = lines.next_line() {
                result = self.take_line(line, version, &mut found);
                if result.is_err() {
                    break;
                }
            }
            if result.is_err() || found.events.len() >= BURST {
                break result;
            }
            match lines.fill().now_or_never() {
                Some(Ok(true)) => {}
                // The end or the error is met again by the next read.
                Some(Err(error)) => break Err(error),
                Some(Ok(false)) | None => break Ok(()),
            }
        };
        if !found.is_empty() {
            self.select();
            self.send(found, false).await;
        }
        taken
    }

    fn take_line(&mut self, line: &[u8], version: &mut String, found: &mut Found) -> Result<(), ApiError> {
        if line.is_empty() {
            return Ok(());
        }
        let mut line: Line = serde_json::from_slice(line).map_err(|_| ApiError::Unreadable)?;
        let object = &line.object;
        match &*line.kind {
            "ADDED" | "MODIFIED" if self.is_wanted(object) => {
                if let Some(name) = self.decode(found, object) {
                    self.known.insert(name, version_of(object).into());
                }
            }
            "ADDED" | "MODIFIED" => {}
            "DELETED" => {
                if let Some(name) = self.name_of(object) {
                    self.delete(found, name);
                }
            }
            "BOOKMARK" => {}
            "ERROR" => {
                let Status { code, message } = status_of(object);
                return Err(match code {
                    410 => ApiError::Expired,
                    _ => ApiError::Refused { code, message, retry_after: None },
                });
            }
            _ => return Ok(()),
        }
        if !version_of(object).is_empty() {
            *version = version_of(object).to_owned();
            self.saw(version);
        }
        line.object.wipe();
        Ok(())
    }

    /// Asks for the version of the data. One that is older than what was seen means that etcd was restored from
    /// a backup, which a watch does not tell.
    async fn look_at_version(&self) -> Result<(), ApiError> {
        let text = self.api.get(&self.target.path(&[("limit", "1")])).await?;
        let page: Page = serde_json::from_slice(&text).map_err(|_| ApiError::Unreadable)?;
        match self.is_rewound(&page.metadata.resource_version) {
            true => Err(ApiError::Rewound),
            false => Ok(()),
        }
    }

    fn is_rewound(&self, version: &str) -> bool {
        let number = version.parse::<u64>().ok();
        number.zip(self.latest).is_some_and(|(number, latest)| number < latest)
    }

    fn saw(&mut self, version: &str) {
        self.latest = self.latest.max(version.parse().ok());
    }

    /// Whether the object is in a namespace that counts.
    fn is_wanted(&self, object: &Node<'_>) -> bool {
        if !self.target.in_selected {
            return true;
        }
        let namespace = object.get("metadata").and_then(|metadata| metadata.get_str("namespace"));
        let selected = self.selection.borrow();
        selected.as_ref().zip(namespace).is_some_and(|(selected, namespace)| selected.contains(namespace))
    }

    /// Tells which namespaces are selected, where these are those.
    fn select(&self) {
        if self.target.selects {
            self.hub.select(self.known.keys().map(|namespace| namespace.name.clone()).collect());
        }
    }

    /// The name under which the object is known, where it can have one.
    fn name_of(&self, object: &Node<'_>) -> Option<ObjectName> {
        let metadata = object.get("metadata")?;
        let namespace = metadata.get_str("namespace").unwrap_or_default();
        Some(ObjectName::new(namespace, metadata.get_str("name")?))
    }

    /// Finds an object, and what is wrong with it. Nothing counts before it is sent.
    fn decode(&self, found: &mut Found, node: &Node<'_>) -> Option<ObjectName> {
        let kind = self.target.resource.kind;
        let mut findings = Findings::new();
        let decoded = Object::decode(self.target.api_version, kind.as_str(), node, &mut findings);
        let name = match &decoded {
            Decoded::Object(object) => object.metadata().name.clone(),
            // Nothing of it is of use, but it has not gone either: what it was stays.
            Decoded::Unusable(..) | Decoded::Unknown(_) => self.name_of(node)?,
        };
        if let Decoded::Object(object) = decoded {
            match kind {
                Kind::Ingress => found.ingress_statuses.push(ingress_status(name.clone(), node)),
                Kind::AuthorizationPolicy => {
                    let status = policy_status(name.clone(), self.target.api_version, node);
                    found.policy_statuses.push(status);
                }
                _ => {}
            }
            if self.keeper.is_some() {
                found.kept.push((name.clone(), Some(text_of(node))));
            }
            found.events.push(Event::Apply(object));
        }
        let mut diagnostics = findings.into_list();
        if self.late {
            diagnostics.push(seen_late(ObjectRef::new(kind, &name)));
        }
        if self.faulty.contains(&name) || !diagnostics.is_empty() {
            found.findings.push(ObjectFindings { about: ObjectRef::new(kind, &name), diagnostics });
        }
        Some(name)
    }

    fn delete(&mut self, found: &mut Found, name: ObjectName) {
        let kind = self.target.resource.kind;
        self.known.remove(&name);
        if self.faulty.contains(&name) {
            let about = ObjectRef::new(kind, &name);
            found.findings.push(ObjectFindings { about, diagnostics: Vec::new() });
        }
        if self.keeper.is_some() {
            found.kept.push((name.clone(), None));
        }
        found.events.push(Event::Delete(kind, name));
    }

    async fn send(&mut self, mut found: Found, state: bool) {
        for ObjectFindings { about, diagnostics } in &found.findings {
            let name = ObjectName::new(about.namespace.clone(), about.name.clone());
            match diagnostics.is_empty() {
                true => self.faulty.remove(&name),
                false => self.faulty.insert(name),
            };
        }
        let kept = std::mem::take(&mut found.kept);
        let kind = self.target.resource.kind;
        // Of Secrets that are followed by name there may be many; what is missing of them is said elsewhere.
        let state = state && !(self.target.object.is_some() && kind == Kind::Secret);
        let state = state.then(|| self.state.clone());
        match &self.target.object {
            Some(name) => self.hub.send_named(&(kind, name.clone()), found, state).await,
            None => self.hub.send(found, state).await,
        }
        self.keep(&mut Found { kept, ..Found::default() }).await;
    }

    /// Says that changes arrive again.
    async fn recovered(&mut self) {
        let absent = std::mem::take(&mut self.state.absent);
        if self.state.last_error.take().is_some() || absent {
            match self.late {
                true => tracing::debug!(what = %self.target.name, "it can be looked at again"),
                false => tracing::info!(what = %self.target.name, "changes arrive again"),
            }
            self.state.since = now();
            self.send(Found::default(), true).await;
        }
    }

    /// Says why nothing arrives, once for each reason.
    async fn failed(&mut self, error: &ApiError) {
        let message = match error {
            // Part of an ordinary life, and over at once.
            ApiError::Expired | ApiError::Rewound if self.state.synced => {
                tracing::info!(what = %self.target.name, "{error}: listing again");
                return;
            }
            ApiError::Reselected => {
                tracing::info!(what = %self.target.name, "{error}: listing again");
                return;
            }
            ApiError::Absent if self.target.need != Need::Vital => return self.absent().await,
            error => error.to_string(),
        };
        let forbidden = matches!(error, ApiError::Refused { code: 403, .. });
        let gives_up = forbidden && self.target.need == Need::Optional && !self.state.synced;
        if self.state.last_error.as_ref() == Some(&message) && !gives_up {
            tracing::debug!(what = %self.target.name, "{message}");
            return;
        }
        match error {
            // There may be many of these.
            _ if self.late => tracing::debug!(what = %self.target.name, "{message}"),
            ApiError::Refused { code: 400 | 403 | 404, .. } | ApiError::Absent => {
                tracing::warn!(what = %self.target.name, "{message}");
            }
            // What a restart of the API server looks like.
            _ => tracing::info!(what = %self.target.name, "{message}: what is known stays in force"),
        }
        if self.state.last_error.is_none() {
            self.state.since = now();
        }
        (self.state.last_error, self.state.absent) = (Some(message), false);
        if gives_up {
            self.state.synced = true;
            self.hub.listed(self.id);
        }
        self.send(Found::default(), true).await;
    }

    /// The API server does not have the kind, and so no objects of it.
    async fn absent(&mut self) {
        if self.state.absent {
            return;
        }
        tracing::info!(what = %self.target.name, "the API server does not have this kind: it is looked for again");
        let mut found = Found::default();
        let gone: Vec<_> = self.known.keys().cloned().collect();
        gone.into_iter().for_each(|name| self.delete(&mut found, name));
        (self.state.synced, self.state.absent, self.state.last_error) = (true, true, None);
        self.state.since = now();
        self.hub.listed(self.id);
        self.send(found, true).await;
    }
}

/// Nobody has to wait for a watch that was given up.
impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.listed(self.id);
    }
}

/// A list under way.
#[derive(Default)]
struct Listing {
    found: Found,
    seen: HashSet<ObjectName>,
    /// The versions of what was found.
    versions: Vec<(ObjectName, Box<str>)>,
    next: String,
}

/// What comes of a request, unless it takes too long.
async fn in_time<T>(
    deadline: Option<Instant>,
    request: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    match deadline {
        Some(deadline) => timeout_at(deadline, request).await.map_err(|_| ApiError::Timeout)?,
        None => request.await,
    }
}

/// That changes to an object are noticed late.
fn seen_late(about: ObjectRef) -> Diagnostic {
    let message = format!(
        "More objects are named than the {MOST} that are followed by name; this one is looked at from time to time, and a \
         change takes effect late."
    );
    Diagnostic::new(Severity::Warning, about, "", "SeenLate", message)
}
