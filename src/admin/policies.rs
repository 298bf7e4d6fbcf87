//! `/api/v1/policies`: which policies apply to which workload, and what was decided by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::AdminState;
use crate::compile::LAST_GOOD_STAYS;
use crate::compile::policies::NAME_TAKEN;
use crate::diagnostics::{DUPLICATE, Diagnostic, ObjectRef, Severity};
use crate::snapshot::policies::{Authorization, Reason};
use crate::snapshot::workloads::{Workload, Workloads};
use crate::store::objects::{Kind, ObjectName};
use crate::telemetry::policy_stats::TriedOut;
use crate::telemetry::worker_stats::WorkerStats;
use crate::tls::spiffe::SpiffeId;

#[derive(Serialize)]
pub struct Policies {
    /// By pod and address; those without a pod stand for the other addresses of a namespace.
    workloads: Vec<WorkloadJson>,
    decisions: Vec<Decisions>,
    /// What policies in dry run would have said.
    dry_run: Vec<DryRun>,
    /// Policies that could not be read, with what is in force in their place.
    rejected: Vec<Rejected>,
}

#[derive(Serialize)]
struct DryRun {
    policy: String,
    action: String,
    /// How many the policy matched, and how many it did not.
    matched: u64,
    not_matched: u64,
}

#[derive(Serialize)]
struct Rejected {
    object: ObjectRef,
    /// `last-good`, `closed`, or `compiled` where objects have the name of a ready policy.
    in_force: &'static str,
    findings: Vec<String>,
}

#[derive(Serialize)]
struct WorkloadJson {
    pod: Option<String>,
    namespace: Option<String>,
    address: Option<String>,
    principal: Option<SpiffeId>,
    policies: Vec<PolicyJson>,
    /// Keys that name no policy; they deny.
    dangling: Vec<String>,
}

#[derive(Serialize)]
struct PolicyJson {
    name: String,
    action: String,
    dry_run: bool,
}

#[derive(Serialize)]
struct Decisions {
    policy: Option<String>,
    reason: &'static str,
    count: u64,
}

impl Policies {
    pub fn of(state: &AdminState) -> Self {
        let snapshot = state.shared.load();
        let decisions = decisions(&state.workers).into_iter();
        Self {
            workloads: workloads(&snapshot.workloads),
            decisions: decisions
                .map(|((policy, reason), count)| Decisions {
                    policy: policy.map(|policy| policy.to_string()),
                    reason,
                    count,
                })
                .collect(),
            dry_run: dry_run(&state.workers),
            rejected: rejected(&state.view().diagnostics),
        }
    }
}

fn dry_run(workers: &[Arc<WorkerStats>]) -> Vec<DryRun> {
    let mut all = BTreeMap::<(String, String), (u64, u64)>::new();
    for (TriedOut { policy, action, matches }, count) in tried_out(workers) {
        let (matched, not_matched) = all.entry((policy.to_string(), action.to_string())).or_default();
        *(if matches { matched } else { not_matched }) += count;
    }
    let row = |((policy, action), (matched, not_matched))| DryRun { policy, action, matched, not_matched };
    all.into_iter().map(row).collect()
}

/// What policies in dry run would have said, by all workers.
pub(super) fn tried_out(workers: &[Arc<WorkerStats>]) -> BTreeMap<TriedOut, u64> {
    let mut all = BTreeMap::new();
    for (tried, count) in workers.iter().flat_map(|worker| worker.policies.read_tried_out()) {
        *all.entry(tried).or_default() += count;
    }
    all
}

/// Policies with errors, as the findings have them.
fn rejected(findings: &[Diagnostic]) -> Vec<Rejected> {
    let mut all = BTreeMap::<&ObjectRef, Rejected>::new();
    for finding in findings {
        let Some(object) = finding.object.as_ref().filter(|object| is_policy(object)) else { continue };
        let stays = finding.reason == LAST_GOOD_STAYS;
        // Of a policy that is defined twice the first definition is in force.
        if !stays && (finding.severity != Severity::Error || finding.reason == DUPLICATE) {
            continue;
        }
        let rejected = all.entry(object).or_insert_with(|| Rejected {
            object: object.clone(),
            in_force: "closed",
            findings: Vec::new(),
        });
        match stays {
            true => rejected.in_force = "last-good",
            false => rejected.findings.push(format!("{}: {}", finding.field, finding.message)),
        }
        if finding.reason == NAME_TAKEN {
            rejected.in_force = "compiled";
        }
    }
    all.into_values().collect()
}

fn is_policy(object: &ObjectRef) -> bool {
    matches!(object.kind, Kind::Authorization | Kind::AuthorizationPolicy | Kind::PeerAuthentication)
}

/// In numbers, for `/api/v1/status`.
#[derive(Serialize)]
pub struct Summary {
    /// Workloads that policies apply to.
    workloads: usize,
    /// Policies that apply to a workload, and those of them that are only tried out.
    policies: usize,
    dry_run: usize,
    dangling: usize,
    /// The first of the keys that name no policy, each once.
    dangling_keys: Vec<String>,
    rejected: usize,
    denied: u64,
}

