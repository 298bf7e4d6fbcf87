//! Findings as Events of the objects they are about, for `kubectl describe` and for whoever collects Events.
//!
//! Each finding makes one Event, when it has lasted for a moment: what is repaired by the next object of a
//! `kubectl apply` is nobody's business. API servers forget Events after an hour, so one that lasts is said again before.
//! Names follow from the content, from the clock and from which object it is, so that another replica, or this one after
//! a restart, repeats nothing meanwhile, and an object that was deleted and made anew has Events of its own.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, ObjectMeta, PostParams};
use kube::core::Status;
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::MANAGER;
use super::rights::Missing;
use crate::clock;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::sources::IngressStatus;
use crate::sources::kubernetes::Resource;
use crate::store::objects::{Kind, ObjectName};

/// How long a finding lasts before it is worth an Event.
pub(super) const LASTING: Duration = Duration::from_secs(2);
/// How long an Event speaks for its finding, in seconds.
const PERIOD: u64 = 50 * 60;
/// Events that may be written at once, and how long one more takes to be allowed.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(2);
/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);
/// The API takes no longer notes.
const LONGEST_NOTE: usize = 1000;

/// What has been said, and how much more may be.
pub(super) struct Writer {
    /// The pod that reports.
    instance: String,
    findings: HashMap<Diagnostic, Finding>,
    bucket: Bucket,
    missing: Missing,
}

struct Finding {
    since: Instant,
    /// When it was said last, and of which object.
    announced: Option<Announced>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Announced {
    period: u64,
    /// The uid, where it is known without asking.
    of: Option<Arc<str>>,
}

/// What came of an Event.
enum Outcome {
    /// It is there, or nobody will ever have it.
    Said,
    Forbidden(String),
    Failed,
}

impl Writer {
    pub fn new(instance: String) -> Self {
        Self {
            instance,
            findings: HashMap::new(),
            bucket: Bucket::new(Instant::now()),
            missing: Missing::default(),
        }
    }

    /// Takes note of what there is to say now.
    pub fn observe(&mut self, diagnostics: &[Diagnostic]) {
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.findings);
        for diagnostic in diagnostics.iter().filter(|found| is_worth_an_event(found)) {
            let finding = before.remove(diagnostic).unwrap_or(Finding { since: now, announced: None });
            self.findings.insert(diagnostic.clone(), finding);
        }
    }

    /// Writes what has lasted and was not said in this period, for as long as `leader` holds. Whether something is left.
    pub async fn write(
        &mut self,
        client: &Client,
        ingresses: &OrdMap<ObjectName, Arc<IngressStatus>>,
        leader: &watch::Receiver<bool>,
    ) -> bool {
        let mut left = false;
        let now = clock::seconds();
        let mut open = BTreeSet::new();
        for (diagnostic, finding) in &mut self.findings {
            let Some(about) = &diagnostic.object else { continue };
            let of = known_uid(about, ingresses).cloned();
            let announced = Announced { period: period(diagnostic, now), of };
            if finding.announced.as_ref() == Some(&announced) {
                continue;
            }
            let namespace = namespace_of(about);
            open.insert(namespace.clone());
            if self.missing.holds(&namespace, Instant::now()) {
                continue;
            }
            let due = finding.since.elapsed() >= lasting(diagnostic) && *leader.borrow();
            if !due || !self.bucket.take(Instant::now()) {
                left = true;
                continue;
            }
            let uid = match &announced.of {
                Some(uid) => Some(uid.to_string()),
                None => uid_of(client, about).await,
            };
            let outcome =
                create(client, event(diagnostic, about, announced.period, uid, &self.instance)).await;
            match outcome {
                Outcome::Forbidden(message) => {
                    self.missing.refused(&namespace, message, Instant::now());
                    continue;
                }
                Outcome::Said => finding.announced = Some(announced),
                Outcome::Failed => left = true,
            }
            self.missing.given(&namespace);
        }
        self.missing.only(&open);
        left
    }

    /// What keeps findings from becoming Events.
    pub fn findings(&self) -> Option<Diagnostic> {
        self.missing.finding("EventsForbidden", "Events")
    }
}

fn hash_of(diagnostic: &Diagnostic) -> u64 {
    let mut hasher = DefaultHasher::new();
    diagnostic.hash(&mut hasher);
    hasher.finish()
}

/// Counts the times that a finding which lasts for ever has been said `now`. Periods of different findings begin at
/// different times, so that not all are said again at once.
fn period(diagnostic: &Diagnostic, now: u64) -> u64 {
    now.saturating_add(hash_of(diagnostic) % PERIOD) / PERIOD
}

