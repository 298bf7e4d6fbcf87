//! Single Secrets in the Kubernetes API, for a root that replicas share. The version is the resource version, so
//! of several replicas that write at once one wins and the others read what it wrote.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::time::timeout;

use super::{Secret, SecretBytes, SecretStore, StoreError, Version};
use crate::store::objects::ObjectName;

/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);

/// The Secrets of a cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn secrets(&self, name: &ObjectName) -> Api<Object> {
        Api::namespaced(self.client.clone(), &name.namespace)
    }
}

impl SecretStore for Cluster {
    async fn secret(&self, name: &ObjectName) -> Result<Option<Secret>, StoreError> {
        let secrets = self.secrets(name);
        let found = bounded(name, secrets.get_opt(&name.name)).await?;
        Ok(found.map(|object| from_object(name, object)))
    }

    async fn write_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        let name = &secret.name;
        let (secrets, object, params) = (self.secrets(name), to_object(secret), PostParams::default());
        match &secret.version {
            None => bounded(name, secrets.create(&params, &object)).await.map(drop),
            Some(_) => bounded(name, secrets.replace(&name.name, &params, &object)).await.map(drop),
        }
    }
}

/// The answer to a request about the Secret `name`, in bounded time. No error carries what was sent.
async fn bounded<T>(
    name: &ObjectName,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, StoreError> {
    match timeout(REQUEST, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::Api(status))) => Err(match (status.code, status.reason.as_str()) {
            (409, "AlreadyExists") => StoreError::AlreadyExists(name.clone()),
            (409, _) => StoreError::Conflict(name.clone()),
            (403, _) => StoreError::Forbidden(format!("Secret {name}: {}", status.message)),
            (404, _) => StoreError::NamespaceNotFound(name.namespace.to_string()),
            (code, _) => StoreError::Unavailable(format!("HTTP {code}")),
        }),
        Ok(Err(_)) => Err(StoreError::Unavailable("the API server cannot be reached".into())),
        Err(_) => Err(StoreError::Unavailable("the API server did not answer in time".into())),
    }
}

fn from_object(name: &ObjectName, object: Object) -> Secret {
    let metadata = object.metadata;
    let data = object.data.unwrap_or_default().into_iter();
    Secret {
        name: name.clone(),
        kind: object.type_.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default(),
        data: data.map(|(key, ByteString(bytes))| (key, SecretBytes::from(bytes))).collect(),
        owner: None,
        version: metadata.resource_version.map(Version),
    }
}

fn to_object(secret: &Secret) -> Object {
    let bytes = |bytes: &SecretBytes| ByteString(bytes.as_slice().to_vec());
    Object {
        metadata: ObjectMeta {
            namespace: Some(secret.name.namespace.to_string()),
            name: Some(secret.name.name.to_string()),
            labels: Some(secret.labels.clone()),
            annotations: Some(secret.annotations.clone()),
            resource_version: secret.version.as_ref().map(|Version(version)| version.clone()),
            ..ObjectMeta::default()
        },
        type_: Some(secret.kind.clone()),
        data: Some(secret.data.iter().map(|(key, value)| (key.clone(), bytes(value))).collect()),
        ..Object::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_with_everything_that_is_not_ours() {
        let mut secret = Secret::new(ObjectName::new("edge", "root"), "example.com/root");
        secret.labels.insert("app".into(), "edge".into());
        secret.annotations.insert("note".into(), "keep".into());
        secret.data.insert("key.pem".into(), "key".into());
        secret.version = Some(Version("7".into()));
        assert_eq!(from_object(&secret.name.clone(), to_object(&secret)), secret);
    }
}
