//! The store in a cluster: the objects themselves, on the API server.
//!
//! Creation is a POST, which only one of several can win; a change is a patch that names the version it replaces and
//! leaves alone what is not ours (finalizers, fields of others). For one command everything is read when it is asked
//! for. A service calls [`Kubernetes::follow`]: then accounts, namespaces, Secrets and ConfigMaps are watched, lists
//! cost nothing, and the revision is a counter of differences. What decides about the root is always read afresh.

mod mirror;

use std::sync::Arc;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use self::mirror::{Collection, Decode, Mirror, follow, list};
use super::{
    Account, Accounts, ConfigMap, IngressHosts, Namespace, Revision, Secret, Store, StoreError, Version,
    documents,
};
use crate::api_server::{Api, ApiError};
use crate::ca::authn::impersonation::Pod;
use crate::ca::{accounts, distribution, hosts, plugged, roots};
use crate::store::objects::ObjectName;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";

const SECRETS: &str = "secrets";
const CONFIG_MAPS: &str = "configmaps";

/// What a service needs to be told of.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Where the CA's own Secrets are.
    pub storage_namespace: String,
    /// ServiceAccounts and their Secrets.
    pub accounts: bool,
    /// Ingresses, and Secrets of hosts.
    pub hosts: bool,
    /// Pods, for node agents that ask on their behalf.
    pub pods: bool,
}

/// Objects on an API server. Copies share what is watched.
#[derive(Clone)]
pub struct Kubernetes {
    api: Api,
    followed: Option<Arc<Followed>>,
}

/// Mirrors with the tasks that keep them up to date, which end with the last copy of the store.
struct Followed {
    mirrors: Mirrors,
    _tasks: JoinSet<()>,
}