/// How long a finding has to last before it is worth an Event. Settings are not repaired by the next object of a
/// `kubectl apply`, and the restart that they ask for may follow at once.
fn lasting(diagnostic: &Diagnostic) -> Duration {
    match diagnostic.object.as_ref().map(|about| about.kind) {
        Some(Kind::ConfigMap) => Duration::ZERO,
        _ => LASTING,
    }
}

/// The uid of the object that a finding is about: `kubectl describe` looks for it. It is asked for when it is needed,
/// since no source keeps it of all that there are.
async fn uid_of(client: &Client, about: &ObjectRef) -> Option<String> {
    let resource = api_resource(about.kind)?;
    let objects: Api<DynamicObject> = match about.kind.is_cluster_scoped() {
        true => Api::all_with(client.clone(), &resource),
        false => Api::namespaced_with(client.clone(), &about.namespace, &resource),
    };
    // There is a right to list, and none to get.
    let named = ListParams::default().fields(&format!("metadata.name={}", about.name));
    let found = timeout(REQUEST, objects.list_metadata(&named)).await.ok()?.ok()?;
    found.items.into_iter().next()?.metadata.uid
}

fn api_resource(kind: Kind) -> Option<ApiResource> {
    let resource = Resource::of(kind)?;
    let api_version = resource.api_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.to_string(),
        plural: resource.plural.into(),
    })
}

fn is_worth_an_event(diagnostic: &Diagnostic) -> bool {
    diagnostic.severity > Severity::Info && diagnostic.object.is_some()
}

async fn create(client: &Client, event: Event) -> Outcome {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    match timeout(REQUEST, events.create(&PostParams::default(), &event)).await {
        Ok(Ok(_)) => Outcome::Said,
        Ok(Err(Error::Api(status))) => match status.code {
            // It was said before in this period, or the namespace is going.
            404 | 409 => Outcome::Said,
            403 if is_terminating(&status) => Outcome::Said,
            403 => {
                tracing::warn!(message = status.message, "an Event was refused");
                Outcome::Forbidden(status.message)
            }
            422 => {
                tracing::warn!(message = status.message, "an Event was refused");
                Outcome::Said
            }
            _ => Outcome::Failed,
        },
        Ok(Err(_)) | Err(_) => Outcome::Failed,
    }
}

/// Nothing may be made any more in a namespace that is going, which is also called forbidden.
fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

fn event(
    diagnostic: &Diagnostic,
    about: &ObjectRef,
    period: u64,
    uid: Option<String>,
    instance: &str,
) -> Event {
    let mut hasher = DefaultHasher::new();
    (hash_of(diagnostic), period, &uid).hash(&mut hasher);
    let short: String = about.name.chars().take(200).collect();
    let metadata = ObjectMeta {
        name: Some(format!("{}.{:016x}", short.trim_end_matches(['.', '-']), hasher.finish())),
        namespace: Some(namespace_of(about).to_string()),
        ..ObjectMeta::default()
    };
    Event {
        metadata,
        event_time: Some(MicroTime(Timestamp::now())),
        action: Some(if about.kind == Kind::ConfigMap { "Configure" } else { "Compile" }.into()),
        reason: Some(diagnostic.reason.to_owned()),
        note: Some(note(diagnostic)),
        regarding: Some(reference(about, uid)),
        reporting_controller: Some(MANAGER.into()),
        reporting_instance: Some(instance.to_owned()),
        type_: Some("Warning".into()),
        ..Event::default()
    }
}

/// Where the Events of an object are kept: those of objects without a namespace in `default`.
fn namespace_of(about: &ObjectRef) -> Arc<str> {
    if about.namespace.is_empty() { "default".into() } else { about.namespace.clone() }
}

fn note(diagnostic: &Diagnostic) -> String {
    let note = match diagnostic.field.as_str() {
        "" => diagnostic.message.clone(),
        field => format!("{field}: {}", diagnostic.message),
    };
    note.chars().take(LONGEST_NOTE).collect()
}

/// The uid of an Ingress, which its source keeps.
fn known_uid<'a>(
    about: &ObjectRef,
    ingresses: &'a OrdMap<ObjectName, Arc<IngressStatus>>,
) -> Option<&'a Arc<str>> {
    let name = ObjectName::new(about.namespace.clone(), about.name.clone());
    ingresses.get(&name).filter(|_| about.kind == Kind::Ingress).map(|ingress| &ingress.uid)
}

/// With the uid where it is known: `kubectl describe` looks for it.
fn reference(about: &ObjectRef, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Resource::of(about.kind).map(|resource| resource.api_version().to_owned()),
        kind: Some(about.kind.to_string()),
        namespace: Some(about.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
        name: Some(about.name.to_string()),
        uid,
        ..ObjectReference::default()
    }
}

