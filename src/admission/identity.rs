//! Who the webhook is to API servers: a root in a Secret that all replicas share, a server certificate of each
//! replica for the names that its ValidatingWebhookConfiguration calls it by, and the root in that configuration's
//! `caBundle`.
//!
//! The leader makes and renews the root and writes the bundle, which has the new root before any certificate comes
//! from it alone: a renewed root has the key and the name of the one before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};
use kube::Error;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::api_server;
use crate::ca::authority::Authority;
use crate::ca::roots::{self, Checked, RootError, RootOptions, SelfSigned};
use crate::ca::server::{Endpoint, EndpointError};
use crate::ca::store::kubernetes::Kubernetes;
use crate::settings::Settings;
use crate::tls::services::{ChainAndKey, Protocol, ServiceTls, ServiceTlsError};

/// The field manager of `caBundle`, and the name of the root.
const MANAGER: &str = "portcullis-admission";
const ROOT_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);
/// How often everything is looked at, and how soon again after something went wrong.
const RELOOK: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(2);

/// Why there is no identity, or no newer one.
#[derive(Debug, thiserror::Error)]
enum IdentityError {
    #[error("there is no ValidatingWebhookConfiguration {0}")]
    NoConfiguration(String),
    #[error("ValidatingWebhookConfiguration {0} calls the webhook by no name")]
    NoName(String),
    #[error("{0}")]
    Root(#[from] RootError),
    #[error("{0}")]
    Endpoint(#[from] EndpointError),
    #[error("{0}")]
    Api(#[from] Error),
    #[error("the API server did not answer in time")]
    Timeout,
}

pub(super) struct Identity {
    api: api_server::Api,
    options: RootOptions,
    settings: watch::Receiver<Arc<Settings>>,
    leader: watch::Receiver<bool>,
    root: Option<SelfSigned>,
    endpoint: Option<Endpoint>,
    /// The last error, which is told once.
    told: Option<String>,
}

impl Identity {
    pub fn new(
        api: api_server::Api,
        namespace: String,
        settings: watch::Receiver<Arc<Settings>>,
        leader: watch::Receiver<bool>,
    ) -> Self {
        let options = RootOptions {
            storage_namespace: namespace,
            secret: secret_of(&settings.borrow().election_id),
            trust_domain: MANAGER.to_owned(),
            life: ROOT_LIFE,
            grace_percent: 50,
            ..RootOptions::default()
        };
        Self { api, options, settings, leader, root: None, endpoint: None, told: None }
    }

    /// The configuration of the listener, once there is a certificate.
    pub async fn first(&mut self) -> watch::Receiver<ServiceTls> {
        loop {
            let pause = self.turn().await;
            if let Some(endpoint) = &self.endpoint {
                return endpoint.tls();
            }
            sleep(pause).await;
        }
    }

    /// Keeps certificate and bundle as they should be.
    pub async fn keep(&mut self) {
        let mut pause = RETRY;
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = self.leader.changed() => {}
                changed = self.settings.changed() => if changed.is_err() { return },
            }
            pause = self.turn().await;
        }
    }

    async fn turn(&mut self) -> Duration {
        match self.refresh(OffsetDateTime::now_utc()).await {
            Ok(()) => {
                self.told = None;
                RELOOK
            }
            Err(error) => {
                let message = error.to_string();
                // Another replica is about to make it.
                let expected = matches!(error, IdentityError::Root(RootError::Missing(_)));
                if !expected && self.told.as_ref() != Some(&message) {
                    tracing::warn!("admission webhook: {message}");
                    self.told = Some(message);
                }
                RETRY
            }
        }
    }

    async fn refresh(&mut self, now: OffsetDateTime) -> Result<(), IdentityError> {
        let name = self.settings.borrow_and_update().validating_webhook_configuration.clone();
        let leads = *self.leader.borrow_and_update();
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.api.client().clone());
        let found = bounded(configurations.get_opt(&name)).await?;
        let found = found.ok_or_else(|| IdentityError::NoConfiguration(name.clone()))?;
        let webhooks = found.webhooks.unwrap_or_default();
        let hosts = hosts_of(&webhooks);
        if hosts.is_empty() {
            return Err(IdentityError::NoName(name));
        }
        self.follow_root(leads, now).await?;
        let Some(root) = &self.root else { return Ok(()) };
        let authority = root.authority.clone();
        match &mut self.endpoint {
            Some(endpoint) => {
                endpoint.set_hosts(&hosts);
                endpoint.refresh(&authority, now)?;
            }
            None => self.endpoint = Some(Endpoint::new(webhook_tls, &hosts, authority.clone(), now)?),
        }
        if leads && let Some(patch) = bundle_patch(&name, &webhooks, &authority.roots().to_pem()) {
            let params = PatchParams::apply(MANAGER).force();
            bounded(configurations.patch(&name, &params, &Patch::Apply(patch))).await?;
            tracing::info!(configuration = name, "the root of the admission webhook is in its caBundle");
        }
        Ok(())
    }

