//! Which workload a command is about: as told, or the only one that the policies can be about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;

use super::input::Documents;
use crate::compile::policies::{Mesh, Policies};
use crate::snapshot::policies::{Authorization, Scope, WorkloadPolicies};
use crate::store::objects::ObjectName;

/// Where objects and workloads are that name no namespace, as kubectl has it.
const DEFAULT_NAMESPACE: &str = "default";

#[derive(Args, Debug)]
pub(super) struct WorkloadArgs {
    /// The workload whose policies apply.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = workload_name)]
    pub workload: Option<ObjectName>,

    /// The labels of the workload.
    #[arg(long, value_name = "KEY=VALUE,…")]
    labels: Option<Labels>,
}

/// A workload as policies see it.
pub(super) struct Workload {
    /// `None` where it wasn't told.
    pub name: Option<ObjectName>,
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
}

impl WorkloadArgs {
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.labels.as_ref().map_or(&NONE, |labels| &labels.0)
    }

    /// The namespace of documents that name none: that of the workload, or kubectl's.
    pub fn default_namespace(&self) -> &str {
        self.workload.as_ref().map_or(DEFAULT_NAMESPACE, |workload| &workload.namespace)
    }

    pub fn has_labels(&self) -> bool {
        self.labels.is_some()
    }

    /// The workload that was told. Where none was, the one that all policies agree with: in the one namespace
    /// that they are in, with all the labels that they select; an error where there is no such workload.
    pub fn choose(&self, documents: &Documents, mesh: &Mesh) -> Result<Workload, String> {
        if let Some(name) = &self.workload {
            let labels = self.labels().clone();
            return Ok(Workload { namespace: name.namespace.to_string(), name: Some(name.clone()), labels });
        }
        let namespace = the_namespace(documents, mesh)?;
        let labels = match &self.labels {
            Some(labels) => labels.0.clone(),
            None => the_labels(documents)?,
        };
        Ok(Workload { name: None, namespace, labels })
    }
}

impl Workload {
    /// The policies that apply. A ready document doesn't say which workloads list it, so this one does.
    pub fn policies(&self, documents: &Documents, compiled: &Policies) -> WorkloadPolicies {
        let applies = |policy: &&Arc<Authorization>| match (policy.scope, &self.name) {
            (Scope::Namespace, Some(name)) => {
                policy.name.namespace.is_empty() || policy.name.namespace == name.namespace
            }
            _ => true,
        };
        let compiled = compiled.workload(&self.namespace, &self.labels);
        let ready = documents.authorizations.iter().filter(applies);
        WorkloadPolicies::new(compiled.policies().chain(ready).cloned())
    }
}

fn the_namespace(documents: &Documents, mesh: &Mesh) -> Result<String, String> {
    let namespaces: BTreeSet<&str> = documents
        .objects()
        .map(|(metadata, _)| &*metadata.name.namespace)
        .filter(|namespace| *namespace != mesh.root_namespace)
        .collect();
    let mut namespaces = namespaces.into_iter();
    match (namespaces.next(), namespaces.next()) {
        (None, _) => Ok(DEFAULT_NAMESPACE.into()),
        (Some(only), None) => Ok(only.into()),
        (Some(_), Some(_)) => {
            Err("the policies are of several namespaces: say which workload is meant with --workload".into())
        }
    }
}

fn the_labels(documents: &Documents) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in documents.objects().flat_map(|(_, selector)| selector) {
        if labels.insert(key.clone(), value.clone()).is_some_and(|other| other != *value) {
            return Err(format!(
                "the policies select different values of label '{key}': say which workload is meant with \
                 --workload and --labels"
            ));
        }
    }
    Ok(labels)
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "workload {name}")?,
            None => write!(f, "a workload of namespace {}", self.namespace)?,
        }
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        match labels.is_empty() {
            true => f.write_str(" without labels"),
            false => write!(f, " with labels {}", labels.join(",")),
        }
    }
}

fn workload_name(text: &str) -> Result<ObjectName, String> {
    let (namespace, name) = text.split_once('/').unwrap_or((DEFAULT_NAMESPACE, text));
    match namespace.is_empty() || name.is_empty() || name.contains('/') {
        false => Ok(ObjectName::new(namespace, name)),
        true => Err("this is not of the form NAMESPACE/NAME".into()),
    }
}

#[derive(Clone, Debug)]
struct Labels(BTreeMap<String, String>);

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let label = |label: &str| {
            let (key, value) =
                label.split_once('=').ok_or_else(|| format!("'{label}' is not of the form KEY=VALUE"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        };
        text.split(',')
            .filter(|label| !label.trim().is_empty())
            .map(label)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}
