//! `/api/v1/policies`: which policies apply to which workload, and what was decided by them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::AdminState;
use crate::snapshot::policies::Authorization;
use crate::snapshot::workloads::{Workload, Workloads};
use crate::store::objects::ObjectName;
use crate::telemetry::worker_stats::WorkerStats;
use crate::tls::spiffe::SpiffeId;

#[derive(Serialize)]
pub struct Policies {
    /// By pod and address; those without a pod stand for the other addresses of a namespace.
    workloads: Vec<WorkloadJson>,
    decisions: Vec<Decisions>,
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

/// How many keys of workloads name no policy.
pub(super) fn dangling(workloads: &Workloads) -> usize {
    let all = workloads.by_address.values().flat_map(|at| at.iter());
    all.map(|workload| workload.policies.dangling().len()).sum()
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
