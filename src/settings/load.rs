//! Reads settings: flags win over the environment, that over the settings file, that over the ConfigMap.
//!
//! The app loads once at start and `reload` again whenever the file or the ConfigMap changes. All problems of
//! all layers are collected, so that one run shows everything there is to repair; with any problem there are no
//! settings at all.

mod document;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::Settings;
use super::check::{broken_rules, doubts};
use super::field::{Field, display};
use super::ingress_nginx::{self, Treatment};
use super::schema::{FIELDS, field};
use super::value::{Invalid, Raw};
use crate::store::objects::ConfigMap;

/// Everything that settings are read from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// What the command line gives, by settings key.
    pub flags: Vec<(&'static str, Raw)>,
    /// The environment; variables that are not ours are passed over.
    pub environment: Vec<(String, String)>,
    pub file: Option<PathBuf>,
    /// The ConfigMap named by the setting `configmap`, once it is known.
    pub config_map: Option<ConfigMap>,
}

/// Settings, and what should be said about where they came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub settings: Settings,
    pub notices: Vec<Notice>,
}

/// Something accepted that does not do what its author may expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Notice {
    #[serde(serialize_with = "as_text")]
    pub origin: Origin,
    pub key: String,
    pub message: String,
}

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere; a rule between two settings may be broken by the other one.
    Default,
    Flag,
    Environment,
    /// The settings file, and the line; 0 where it is not known.
    File(Arc<PathBuf>, u64),
    /// The ConfigMap, as namespace/name.
    ConfigMap(Arc<str>),
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read settings file {}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// Not YAML, or not a flat map.
    #[error("{}:{line}: {message}", file.display())]
    Syntax { file: PathBuf, line: u64, message: String },
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<Problem>),
}