impl Summary {
    pub fn of(state: &AdminState) -> Self {
        let snapshot = state.shared.load();
        let (mut policies, mut workloads) = (BTreeMap::new(), 0);
        let all = &snapshot.workloads;
        for workload in all.by_address.values().chain(all.by_namespace.values()).flat_map(|at| at.iter()) {
            let mut any = false;
            for policy in workload.policies.policies() {
                any = true;
                policies.insert(policy.name.clone(), policy.dry_run);
            }
            workloads += usize::from(any && workload.pod.is_some());
        }
        let admits = [Reason::NoAllowPolicy, Reason::Allowed].map(Reason::label);
        let decided = decisions(&state.workers);
        let denied = decided.iter().filter(|((_, reason), _)| !admits.contains(reason));
        Self {
            workloads,
            dry_run: policies.values().filter(|dry_run| **dry_run).count(),
            policies: policies.len(),
            dangling: dangling(all).count(),
            dangling_keys: first_of(dangling(all)),
            rejected: count_rejected(state),
            denied: denied.map(|(_, count)| count).sum(),
        }
    }
}

/// Decisions of all workers by policy and reason.
pub(super) fn decisions(workers: &[Arc<WorkerStats>]) -> BTreeMap<(Option<ObjectName>, &'static str), u64> {
    let mut all = BTreeMap::new();
    for (policy, reason, count) in workers.iter().flat_map(|worker| worker.policies.read()) {
        *all.entry((policy, reason)).or_default() += count;
    }
    all
}

/// Keys of workloads that name no policy.
pub(super) fn dangling(workloads: &Workloads) -> impl Iterator<Item = &ObjectName> {
    let all = workloads.by_address.values().flat_map(|at| at.iter());
    all.flat_map(|workload| workload.policies.dangling())
}

fn first_of<'a>(keys: impl Iterator<Item = &'a ObjectName>) -> Vec<String> {
    const NAMED: usize = 5;
    keys.collect::<BTreeSet<_>>().into_iter().take(NAMED).map(ToString::to_string).collect()
}

/// How many policies could not be read.
pub(super) fn count_rejected(state: &AdminState) -> usize {
    rejected(&state.view().diagnostics).len()
}

fn workloads(workloads: &Workloads) -> Vec<WorkloadJson> {
    let mut pods: Vec<_> = workloads.by_address.iter().collect();
    pods.sort_by_key(|(address, _)| **address);
    let pods = pods.into_iter().flat_map(|(address, at)| {
        at.iter().map(|workload| WorkloadJson {
            address: Some(address.to_string()),
            namespace: workload.pod.as_ref().map(|pod| pod.namespace.to_string()),
            ..WorkloadJson::of(workload)
        })
    });
    let mut namespaces: Vec<_> = workloads.by_namespace.iter().collect();
    namespaces.sort_by_key(|(namespace, _)| (*namespace).clone());
    let rest = namespaces.into_iter().flat_map(|(namespace, at)| {
        at.iter().map(|workload| WorkloadJson {
            namespace: Some(namespace.to_string()),
            ..WorkloadJson::of(workload)
        })
    });
    pods.chain(rest).collect()
}

impl WorkloadJson {
    fn of(workload: &Workload) -> Self {
        let policy = |policy: &Arc<Authorization>| PolicyJson {
            name: policy.name.to_string(),
            action: policy.action.to_string(),
            dry_run: policy.dry_run,
        };
        Self {
            pod: workload.pod.as_ref().map(ToString::to_string),
            namespace: None,
            address: None,
            principal: workload.principal.clone(),
            policies: workload.policies.policies().map(policy).collect(),
            dangling: workload.policies.dangling().iter().map(ToString::to_string).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_in_place_of_a_policy_with_an_error() {
        let finding = |name: &str, severity, field: &str, reason| {
            let object = ObjectRef::new(Kind::Authorization, &ObjectName::new("shop", name));
            Diagnostic::new(severity, object, field, reason, "why")
        };
        let findings = [
            finding("closed", Severity::Error, "groups", "InvalidAuthorization"),
            finding("stays", Severity::Error, "groups", "InvalidAuthorization"),
            finding("stays", Severity::Warning, "", LAST_GOOD_STAYS),
            finding("taken", Severity::Error, "name", NAME_TAKEN),
            finding("twice", Severity::Error, "", DUPLICATE),
            finding("odd", Severity::Warning, "groups", "Any"),
        ];
        let told = |it: Rejected| format!("{} {} {:?}", it.object.name, it.in_force, it.findings);
        let told: Vec<_> = rejected(&findings).into_iter().map(told).collect();
        let expected = [
            r#"closed closed ["groups: why"]"#,
            r#"stays last-good ["groups: why"]"#,
            r#"taken compiled ["name: why"]"#,
        ];
        assert_eq!(told, expected);
    }
}