struct Mirrors {
    changes: watch::Sender<u64>,
    accounts: Option<Arc<Mirror<Account>>>,
    secrets: Option<Arc<Mirror<Secret>>>,
    namespaces: Arc<Mirror<Namespace>>,
    config_maps: [(&'static str, Arc<Mirror<ConfigMap>>); 3],
    ingresses: Option<Arc<Mirror<IngressHosts>>>,
    issued: Option<Arc<Mirror<Secret>>>,
    pods: Option<Arc<Mirror<Pod>>>,
}

impl Kubernetes {
    /// Reads when it is asked.
    pub fn new(api: Api) -> Self {
        Self { api, followed: None }
    }

    /// Watches what `needs` says, in tasks on the present runtime.
    pub fn follow(api: Api, needs: &Needs) -> Self {
        let changes = watch::Sender::new(0);
        let mut watches = Watches { api: api.clone(), changes: changes.clone(), tasks: JoinSet::new() };
        // Of the CA's own Secrets only that they changed is of interest.
        let storage = collection_in(&needs.storage_namespace, SECRETS);
        for name in [roots::SECRET_NAME, plugged::SECRET_NAME] {
            let secret = storage.clone().with_fields(format!("metadata.name={name}"));
            watches.start(secret, |_, version| Some(version.to_owned()));
        }
        let maps = [distribution::ROOT_MAP, distribution::CLASSIC_MAP, distribution::CRL_MAP];
        let mirrors = Mirrors {
            accounts: needs.accounts.then(|| watches.start(account_collection(), decode_account)),
            secrets: needs.accounts.then(|| watches.start(secrets_of(accounts::SECRET_TYPE), decode_secret)),
            namespaces: watches.start(namespace_collection(), decode_namespace),
            config_maps: maps.map(|name| (name, watches.start(config_maps(name), decode_config_map))),
            ingresses: needs.hosts.then(|| watches.start(ingress_collection(), decode_ingress)),
            issued: needs.hosts.then(|| watches.start(issued_collection(), decode_secret)),
            pods: needs.pods.then(|| watches.start(Collection::new("/api/v1/pods"), decode_pod)),
            changes,
        };
        Self { api, followed: Some(Arc::new(Followed { mirrors, _tasks: watches.tasks })) }
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The pods of the cluster, where they are watched and have been listed.
    pub fn pods(&self) -> Option<Vec<Pod>> {
        self.mirrors()?.pods.as_ref()?.all()
    }

    fn mirrors(&self) -> Option<&Mirrors> {
        self.followed.as_ref().map(|followed| &followed.mirrors)
    }

    /// From the mirror where there is one, else from the API server.
    async fn all<T: Clone + PartialEq>(
        &self,
        mirror: impl FnOnce(&Mirrors) -> Option<&Mirror<T>>,
        collection: Collection,
        decode: Decode<T>,
    ) -> Result<Vec<T>, StoreError> {
        match self.mirrors().and_then(mirror) {
            Some(mirror) => mirror.all().ok_or_else(|| not_listed(&collection)),
            None => Ok(list(&self.api, &collection, decode).await.map_err(refused)?.0),
        }
    }

    /// Creates or patches; the object as the API server then has it.
    async fn write(
        &self,
        plural: &str,
        name: &ObjectName,
        version: Option<&Version>,
        whole: impl FnOnce() -> Zeroizing<String>,
        parts: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) -> Result<Value, StoreError> {
        let written = match version {
            None => {
                let path = collection_in(&name.namespace, plural).path;
                let created = self.api.write(Method::POST, &path, JSON, whole()).await;
                created.map_err(|error| not_created(error, name))?
            }
            Some(version) => {
                let patch = patch(version, parts());
                let patched = self.api.write(Method::PATCH, &object(plural, name), JSON_PATCH, patch).await;
                patched.map_err(|error| match error {
                    // Gone is another version too.
                    ApiError::Refused { code: 404 | 409, .. } => StoreError::Conflict(name.clone()),
                    error => refused(error),
                })?
            }
        };
        serde_json::from_slice(&written).map_err(|_| refused(ApiError::Unreadable))
    }
}

impl Store for Kubernetes {
    /// Without watches everything may have changed, always.
    async fn revision(&self) -> Result<Revision, StoreError> {
        match self.mirrors() {
            Some(mirrors) => Ok(revision_of(*mirrors.changes.borrow())),
            None => Ok(Revision(format!("{:016x}", fastrand::u64(..)))),
        }
    }

    async fn changed(&self, since: &Revision) {
        if let Some(mirrors) = self.mirrors() {
            let mut changes = mirrors.changes.subscribe();
            if changes.wait_for(|count| revision_of(*count) != *since).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    async fn secret(&self, name: &ObjectName) -> Result<Option<Secret>, StoreError> {
        match self.api.get(&object(SECRETS, name)).await {
            Ok(text) => {
                let document: Value = serde_json::from_slice(&text).map_err(|_| unreadable(SECRETS, name))?;
                let version = text_at(&document, "/metadata/resourceVersion");
                decode_secret(&document, version).map(Some).ok_or_else(|| unreadable(SECRETS, name))
            }
            Err(ApiError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    async fn secrets(&self, kind: &str) -> Result<Vec<Secret>, StoreError> {
        self.all(|mirrors| mirrors.secrets(kind), secrets_of(kind), decode_secret).await
    }

    async fn write_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        let parts = || {
            let mut parts = vec![
                ("/data", Value::Object(documents::data_of(secret))),
                ("/metadata/labels", json!(secret.labels)),
                ("/metadata/annotations", json!(secret.annotations)),
            ];
            if let Some(owner) = &secret.owner {
                parts.push(("/metadata/ownerReferences", json!([documents::owner_reference(owner)])));
            }
            parts
        };
        let whole = || documents::encode_secret(secret);
        let written = self.write(SECRETS, &secret.name, secret.version.as_ref(), whole, parts).await?;
        if let Some(mirror) = self.mirrors().and_then(|mirrors| mirrors.holding(secret)) {
            let version = text_at(&written, "/metadata/resourceVersion");
            if let Some(now) = decode_secret(&written, version) {
                mirror.put(secret.name.clone(), version, now);
            }
        }
        Ok(())
    }

    async fn delete_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        let version = secret.version.as_ref().map_or("", |version| version.0.as_str());
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "resourceVersion": version },
        });
        let path = object(SECRETS, &secret.name);
        match self.api.write(Method::DELETE, &path, JSON, Zeroizing::new(options.to_string())).await {
            Ok(_) | Err(ApiError::Refused { code: 404, .. }) => {
                if let Some(mirror) = self.mirrors().and_then(|mirrors| mirrors.holding(secret)) {
                    mirror.remove(&secret.name);
                }
                Ok(())
            }
            Err(ApiError::Refused { code: 409, .. }) => Err(StoreError::Conflict(secret.name.clone())),
            Err(error) => Err(refused(error)),
        }
    }

    async fn config_maps(&self, name: &str) -> Result<Vec<ConfigMap>, StoreError> {
        self.all(|mirrors| mirrors.config_maps(name), config_maps(name), decode_config_map).await
    }

    async fn write_config_map(&self, map: &ConfigMap) -> Result<(), StoreError> {
        let parts = || vec![("/data", json!(map.data)), ("/metadata/labels", json!(map.labels))];
        let whole = || documents::encode_config_map(map);
        let written = self.write(CONFIG_MAPS, &map.name, map.version.as_ref(), whole, parts).await?;
        if let Some(mirror) = self.mirrors().and_then(|mirrors| mirrors.config_maps(&map.name.name)) {
            let version = text_at(&written, "/metadata/resourceVersion");
            if let Some(now) = decode_config_map(&written, version) {
                mirror.put(map.name.clone(), version, now);
            }
        }
        Ok(())
    }

    async fn accounts(&self) -> Result<Accounts, StoreError> {
        let list =
            self.all(|mirrors| mirrors.accounts.as_deref(), account_collection(), decode_account).await?;
        Ok(Accounts { list, complete: true })
    }

    async fn ingresses(&self) -> Result<Vec<IngressHosts>, StoreError> {
        self.all(|mirrors| mirrors.ingresses.as_deref(), ingress_collection(), decode_ingress).await
    }

    async fn issued_secrets(&self) -> Result<Vec<Secret>, StoreError> {
        self.all(|mirrors| mirrors.issued.as_deref(), issued_collection(), decode_secret).await
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>, StoreError> {
        self.all(|mirrors| Some(&*mirrors.namespaces), namespace_collection(), decode_namespace).await
    }
}

/// Watches that are being started.
struct Watches {
    api: Api,
    changes: watch::Sender<u64>,
    tasks: JoinSet<()>,
}

impl Watches {
    fn start<T: Clone + PartialEq + Send + 'static>(
        &mut self,
        collection: Collection,
        decode: Decode<T>,
    ) -> Arc<Mirror<T>> {
        let mirror = Arc::new(Mirror::new(self.changes.clone()));
        let (api, kept) = (self.api.clone(), Arc::clone(&mirror));
        self.tasks.spawn(async move { follow(api, collection, decode, &kept).await });
        mirror
    }
}

impl Mirrors {
    fn config_maps(&self, name: &str) -> Option<&Mirror<ConfigMap>> {
        self.config_maps.iter().find(|(known, _)| *known == name).map(|(_, mirror)| &**mirror)
    }

    fn secrets(&self, kind: &str) -> Option<&Mirror<Secret>> {
        self.secrets.as_deref().filter(|_| kind == accounts::SECRET_TYPE)
    }

    /// The mirror that this Secret is in, or will be.
    fn holding(&self, secret: &Secret) -> Option<&Mirror<Secret>> {
        match hosts::is_ours(secret) {
            true => self.issued.as_deref(),
            false => self.secrets(&secret.kind),
        }
    }
}

fn revision_of(changes: u64) -> Revision {
    Revision(changes.to_string())
}

fn collection_in(namespace: &str, plural: &str) -> Collection {
    Collection::new(format!("/api/v1/namespaces/{}/{plural}", encoded(namespace)))
}

fn object(plural: &str, name: &ObjectName) -> String {
    format!("{}/{}", collection_in(&name.namespace, plural).path, encoded(&name.name))
}

fn account_collection() -> Collection {
    Collection::new("/api/v1/serviceaccounts")
}

fn namespace_collection() -> Collection {
    Collection::new("/api/v1/namespaces")
}

fn ingress_collection() -> Collection {
    Collection::new("/apis/networking.k8s.io/v1/ingresses")
}

fn issued_collection() -> Collection {
    Collection::new("/api/v1/secrets").with_label(hosts::LABEL)
}

fn secrets_of(kind: &str) -> Collection {
    Collection::new("/api/v1/secrets").with_fields(format!("type={kind}"))
}

fn config_maps(name: &str) -> Collection {
    Collection::new("/api/v1/configmaps").with_fields(format!("metadata.name={name}"))
}

fn encoded(part: &str) -> String {
    utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()
}

/// A JSON patch (RFC 6902) of exactly `version`: the API server answers 409 if it has another by now.
fn patch(version: &Version, parts: Vec<(&'static str, Value)>) -> Zeroizing<String> {
    let mut patch = vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version.0 })];
    // On a member that exists, "add" replaces its value.
    patch.extend(parts.into_iter().map(|(path, value)| json!({ "op": "add", "path": path, "value": value })));
    Zeroizing::new(Value::Array(patch).to_string())
}

fn not_created(error: ApiError, name: &ObjectName) -> StoreError {
    match error {
        ApiError::Refused { code: 409, .. } => StoreError::AlreadyExists(name.clone()),
        ApiError::Refused { code: 404, .. } => StoreError::NamespaceNotFound(name.namespace.to_string()),
        // The only word of it that the answer has apart from the lack of a right.
        ApiError::Refused { code: 403, message, .. } if message.contains("is being terminated") => {
            StoreError::NamespaceTerminating(name.namespace.to_string())
        }
        error => refused(error),
    }
}

fn refused(error: ApiError) -> StoreError {
    match error {
        ApiError::Refused { code: 403, message, .. } => StoreError::Forbidden(message),
        error => StoreError::Unavailable(error.to_string()),
    }
}

fn not_listed(collection: &Collection) -> StoreError {
    StoreError::Unavailable(format!("{} has not been listed yet", collection.path))
}

fn unreadable(plural: &str, name: &ObjectName) -> StoreError {
    StoreError::Malformed { object: format!("{plural} {name}"), reason: "it does not parse".to_owned() }
}

fn text_at<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn decode_secret(document: &Value, version: &str) -> Option<Secret> {
    documents::secret(document, Version(version.to_owned())).ok()
}

fn decode_config_map(document: &Value, version: &str) -> Option<ConfigMap> {
    documents::config_map(document, Version(version.to_owned())).ok()
}

fn decode_account(document: &Value, _: &str) -> Option<Account> {
    documents::account(document).ok()
}

fn decode_namespace(document: &Value, _: &str) -> Option<Namespace> {
    documents::namespace(document).ok()
}

fn decode_ingress(document: &Value, _: &str) -> Option<IngressHosts> {
    documents::ingress(document).ok().filter(|it| !it.claims.is_empty() || !it.requests.is_empty())
}

fn decode_pod(document: &Value, _: &str) -> Option<Pod> {
    let text = |pointer: &str| text_at(document, pointer).to_owned();
    Some(Pod {
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        uid: text("/metadata/uid"),
        account: text("/spec/serviceAccountName"),
        node: text("/spec/nodeName"),
        failed: text_at(document, "/status/phase") == "Failed",
    })
}
