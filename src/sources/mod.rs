//! Where objects come from. Each source is a task on the control runtime that sends [`Batch`]es; whoever
//! owns the store applies them. Nothing ever flows back into a source.

pub mod directory;
pub mod kubernetes;
pub mod mesh_files;
pub mod ocsp;
pub mod origins;

use std::path::PathBuf;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef};
use crate::store::Event;
use crate::store::objects::ObjectName;
use origins::Origin;

/// One consistent revision: everything in it is applied before the next compile.
#[derive(Debug, Default)]
pub struct Batch {
    /// Only what differs from what the source sent before.
    pub events: Vec<Event>,
    /// Objects that are defined by another file than before, with a source that reads files.
    pub origins: Vec<Origin>,
    /// What is now wrong with these files; takes the place of what was said about them before.
    pub findings: Vec<FileFindings>,
    /// The same for objects that come from an API and not from a file.
    pub object_findings: Vec<ObjectFindings>,
    /// What the status of Ingresses says, where the Ingress or its status is new.
    pub ingress_statuses: Vec<IngressStatus>,
    /// The same of AuthorizationPolicies.
    pub policy_statuses: Vec<PolicyStatus>,
    /// How the parts of the source are doing, where that has changed.
    pub states: Vec<WatchState>,
    /// How a source without such parts is doing, where that has changed.
    pub health: Option<Health>,
    /// Parts of the source that there are no longer, by the names of their states.
    pub ended: Vec<Arc<str>>,
    /// The source has listed everything once. True in its first batch and from then on.
    pub synced: bool,
}

/// All findings of one file; empty when a fault was repaired or the file is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFindings {
    pub file: Arc<PathBuf>,
    pub diagnostics: Vec<Diagnostic>,
}

/// All findings of one object's decoding; empty when a fault was repaired or the object is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFindings {
    pub about: ObjectRef,
    pub diagnostics: Vec<Diagnostic>,
}

/// What the API server has in the status of an Ingress. Nobody but `status` needs it, so it is kept out of the
/// object: a new address is no reason to compile anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressStatus {
    pub ingress: ObjectName,
    pub uid: Arc<str>,
    /// `status.loadBalancer.ingress`, in order.
    pub addresses: Vec<Address>,
}

/// What the API server has in the status of an AuthorizationPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStatus {
    pub policy: ObjectName,
    /// As the API server serves it.
    pub api_version: &'static str,
    /// `metadata.generation`: counts the versions of the spec.
    pub generation: i64,
    /// The condition of transport policy, where there is one.
    pub condition: Option<PolicyCondition>,
}

/// A condition of a policy's status, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCondition {
    pub accepted: bool,
    pub reason: String,
    pub message: String,
    pub observed_generation: i64,
}

/// The type of the condition that says what transport policy made of a policy. Its name is istiod's, which tools
/// look for.
pub const POLICY_CONDITION: &str = "ZtunnelAccepted";

/// Where clients find the gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    Ip(String),
    Hostname(String),
}

impl Address {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ip(text) | Self::Hostname(text) => text,
        }
    }
}

/// How a source as a whole is doing. That it is ill is among its findings as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    #[default]
    Well,
    /// What it brings may be old or not all, for this reason.
    Ill(String),
}

/// How one part of a source is doing, such as the watch of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchState {
    pub name: Arc<str>,
    /// It has listed everything at least once.
    pub synced: bool,
    /// The API server does not have the kind, which is no error: there is nothing to miss.
    pub absent: bool,
    /// Why changes do not arrive at the moment; `None` where they do.
    pub last_error: Option<String>,
    /// Since when it is so, in seconds since the Unix epoch.
    pub since: i64,
    /// Its objects are those kept in the state directory, and were up to date then; `None` where they come from
    /// the source itself.
    pub stale_since: Option<i64>,
}
