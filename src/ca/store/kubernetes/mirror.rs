//! What the API server has of one kind, kept up to date by list and watch.
//!
//! [`follow`] lists, then watches from the version of the list; whatever is not the ordinary end of a watch leads to a
//! new list. A list takes the place of what was there in one step, so that a list that fails half-way never looks as
//! if objects had gone. All mirrors of a store share one counter that grows with every difference.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::api_server::{Api, ApiError, Backoff};
use crate::store::objects::ObjectName;

/// Objects on a page of a list.
const PAGE: usize = 500;
/// How long the server lets a watch run, and at most as much again by chance.
const WATCH: Duration = Duration::from_secs(60);
/// How much later than that a watch may end before the server counts as hung.
const GRACE: Duration = Duration::from_secs(10);

/// A set of objects that can be listed and watched.
#[derive(Clone, Debug)]
pub struct Collection {
    /// The path in URLs, such as `/api/v1/secrets`.
    pub path: String,
    /// A field or label selector, such as `("fieldSelector", "type=…")`.
    pub selector: Option<(&'static str, String)>,
}

impl Collection {
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), selector: None }
    }

    /// Only objects whose fields are so.
    pub fn with_fields(self, fields: String) -> Self {
        Self { selector: Some(("fieldSelector", fields)), ..self }
    }

    /// Only objects with this label.
    pub fn with_label(self, (key, value): (&str, &str)) -> Self {
        Self { selector: Some(("labelSelector", format!("{key}={value}"))), ..self }
    }

    fn url(&self, query: &[(&str, &str)]) -> String {
        let mut url = self.path.clone();
        let selector = self.selector.as_ref().map(|(key, value)| (*key, value.as_str()));
        let given = query.iter().copied().chain(selector).filter(|(_, value)| !value.is_empty());
        for (index, (key, value)) in given.enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(key);
            url.push('=');
            url.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        url
    }
}

/// Makes of a document what is kept of it; `None` passes it over.
pub type Decode<T> = fn(&Value, &str) -> Option<T>;

/// One listed object.
#[derive(Clone)]
struct Item<T> {
    version: String,
    value: T,
}

type Items<T> = BTreeMap<ObjectName, Item<T>>;

/// Objects as they were seen last.
pub struct Mirror<T> {
    /// `None` until everything was listed once.
    items: Mutex<Option<Items<T>>>,
    changes: watch::Sender<u64>,
}

impl<T: Clone + PartialEq> Mirror<T> {
    /// An empty one; `changes` grows with everything that happens to it.
    pub fn new(changes: watch::Sender<u64>) -> Self {
        Self { items: Mutex::default(), changes }
    }

    /// All objects, by name; `None` until they were listed once.
    pub fn all(&self) -> Option<Vec<T>> {
        self.items().as_ref().map(|items| items.values().map(|item| item.value.clone()).collect())
    }