/// A token bucket.
struct Bucket {
    tokens: u32,
    filled: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        while self.tokens < BURST && now.duration_since(self.filled) >= REFILL {
            self.tokens += 1;
            self.filled += REFILL;
        }
        if self.tokens == BURST {
            self.filled = now;
        }
        let taken = self.tokens.checked_sub(1);
        self.tokens = taken.unwrap_or_default();
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(reason: &'static str, severity: Severity) -> Diagnostic {
        let about = ObjectRef::new(Kind::Ingress, &ObjectName::new("shop", "web"));
        Diagnostic::new(severity, about, "spec.tls[0].secretName", reason, "There is no Secret shop/tls.")
    }

    fn made(diagnostic: &Diagnostic) -> Event {
        made_in(diagnostic, 7)
    }

    fn made_in(diagnostic: &Diagnostic, period: u64) -> Event {
        made_of(diagnostic, period, "1234")
    }

    fn made_of(diagnostic: &Diagnostic, period: u64, uid: &str) -> Event {
        event(diagnostic, diagnostic.object.as_ref().unwrap(), period, Some(uid.to_owned()), "pod-1")
    }

    #[test]
    fn an_event_says_what_the_finding_says_and_can_be_found_from_the_object() {
        let event = made(&found("SecretNotFound", Severity::Error));
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.api_version.as_deref(), Some("networking.k8s.io/v1"));
        assert_eq!((regarding.kind.as_deref(), regarding.name.as_deref()), (Some("Ingress"), Some("web")));
        assert_eq!(regarding.uid.as_deref(), Some("1234"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(event.reason.as_deref(), Some("SecretNotFound"));
        assert_eq!(event.note.as_deref(), Some("spec.tls[0].secretName: There is no Secret shop/tls."));
    }

    #[test]
    fn the_same_finding_has_the_same_name_and_another_one_another() {
        let name = |reason| made(&found(reason, Severity::Error)).metadata.name.unwrap();
        assert_eq!(name("SecretNotFound"), name("SecretNotFound"));
        assert_ne!(name("SecretNotFound"), name("KeyMismatch"));
        let anew = made_of(&found("SecretNotFound", Severity::Error), 7, "5678");
        assert_ne!(name("SecretNotFound"), anew.metadata.name.unwrap(), "of an object made anew");
    }

    #[test]
    fn what_lasts_is_said_again_before_the_api_server_forgets_it() {
        let finding = found("SecretNotFound", Severity::Error);
        let name = |now| made_in(&finding, period(&finding, now)).metadata.name.unwrap();
        let names: std::collections::BTreeSet<_> = (0..24 * 3600).step_by(60).map(name).collect();
        assert!((28..=30).contains(&names.len()), "{} Events a day", names.len());
        assert_ne!(name(0), name(3600));
    }

    #[test]
    fn every_kind_can_be_asked_for_its_uid() {
        let policy = api_resource(Kind::AuthorizationPolicy).unwrap();
        assert_eq!((&*policy.group, &*policy.version), ("security.istio.io", "v1"));
        assert_eq!((&*policy.kind, &*policy.plural), ("AuthorizationPolicy", "authorizationpolicies"));
        let secret = api_resource(Kind::Secret).unwrap();
        assert_eq!((&*secret.group, &*secret.version), ("", "v1"));
    }

    #[test]
    fn what_is_gone_and_comes_back_is_news_but_what_stays_is_not() {
        let mut writer = Writer::new("pod-1".into());
        let finding = found("SecretNotFound", Severity::Error);
        writer.observe(std::slice::from_ref(&finding));
        let announced = Some(Announced { period: 7, of: None });
        writer.findings.get_mut(&finding).unwrap().announced = announced.clone();
        writer.observe(&[finding.clone(), found("NoIngressClass", Severity::Info)]);
        assert_eq!(writer.findings.len(), 1, "what is merely informative makes no Event");
        assert_eq!(writer.findings[&finding].announced, announced);
        writer.observe(&[]);
        writer.observe(std::slice::from_ref(&finding));
        assert_eq!(writer.findings[&finding].announced, None);
    }

    #[test]
    fn a_burst_is_let_through_and_then_one_at_a_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        assert!((0..BURST).all(|_| bucket.take(start)));
        assert!(!bucket.take(start));
        assert!(bucket.take(start + REFILL));
        assert!(!bucket.take(start + REFILL));
        let later = start + REFILL * 1000;
        assert_eq!((0..100).filter(|_| bucket.take(later)).count(), BURST as usize);
    }
}
