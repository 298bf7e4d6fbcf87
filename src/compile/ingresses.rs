//! What there is to say about an Ingress by itself, whatever other objects exist. Paths, which may mean something else
//! for the sake of another Ingress, and conflicts between Ingresses are found by `hosts`, missing Services by `clusters`.

use super::auth;
use super::certificates;
use super::classes::{Classes, NotServed};
use crate::annotations;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::settings::{Settings, choices::Source};
use crate::store::Store;
use crate::store::objects::{Backend, Ingress, IngressRule, Kind};

pub(super) fn diagnose_ingress(
    ingress: &Ingress,
    store: &Store,
    classes: &Classes,
    settings: &Settings,
) -> Vec<Diagnostic> {
    let mut findings =
        Findings { object: ObjectRef::new(Kind::Ingress, &ingress.metadata.name), found: Vec::new() };
    if let Some(reason) = classes.refusal(ingress) {
        findings.class(reason, ingress, settings);
        return findings.found;
    }
    findings.found.extend(annotations::diagnose(&ingress.metadata, settings));
    if !annotations::is_canary(&ingress.metadata, settings) {
        findings.found.extend(auth::finding(ingress, settings, store));
        findings.found.extend(certificates::ingress_tls_findings(ingress));
    }
    for rule in &ingress.rules {
        findings.rule(rule, ingress.default_backend.is_some());
    }
    if ingress.default_backend == Some(Backend::Resource) {
        findings.resource("spec.defaultBackend.resource".into());
    }
    findings.found
}

struct Findings {
    object: ObjectRef,
    found: Vec<Diagnostic>,
}

impl Findings {
    fn add(&mut self, severity: Severity, field: String, reason: &'static str, message: String) {
        self.found.push(Diagnostic::new(severity, self.object.clone(), field, reason, message));
    }

    /// In a cluster, the Ingresses of other controllers are not our business; among manifests that were handed
    /// to us, one that is left out is worth a word.
    fn class(&mut self, reason: NotServed, ingress: &Ingress, settings: &Settings) {
        let class = quoted(ingress.class.as_deref().unwrap_or_default());
        let ours = &settings.ingress_class;
        let (reason, message) = match reason {
            NotServed::Foreign if settings.source == Source::Directory => {
                ("OtherIngressClass", "Not served: its class belongs to another controller.".into())
            }
            NotServed::Unknown => (
                "IngressClassNotFound",
                format!("Not served: there is no IngressClass {class}, and ours is called {ours}."),
            ),
            NotServed::Classless => {
                ("NoIngressClass", format!("Not served: it has no class; ours is called {ours}."))
            }
            NotServed::Foreign => return,
        };
        self.add(Severity::Info, "spec.ingressClassName".into(), reason, message);
    }

    fn rule(&mut self, rule: &IngressRule, has_default: bool) {
        let index = rule.index;
        let host = rule.host.as_deref().unwrap_or("");
        if let Err(error) = HostPattern::parse(host) {
            let message = format!("{} is not a host: {error}. The rule is left out.", quoted(host));
            self.add(Severity::Error, format!("spec.rules[{index}].host"), "InvalidHost", message);
        }
        if rule.paths.is_empty() && !has_default {
            let message = "It has no paths and there is no default backend: all its requests get 404.".into();
            self.add(Severity::Warning, format!("spec.rules[{index}].http.paths"), "EmptyRule", message);
        }
        for path in &rule.paths {
            let field = format!("spec.rules[{index}].http.paths[{}]", path.index);
            if path.backend == Backend::Resource {
                self.resource(format!("{field}.backend.resource"));
            }
        }
    }

    fn resource(&mut self, field: String) {
        let message = "Resource backends are not supported; requests are answered with 404.".into();
        self.add(Severity::Warning, field, "ResourceBackend", message);
    }
}