    /// Takes over a new version, from the watch or of our own making: what we wrote is not written again before the
    /// watch tells of it. Nothing changes where only parts of the object did that are not kept.
    pub fn put(&self, name: ObjectName, version: &str, value: T) {
        if let Some(items) = self.items().as_mut() {
            let item = Item { version: version.to_owned(), value };
            let before = items.insert(name, item.clone());
            if before.is_some_and(|before| before.value == item.value) {
                return;
            }
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Removes what is there; nothing changes where nothing is.
    fn forget(&self, name: &ObjectName) {
        if self.items().as_ref().is_some_and(|items| items.contains_key(name)) {
            self.remove(name);
        }
    }

    pub fn remove(&self, name: &ObjectName) {
        if let Some(items) = self.items().as_mut() {
            items.remove(name);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    fn replace(&self, new: Items<T>) {
        let mut items = self.items();
        let versions = |items: &Items<T>| -> Vec<(ObjectName, String)> {
            items.iter().map(|(name, item)| (name.clone(), item.version.clone())).collect()
        };
        let same = items.as_ref().is_some_and(|old| versions(old) == versions(&new));
        *items = Some(new);
        drop(items);
        if !same {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    fn items(&self) -> MutexGuard<'_, Option<Items<T>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All objects of `collection`, once, with the version of the list.
pub async fn list<T>(
    api: &Api,
    collection: &Collection,
    decode: Decode<T>,
) -> Result<(Vec<T>, String), ApiError> {
    let (items, version) = list_items(api, collection, decode).await?;
    Ok((items.into_values().map(|item| item.value).collect(), version))
}

/// Keeps `mirror` up to date for as long as it is not dropped.
pub async fn follow<T: Clone + PartialEq>(
    api: Api,
    collection: Collection,
    decode: Decode<T>,
    mirror: &Mirror<T>,
) {
    let mut backoff = Backoff::default();
    let mut failing = false;
    loop {
        let error = match list_items(&api, &collection, decode).await {
            Ok((items, version)) => {
                tracing::debug!(what = collection.path, objects = items.len(), "listed");
                mirror.replace(items);
                failing = false;
                let Err(error) = watch(&api, &collection, decode, mirror, version, &mut backoff).await;
                error
            }
            Err(error) => error,
        };
        let pause = backoff.next(&error);
        match std::mem::replace(&mut failing, true) {
            false if !matches!(error, ApiError::Expired) => {
                tracing::warn!(what = collection.path, %error, "changes do not arrive, trying again");
            }
            _ => tracing::debug!(what = collection.path, %error, "trying again"),
        }
        sleep(pause).await;
    }
}

async fn list_items<T>(
    api: &Api,
    collection: &Collection,
    decode: Decode<T>,
) -> Result<(Items<T>, String), ApiError> {
    let mut items = Items::new();
    let mut next = String::new();
    let limit = PAGE.to_string();
    loop {
        let text = api.get(&collection.url(&[("limit", &limit), ("continue", &next)])).await?;
        let page: Page = serde_json::from_slice(&text).map_err(|_| ApiError::Unreadable)?;
        for object in page.items.unwrap_or_default() {
            if let Some((name, version, value)) = decode_object(&object, decode) {
                items.insert(name, Item { version, value });
            }
        }
        next = page.metadata.next;
        if next.is_empty() {
            return Ok((items, page.metadata.resource_version));
        }
    }
}

/// Takes over changes from `version` on, until something calls for a new list.
async fn watch<T: Clone + PartialEq>(
    api: &Api,
    collection: &Collection,
    decode: Decode<T>,
    mirror: &Mirror<T>,
    mut version: String,
    backoff: &mut Backoff,
) -> Result<Infallible, ApiError> {
    loop {
        let opened = Instant::now();
        let runs = WATCH.mul_f64(1.0 + fastrand::f64());
        let seconds = runs.as_secs().to_string();
        let url = collection.url(&[
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
            ("resourceVersion", &version),
        ]);
        let mut lines = api.watch(&url).await?;
        while timeout_at(opened + runs + GRACE, lines.fill()).await.map_err(|_| ApiError::Timeout)?? {
            while let Some(line) = lines.next_line() {
                if let Some(seen) = take_line(line, decode, mirror)? {
                    version = seen;
                }
            }
            backoff.reset();
        }
        // A server that ends watches at once is not to be asked without a pause.
        match opened.elapsed() < Duration::from_secs(1) {
            true => sleep(backoff.next(&ApiError::Ended)).await,
            false => backoff.reset(),
        }
        // After etcd was restored from a backup a watch stays silent: only the version tells.
        let text = api.get(&collection.url(&[("limit", "1")])).await?;
        let page: Page = serde_json::from_slice(&text).map_err(|_| ApiError::Unreadable)?;
        let numbers = (page.metadata.resource_version.parse::<u64>(), version.parse::<u64>());
        if let (Ok(now), Ok(seen)) = numbers
            && now < seen
        {
            return Err(ApiError::Rewound);
        }
    }
}

/// The version after a line of a watch, where it has one.
fn take_line<T: Clone + PartialEq>(
    line: &[u8],
    decode: Decode<T>,
    mirror: &Mirror<T>,
) -> Result<Option<String>, ApiError> {
    if line.is_empty() {
        return Ok(None);
    }
    let line: Line = serde_json::from_slice(line).map_err(|_| ApiError::Unreadable)?;
    match line.kind.as_str() {
        "ADDED" | "MODIFIED" => match decode_object(&line.object, decode) {
            Some((name, version, value)) => mirror.put(name, &version, value),
            // It is of no interest any more, if it ever was.
            None => name_of(&line.object).iter().for_each(|name| mirror.forget(name)),
        },
        "DELETED" => {
            if let Some(name) = name_of(&line.object) {
                mirror.remove(&name);
            }
        }
        "BOOKMARK" => {}
        "ERROR" => {
            let code = line.object.get("code").and_then(Value::as_u64).unwrap_or_default();
            return Err(match u16::try_from(code) {
                Ok(410) => ApiError::Expired,
                Ok(code) => {
                    let message = text(&line.object, "/message").to_owned();
                    ApiError::Refused { code, message, retry_after: None }
                }
                Err(_) => ApiError::Unreadable,
            });
        }
        _ => return Ok(None),
    }
    let version = text(&line.object, "/metadata/resourceVersion");
    Ok((!version.is_empty()).then(|| version.to_owned()))
}

fn decode_object<T>(object: &Value, decode: Decode<T>) -> Option<(ObjectName, String, T)> {
    let version = text(object, "/metadata/resourceVersion");
    Some((name_of(object)?, version.to_owned(), decode(object, version)?))
}

/// Namespace and name; the namespace is empty for cluster-scoped kinds.
fn name_of(object: &Value) -> Option<ObjectName> {
    let name = object.pointer("/metadata/name")?.as_str()?;
    Some(ObjectName::new(text(object, "/metadata/namespace"), name))
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    /// Null where a server has none of the kind.
    #[serde(default)]
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    /// Asks for the next page; empty on the last one.
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mirror() -> Mirror<String> {
        Mirror::new(watch::Sender::new(0))
    }

    fn count(mirror: &Mirror<String>) -> u64 {
        *mirror.changes.borrow()
    }

    fn items(names: &[(&str, &str)]) -> Items<String> {
        let item = |(name, version): &(&str, &str)| {
            let value = (*name).to_owned();
            (ObjectName::new("shop", *name), Item { version: (*version).to_owned(), value })
        };
        names.iter().map(item).collect()
    }

    fn decode(object: &Value, _: &str) -> Option<String> {
        object.get("keep")?.as_str().map(str::to_owned)
    }

    fn line(kind: &str, object: Value) -> Vec<u8> {
        json!({ "type": kind, "object": object }).to_string().into_bytes()
    }

    fn object(version: &str, keep: Option<&str>) -> Value {
        json!({ "metadata": { "namespace": "shop", "name": "a", "resourceVersion": version }, "keep": keep })
    }

    #[test]
    fn what_was_deleted_while_nobody_watched_is_gone_with_the_next_list() {
        let mirror = mirror();
        assert_eq!(mirror.all(), None, "nothing is known before the first list");
        mirror.replace(items(&[("a", "1"), ("b", "2")]));
        let listed = count(&mirror);
        mirror.replace(items(&[("a", "1"), ("b", "2")]));
        assert_eq!(count(&mirror), listed, "the same list is no change");
        mirror.replace(items(&[("b", "2")]));
        assert_eq!(mirror.all().unwrap(), ["b"]);
        assert!(count(&mirror) > listed);
        mirror.replace(items(&[("b", "3")]));
        assert!(count(&mirror) > listed + 1, "another version is a change");
    }

    #[test]
    fn lines_of_a_watch_are_followed() {
        let mirror = mirror();
        mirror.replace(Items::new());
        let take = |line: &[u8]| take_line(line, decode, &mirror);
        assert_eq!(take(&line("ADDED", object("5", Some("x")))).unwrap().as_deref(), Some("5"));
        assert_eq!(mirror.all().unwrap(), ["x"]);
        take(&line("MODIFIED", object("6", Some("y")))).unwrap();
        assert_eq!(mirror.all().unwrap(), ["y"]);
        let before = count(&mirror);
        take(&line("MODIFIED", object("7", Some("y")))).unwrap();
        assert_eq!(count(&mirror), before, "nothing of what is kept has changed");
        take(&line("MODIFIED", object("7", None))).unwrap();
        assert!(mirror.all().unwrap().is_empty(), "of no interest any more");
        let before = count(&mirror);
        take(&line("MODIFIED", object("8", None))).unwrap();
        assert_eq!(count(&mirror), before, "and never was");
        take(&line("ADDED", object("9", Some("z")))).unwrap();
        take(&line("DELETED", object("10", Some("z")))).unwrap();
        assert!(mirror.all().unwrap().is_empty());
        let bookmark = json!({ "metadata": { "resourceVersion": "11" } });
        assert_eq!(take(&line("BOOKMARK", bookmark)).unwrap().as_deref(), Some("11"));
        let expired = take(&line("ERROR", json!({ "code": 410, "message": "too old" })));
        assert!(matches!(expired, Err(ApiError::Expired)));
        assert!(matches!(take(b"{"), Err(ApiError::Unreadable)));
    }

    #[test]
    fn selectors_and_versions_are_encoded() {
        let collection =
            Collection::new("/api/v1/secrets").with_fields("type=istio.io/key-and-cert".to_owned());
        let url = collection.url(&[("limit", "5"), ("continue", "")]);
        assert_eq!(url, "/api/v1/secrets?limit=5&fieldSelector=type%3Distio%2Eio%2Fkey%2Dand%2Dcert");
        assert_eq!(Collection::new("/api/v1/pods").url(&[]), "/api/v1/pods");
    }
}
