//! The condition of AuthorizationPolicies that says what transport policy made of them: server-side apply, and only
//! where another condition is there.
//!
//! The apply is not forced: where somebody else, such as istiod, has the conditions, they are theirs to write.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use imbl::{OrdMap, OrdSet};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::MANAGER;
use super::rights::Missing;
use crate::compile::policies::Policies;
use crate::diagnostics::Diagnostic;
use crate::sources::{POLICY_CONDITION, PolicyCondition, PolicyStatus};
use crate::store::objects::ObjectName;

/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);
/// After this long without seeing what was written, it is written again.
const RETRY: Duration = Duration::from_secs(30);

/// What transport policy made of every AuthorizationPolicy. Copies share it.
#[derive(Clone, Default)]
pub(super) struct Verdicts {
    policies: Option<Arc<Policies>>,
    /// Those that stay in force in an older version.
    outdated: OrdSet<ObjectName>,
}

impl Verdicts {
    /// Takes over what was compiled last; whether that may be another verdict.
    pub fn update(
        &mut self,
        policies: &Arc<Policies>,
        outdated: impl FnOnce() -> OrdSet<ObjectName>,
    ) -> bool {
        if self.policies.as_ref().is_some_and(|known| Arc::ptr_eq(known, policies)) {
            return false;
        }
        (self.policies, self.outdated) = (Some(policies.clone()), outdated());
        true
    }

    /// What the condition is to say; `None` where there is to be none.
    fn condition(&self, status: &PolicyStatus) -> Option<PolicyCondition> {
        let acceptance = self.policies.as_ref()?.acceptances.get(&status.policy)?;
        let observed_generation = status.generation;
        Some(match self.outdated.contains(&status.policy) {
            true => PolicyCondition {
                accepted: false,
                reason: "Invalid".into(),
                message: "the policy cannot be read; its last version that could be stays in force".into(),
                observed_generation,
            },
            false => PolicyCondition {
                accepted: acceptance.accepted,
                reason: acceptance.reason.to_owned(),
                message: acceptance.message.clone(),
                observed_generation,
            },
        })
    }
}

/// What was written, until it is seen.
#[derive(Default)]
pub(super) struct Writer {
    written: HashMap<ObjectName, Written>,
    missing: Missing,
}

struct Written {
    /// What the watch had shown before.
    before: Arc<PolicyStatus>,
    condition: Option<PolicyCondition>,
    /// When to write it again; `None` where that would be of no use.
    again: Option<Instant>,
}

/// What came of a write.
enum Outcome {
    Written,
    /// There is no right to it.
    Forbidden(String),
    /// Somebody else's, or not to be had.
    Refused,
    Failed,
}

impl Writer {
    /// Writes every condition that is another than wanted, for as long as `leader` holds.
    pub async fn write(
        &mut self,
        client: &Client,
        policies: &OrdMap<ObjectName, Arc<PolicyStatus>>,
        verdicts: &Verdicts,
        leader: &watch::Receiver<bool>,
    ) {
        self.written.retain(|name, _| policies.contains_key(name));
        let mut open = BTreeSet::new();
        for (name, status) in policies {
            let condition = verdicts.condition(status);
            if condition == status.condition || self.is_done(name, status, &condition) {
                continue;
            }
            open.insert(name.namespace.clone());
            if self.missing.holds(&name.namespace, Instant::now()) {
                continue;
            }
            if !*leader.borrow() {
                return;
            }
            let outcome = apply(client, status, condition.as_ref()).await;
            let now = Instant::now();
            if let Outcome::Forbidden(message) = outcome {
                self.missing.refused(&name.namespace, message, now);
                continue;
            }
            self.missing.given(&name.namespace);
            let again = match outcome {
                // A condition that stays although we have none is not ours.
                Outcome::Written => condition.is_some().then_some(now + RETRY),
                Outcome::Refused => None,
                Outcome::Forbidden(_) | Outcome::Failed => continue,
            };
            self.written.insert(name.clone(), Written { before: status.clone(), condition, again });
        }
        self.missing.only(&open);
    }

    /// What keeps conditions from being as they should be.
    pub fn findings(&self) -> Option<Diagnostic> {
        self.missing.finding("ConditionsForbidden", "the conditions of AuthorizationPolicies")
    }

    /// Whether this was written and the watch has not yet said what came of it.
    fn is_done(
        &self,
        name: &ObjectName,
        status: &Arc<PolicyStatus>,
        condition: &Option<PolicyCondition>,
    ) -> bool {
        self.written.get(name).is_some_and(|written| {
            Arc::ptr_eq(&written.before, status)
                && written.condition == *condition
                && written.again.is_none_or(|again| Instant::now() < again)
        })
    }
}

async fn apply(client: &Client, status: &PolicyStatus, condition: Option<&PolicyCondition>) -> Outcome {
    let name = &status.policy;
    let (group, version) = status.api_version.split_once('/').unwrap_or(("", status.api_version));
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: status.api_version.into(),
        kind: "AuthorizationPolicy".into(),
        plural: "authorizationpolicies".into(),
    };
    let policies: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name.namespace, &resource);
    let patch = Patch::Apply(document(status, condition, Timestamp::now()));
    match timeout(REQUEST, policies.patch_status(&name.name, &PatchParams::apply(MANAGER), &patch)).await {
        Ok(Ok(_)) => Outcome::Written,
        // Deleted in the meantime.
        Ok(Err(Error::Api(status))) if status.code == 404 => Outcome::Refused,
        Ok(Err(Error::Api(status))) if status.code == 409 => {
            tracing::info!(policy = %name, "its conditions are somebody else's to write");
            Outcome::Refused
        }
        Ok(Err(Error::Api(status))) if matches!(status.code, 403 | 422) => {
            tracing::warn!(policy = %name, message = status.message, "a condition was refused");
            match status.code {
                403 => Outcome::Forbidden(status.message),
                _ => Outcome::Refused,
            }
        }
        Ok(Err(error)) => {
            tracing::warn!(policy = %name, %error, "condition not written");
            Outcome::Failed
        }
        Err(_) => {
            tracing::warn!(policy = %name, "condition not written: the API server did not answer in time");
            Outcome::Failed
        }
    }
}

fn document(status: &PolicyStatus, condition: Option<&PolicyCondition>, now: Timestamp) -> Value {
    let condition = condition.map(|condition| {
        json!({
            "type": POLICY_CONDITION,
            "status": if condition.accepted { "True" } else { "False" },
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": condition.observed_generation,
            "lastTransitionTime": now.to_string(),
        })
    });
    let mut document = json!({
        "apiVersion": status.api_version,
        "kind": "AuthorizationPolicy",
        "metadata": { "namespace": *status.policy.namespace, "name": *status.policy.name },
    });
    if let Some(condition) = condition {
        document["status"] = json!({ "conditions": [condition] });
    }
    document
}