/// One thing to repair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {fault}", origin.prefix(), origin.spell(key))]
pub struct Problem {
    pub origin: Origin,
    /// The settings key, or the name that is none.
    pub key: String,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("unknown setting{}", nearest.map(|key| format!("; did you mean {key}?")).unwrap_or_default())]
    Unknown { nearest: Option<&'static str> },
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A key of ingress-nginx that Portcullis does not take.
    #[error("not supported: {0}")]
    Refused(&'static str),
    /// A value that its type allows and its meaning doesn't.
    #[error("{value:?} {expected}")]
    Broken { value: String, expected: &'static str },
    /// A setting that has to be given elsewhere.
    #[error("{0}")]
    Misplaced(&'static str),
}

impl LoadError {
    /// Whether the command line alone is to blame.
    pub fn is_wrong_usage(&self) -> bool {
        matches!(self, Self::Problems(problems) if problems.iter().all(|problem| problem.origin == Origin::Flag))
    }
}

impl Inputs {
    /// How to log where there are no settings to go by: what flags and environment say about that, over the defaults.
    pub fn log_settings(&self) -> Settings {
        let mut settings = Settings::default();
        for field in ["log-level", "log-format"].into_iter().filter_map(field) {
            let variable =
                self.environment.iter().find(|(name, value)| *name == field.env() && !value.is_empty());
            let variable = variable.map(|(_, value)| Raw::Text(value.clone()));
            let flag = self.flags.iter().find(|(key, _)| *key == field.key).map(|(_, value)| value.clone());
            if let Some(value) = flag.or(variable) {
                // A bad one is a problem like the others, and told with them.
                let _ = (field.set)(&mut settings, &value);
            }
        }
        settings
    }

    /// Merges all layers over the defaults.
    pub fn load(&self) -> Result<Loaded, LoadError> {
        let mut merge = Merge::default();
        if let Some(config_map) = &self.config_map {
            let origin = Origin::ConfigMap(config_map.metadata.name.to_string().into());
            for (key, value) in &config_map.data {
                merge.config_map_entry(&origin, key, &Raw::Text(value.clone()));
            }
        }
        if let Some(file) = &self.file {
            let text = std::fs::read_to_string(file)
                .map_err(|source| LoadError::Read { file: file.clone(), source })?;
            let name = Arc::new(file.clone());
            for entry in document::parse(file, &text)? {
                merge.entry(&Origin::File(name.clone(), entry.line), &entry.key, &entry.value);
            }
        }
        for (name, value) in &self.environment {
            merge.variable(name, value);
        }
        for (key, value) in &self.flags {
            merge.entry(&Origin::Flag, key, value);
        }
        merge.finish()
    }
}

/// The layers read so far.
#[derive(Default)]
struct Merge {
    settings: Settings,
    /// Which layer each key that is set got its value from.
    origins: BTreeMap<&'static str, Origin>,
    notices: Vec<Notice>,
    problems: Vec<Problem>,
}

impl Merge {
    fn entry(&mut self, origin: &Origin, key: &str, value: &Raw) {
        if let Some(field) = field(key) {
            return self.set(origin, field, value);
        }
        match ingress_nginx::treatment(key, value) {
            Some(Treatment::SameAs(key, value)) => {
                if let Some(field) = field(key) {
                    self.set(origin, field, &value);
                }
            }
            Some(Treatment::NoEffect(reason)) => self.notice(origin, key, format!("has no effect: {reason}")),
            Some(Treatment::Refused(reason)) => self.problem(origin, key, Fault::Refused(reason)),
            None => self.problem(origin, key, Fault::Unknown { nearest: nearest(key) }),
        }
    }

    fn config_map_entry(&mut self, origin: &Origin, key: &str, value: &Raw) {
        match NEEDED_TO_READ_IT.contains(&key) {
            true => self.problem(
                origin,
                key,
                Fault::Misplaced("is needed before the ConfigMap can be read; give it elsewhere"),
            ),
            false => self.entry(origin, key, value),
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        let Some(suffix) = name.strip_prefix(ENVIRONMENT_PREFIX) else { return };
        // An empty variable is how scripts leave one unset.
        if value.is_empty() || suffix == "SETTINGS" || is_service_link(suffix, value) {
            return;
        }
        let key = suffix.to_ascii_lowercase().replace('_', "-");
        match FIELDS.iter().find(|field| field.key == key) {
            Some(field) => self.set(&Origin::Environment, field, &Raw::Text(value.to_owned())),
            // The environment belongs to others as well; what isn't known there is no error.
            None => {
                self.notice(&Origin::Environment, &key, Fault::Unknown { nearest: nearest(&key) }.to_string())
            }
        }
    }

    fn set(&mut self, origin: &Origin, field: &Field, value: &Raw) {
        match (field.set)(&mut self.settings, value) {
            Ok(()) => {
                self.origins.insert(field.key, origin.clone());
            }
            Err(invalid) => self.problem(origin, field.key, invalid.into()),
        }
    }

    fn origin_of(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    fn notice(&mut self, origin: &Origin, key: &str, message: String) {
        self.notices.push(Notice { origin: origin.clone(), key: key.into(), message });
    }

    fn problem(&mut self, origin: &Origin, key: &str, fault: Fault) {
        self.problems.push(Problem { origin: origin.clone(), key: key.into(), fault });
    }

    fn finish(mut self) -> Result<Loaded, LoadError> {
        for broken in broken_rules(&self.settings) {
            let origin = self.origin_of(broken.key);
            let value = field(broken.key).map(|field| display(&(field.get)(&self.settings)));
            // A URL may carry a password, which no error repeats.
            let value = value.filter(|value| !value.contains('@')).unwrap_or_else(|| "…".into());
            self.problem(&origin, broken.key, Fault::Broken { value, expected: broken.reason });
        }
        if !self.problems.is_empty() {
            return Err(LoadError::Problems(self.problems));
        }
        for doubt in doubts(&self.settings) {
            let origin = self.origin_of(doubt.key);
            self.notice(&origin, doubt.key, doubt.reason.into());
        }
        Ok(Loaded { settings: self.settings, notices: self.notices })
    }
}

const ENVIRONMENT_PREFIX: &str = "PORTCULLIS_";

/// What leads to the ConfigMap can't be in it.
const NEEDED_TO_READ_IT: &[&str] = &["source", "manifests", "kubeconfig", "watch-namespace", "configmap"];

/// Whether Kubernetes made this variable: in the namespace of a Service `portcullis-http` every container
/// finds `PORTCULLIS_HTTP_PORT=tcp://10.0.0.1:80` and more of the kind.
fn is_service_link(suffix: &str, value: &str) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let ends = ["SERVICE_HOST", "SERVICE_PORT", "_TCP", "_UDP", "_SCTP"];
    let parts = ["SERVICE_PORT_", "_TCP_", "_UDP_", "_SCTP_"];
    (is_address && suffix.ends_with("PORT"))
        || ends.iter().any(|end| suffix.ends_with(end))
        || parts.iter().any(|part| suffix.contains(part))
}

/// The key that was probably meant.
fn nearest(unknown: &str) -> Option<&'static str> {
    let distance = |field: &Field| strsim::damerau_levenshtein(field.key, unknown);
    let (closest, edits) = FIELDS.iter().map(|field| (field, distance(field))).min_by_key(|(_, d)| *d)?;
    (edits <= 1 + unknown.len() / 5).then_some(closest.key)
}

impl Origin {
    /// The start of a message: a place and a colon, or nothing where the name of the setting says it all.
    fn prefix(&self) -> String {
        match self {
            Self::Default | Self::Flag | Self::Environment => String::new(),
            Self::File(..) | Self::ConfigMap(_) => format!("{self}: "),
        }
    }

    /// The name of a setting, as it is written there.
    fn spell(&self, key: &str) -> String {
        match self {
            Self::Flag => format!("--{key}"),
            Self::Environment => {
                format!("{ENVIRONMENT_PREFIX}{}", key.to_ascii_uppercase().replace('-', "_"))
            }
            Self::Default | Self::File(..) | Self::ConfigMap(_) => key.to_owned(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Flag => f.write_str("flag"),
            Self::Environment => f.write_str("environment"),
            Self::File(file, 0) => write!(f, "{}", file.display()),
            Self::File(file, line) => write!(f, "{}:{line}", file.display()),
            Self::ConfigMap(name) => write!(f, "ConfigMap {name}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", self.origin.prefix(), self.origin.spell(&self.key), self.message)
    }
}

fn as_text<S: serde::Serializer>(origin: &Origin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(origin)
}

#[cfg(test)]
mod tests;
