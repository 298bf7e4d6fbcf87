//! What there is to say about an Ingress that is about to be written: pure, but for the store, which is as before
//! when it is done.
//!
//! Refused is what takes a path from another Ingress or is taken, and a value that cannot be used; but only where it
//! is new: an update must be able to leave alone what was there before, or to repair the rest. Everything else, such
//! as a Secret that is missing or not for the host, is a warning.

use std::sync::Arc;

use super::Review;
use crate::compile::{Compiled, compile, is_served};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::settings::Settings;
use crate::store::objects::{Decoded, Findings, Ingress, Kind, Node, Object};
use crate::store::{Changes, Store};

const API_VERSION: &str = "networking.k8s.io/v1";
const PATH_CONFLICT: &str = "PathConflict";
/// Findings of a compile about values that cannot be used. Those of the decoder all are.
const INVALID: [&str; 4] = ["InvalidAnnotation", "InvalidHost", "InvalidPath", "InvalidSecretName"];

/// What the answer will say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the Ingress must not be written; empty where it may.
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
}

/// Judges the candidate of `review` by what is in `store`, of which `compiled` was made last. `now` is in seconds
/// since the Unix epoch.
pub fn judge(
    review: &Review<'_>,
    store: &mut Store,
    compiled: &Compiled,
    settings: &Arc<Settings>,
    now: i64,
) -> Verdict {
    let Some(candidate) = &review.candidate else { return Verdict::default() };
    let (Some(ingress), decoding) = decode(candidate) else {
        // Whose it is cannot be told from what cannot be read.
        return Verdict::default();
    };
    if !is_watched(store, settings, &ingress) || !is_served(store, settings, &ingress) {
        return Verdict::default();
    }
    let decoding_before = review.before.as_ref().map(|before| decode(before).1).unwrap_or_default();
    let about = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let look = |store: &Store, changes: &Changes| compile(store, changes, settings, compiled, now);
    let next = store.rehearse(ingress, look);

    let news = next.report.news_since(&compiled.report);
    let is_ours = |finding: &Diagnostic| finding.object.as_ref() == Some(&about);
    let conflicts = news.iter().copied().filter(|finding| finding.reason == PATH_CONFLICT);
    let invalid = news.iter().copied().filter(|finding| {
        is_ours(finding) && finding.severity == Severity::Error && INVALID.contains(&finding.reason)
    });
    let undecodable = decoding
        .iter()
        .filter(|finding| finding.severity == Severity::Error && !decoding_before.contains(finding));
    let mut refused: Vec<&Diagnostic> = conflicts.chain(invalid).chain(undecodable).collect();
    refused.sort();
    refused.dedup();

    let known = decoding.iter().chain(next.report.all());
    let mut warned: Vec<&Diagnostic> = known
        .filter(|finding| is_ours(finding) && finding.severity > Severity::Info && !refused.contains(finding))
        .collect();
    warned.sort();
    warned.dedup();
    Verdict {
        refusals: refused.into_iter().map(|finding| sentence(finding, &about)).collect(),
        warnings: warned.into_iter().map(|finding| sentence(finding, &about)).collect(),
    }
}

/// The Ingress, unless nothing of it can be used, and what there is to say about its text.
fn decode(node: &Node<'_>) -> (Option<Ingress>, Vec<Diagnostic>) {
    let mut findings = Findings::new();
    let ingress = match Object::decode(API_VERSION, Kind::Ingress.as_str(), node, &mut findings) {
        Decoded::Object(Object::Ingress(ingress)) => Some(ingress),
        _ => None,
    };
    (ingress, findings.into_list())
}

/// Whether its namespace is one that is watched.
fn is_watched(store: &Store, settings: &Settings, ingress: &Ingress) -> bool {
    let namespace = &ingress.metadata.name.namespace;
    let only = settings.watch_namespace.as_ref();
    only.is_none_or(|only| **only == **namespace)
        && (settings.watch_namespace_selector.is_none() || store.namespace(namespace).is_some())
}

/// A finding for people; one about another object names it.
fn sentence(finding: &Diagnostic, about: &ObjectRef) -> String {
    let field = match finding.field.as_str() {
        "" => String::new(),
        field => format!("{field}: "),
    };
    let end = if finding.message.ends_with('.') { "" } else { "." };
    match &finding.object {
        Some(object) if object != about => {
            format!("{} {}/{}: {field}{}{end}", object.kind, object.namespace, object.name, finding.message)
        }
        _ => format!("{field}{}{end}", finding.message),
    }
}

#[cfg(test)]
mod tests;