    /// Reads the root; the leader makes it and renews it.
    async fn follow_root(&mut self, leads: bool, now: OffsetDateTime) -> Result<(), IdentityError> {
        let store = Kubernetes::new(self.api.clone());
        self.root = Some(match self.root.take() {
            None if leads => roots::load_or_create(&store, &self.options, now).await?,
            None => roots::load(&store, &self.options, now).await?,
            Some(root) => match roots::check(&store, &self.options, &root, leads, now).await {
                Ok(Checked::Unchanged) => root,
                Ok(Checked::Reloaded(root) | Checked::Renewed(root)) => *root,
                Err(error) => return self.keep_root(root, error),
            },
        });
        Ok(())
    }

    /// What is known goes on being used.
    fn keep_root(&mut self, root: SelfSigned, error: RootError) -> Result<(), IdentityError> {
        self.root = Some(root);
        Err(error.into())
    }
}

/// The Secret that keeps the root, for those that elect their leader by this name: one for each gateway of a namespace.
fn secret_of(election_id: &str) -> String {
    format!("{}-admission", election_id.strip_suffix("-leader").unwrap_or(election_id))
}

fn webhook_tls(
    certificate: ChainAndKey,
    _: &Authority,
    _: OffsetDateTime,
) -> Result<ServiceTls, ServiceTlsError> {
    ServiceTls::new(certificate, Protocol::Http1)
}

async fn bounded<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, IdentityError> {
    Ok(timeout(REQUEST, request).await.map_err(|_| IdentityError::Timeout)??)
}

/// The names and addresses that API servers reach the webhook by.
fn hosts_of(webhooks: &[ValidatingWebhook]) -> Vec<String> {
    let hosts = webhooks.iter().filter_map(|webhook| {
        let config = &webhook.client_config;
        match (&config.service, &config.url) {
            (Some(service), _) => Some(format!("{}.{}.svc", service.name, service.namespace)),
            (None, Some(url)) => {
                let uri: http::Uri = url.parse().ok()?;
                Some(uri.host()?.trim_matches(['[', ']']).to_owned())
            }
            (None, None) => None,
        }
    });
    hosts.collect::<BTreeSet<_>>().into_iter().collect()
}

/// What to apply so that every webhook trusts `bundle`; `None` where all do.
fn bundle_patch(name: &str, webhooks: &[ValidatingWebhook], bundle: &str) -> Option<Value> {
    let trusts = |webhook: &ValidatingWebhook| {
        webhook.client_config.ca_bundle.as_ref().is_some_and(|known| known.0 == bundle.as_bytes())
    };
    if webhooks.iter().all(trusts) {
        return None;
    }
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let webhooks: Vec<_> = webhooks
        .iter()
        .map(|webhook| json!({ "name": webhook.name, "clientConfig": { "caBundle": bundle } }))
        .collect();
    Some(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": webhooks,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhooks(configs: Value) -> Vec<ValidatingWebhook> {
        let configs = configs.as_array().unwrap().clone();
        let webhook = |config: &Value| {
            json!({
                "name": "ingresses.portcullis.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": config,
            })
        };
        configs.iter().map(|config| serde_json::from_value(webhook(config)).unwrap()).collect()
    }

    #[test]
    fn gateways_with_elections_of_their_own_have_roots_of_their_own() {
        assert_eq!(secret_of(&Settings::default().election_id), "portcullis-admission");
        assert_eq!(secret_of("edge-leader"), "edge-admission");
        assert_eq!(secret_of("edge"), "edge-admission");
    }

    #[test]
    fn the_names_are_those_that_api_servers_use() {
        let configs = json!([
            { "service": { "namespace": "edge", "name": "admission" } },
            { "url": "https://127.0.0.1:8443/networking/v1/ingresses" },
            { "url": "https://[::1]:8443/" },
            { "url": "https://hook.example.com/" },
        ]);
        assert_eq!(
            hosts_of(&webhooks(configs)),
            ["127.0.0.1", "::1", "admission.edge.svc", "hook.example.com"]
        );
    }

    #[test]
    fn the_bundle_is_written_only_where_it_differs() {
        let config = |bundle: &str| json!([{ "url": "https://a/", "caBundle": ByteString(bundle.as_bytes().to_vec()) }]);
        assert!(bundle_patch("a", &webhooks(config("root")), "root").is_none());
        let patch = bundle_patch("a", &webhooks(config("old")), "root").unwrap();
        assert_eq!(patch["webhooks"][0]["name"], "ingresses.portcullis.dev");
        let none = json!([{ "url": "https://a/" }]);
        assert!(bundle_patch("a", &webhooks(none), "root").is_some());
    }
}
