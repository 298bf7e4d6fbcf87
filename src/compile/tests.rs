//! Objects are built here by hand; how manifests become objects is tested with the sources.

mod backends;
mod canaries;
mod certificates;
mod client_auth;
mod incremental;
mod mutations;
mod objects;
mod properties;
mod ready_policies;
mod redirects;
mod routes;
mod staples;
mod ticket_keys;
mod workloads;

use std::sync::Arc;

use time::OffsetDateTime;

use super::report::Subject;
use super::{Compiled, compile};
use crate::settings::{Settings, choices::Source};
use crate::snapshot::hosts::{Action, Route};
use crate::snapshot::redirects::Asked;
use crate::store::objects::{Kind, Object, ObjectName};
use crate::store::{Event, Store};
use crate::tls::tickets::Tickets;

const PERIOD: std::time::Duration = std::time::Duration::from_secs(60);

/// A store and what was compiled of it last.
struct World {
    store: Store,
    settings: Arc<Settings>,
    compiled: Compiled,
    now: i64,
}

impl World {
    fn new(objects: impl IntoIterator<Item = Object>) -> Self {
        Self::with(Settings::default(), objects)
    }

    fn in_cluster(objects: impl IntoIterator<Item = Object>) -> Self {
        Self::with(Settings { source: Source::Kubernetes, ..Settings::default() }, objects)
    }

    fn with(settings: Settings, objects: impl IntoIterator<Item = Object>) -> Self {
        let settings = Arc::new(settings);
        let tickets = Tickets::new(settings.ssl_session_timeout).unwrap();
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let compiled = Compiled::empty(&settings, &tickets, now).unwrap();
        let mut world = Self { store: Store::new(), settings, compiled, now };
        world.apply(objects);
        world
    }

    fn apply(&mut self, objects: impl IntoIterator<Item = Object>) {
        objects.into_iter().for_each(|object| self.store.apply(Event::Apply(object)));
        self.compile();
    }

    fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.store.apply(Event::Delete(kind, ObjectName::new(namespace, name)));
        self.compile();
    }

    fn set(&mut self, settings: Settings) {
        self.settings = Arc::new(settings);
        self.compile();
    }

    fn compile(&mut self) {
        let changes = self.store.take_changes();
        self.compiled = compile(&self.store, &changes, &self.settings, &self.compiled, self.now);
    }

    fn route(&self, host: &str, path: &str) -> Option<&Arc<Route>> {
        self.compiled.snapshot.hosts.find(host)?.routes.find(path)
    }

    /// The backend of a request, or the status that answers it.
    fn serves(&self, host: &str, path: &str) -> String {
        match self.route(host, path).map(|route| &route.action) {
            Some(Action::Forward(cluster)) => cluster.to_string(),
            Some(Action::NotFound) | None => "404".into(),
            Some(Action::Refuse(annotation)) => format!("503 {annotation}"),
            Some(Action::Redirect(redirect)) => {
                let asked = Asked { https: true, host: Some(host), port: None, path, query: None };
                let location = redirect.location.fill(&asked).unwrap();
                format!("{} {location}", redirect.status.as_str())
            }
        }
    }

    fn endpoints(&self, cluster: &str) -> Vec<String> {
        let clusters = &self.compiled.snapshot.clusters.0;
        let (_, cluster) = clusters.iter().find(|(key, _)| key.to_string() == cluster).expect("a cluster");
        cluster.endpoints.iter().map(ToString::to_string).collect()
    }

    fn findings(&self) -> Vec<String> {
        self.compiled.report.all().map(ToString::to_string).collect()
    }

    /// Reasons with the names of their objects.
    fn reasons(&self) -> Vec<(&'static str, String)> {
        let found = self.compiled.report.all();
        found.map(|found| (found.reason, found.object.as_ref().unwrap().name.to_string())).collect()
    }

    /// All that the data plane and the operator would see, as text.
    fn view(&self) -> Vec<String> {
        let snapshot = &self.compiled.snapshot;
        let mut lines = Vec::new();
        for pattern in snapshot.hosts.patterns() {
            let host = snapshot.hosts.get(&pattern).unwrap();
            lines.push(format!("host {pattern} tls={} {}", host.has_tls, client_auth::view(host)));
            for (kind, path, route) in host.routes.entries() {
                let Route { host, path: own, ingress, action, policy, canary, stats: _ } = &**route;
                assert_eq!((host, &**own), (&pattern, path));
                lines.push(format!("route {pattern} {kind:?} {path} {ingress} {action:?} {policy:?}"));
                if let Some(canary) = canary {
                    let Route { host, path: own, ingress, action, policy, canary: none, stats: _ } =
                        &*canary.route;
                    assert_eq!((host, &**own, none.is_none()), (&pattern, path, true));
                    lines.push(format!(
                        "canary {pattern} {kind:?} {path} {ingress} {action:?} {policy:?} {:?}",
                        canary.rules
                    ));
                }
            }
        }
        for cluster in snapshot.clusters.0.values() {
            let endpoints: Vec<_> = cluster.endpoints.iter().map(ToString::to_string).collect();
            lines.push(format!("cluster {} {endpoints:?} {:?}", cluster.key, cluster.unavailable));
        }
        for pattern in snapshot.certificates.patterns() {
            let bindings = snapshot.certificates.get(&pattern).unwrap().iter();
            let serials: Vec<_> = bindings.map(|binding| &binding.certificate.pair.serial).collect();
            lines.push(format!("certificates {pattern} {serials:?}"));
        }
        lines.sort();
        lines.extend(self.findings());
        lines
    }
}

#[test]
fn a_generation_counts_up_and_an_empty_store_serves_nothing() {
    let mut world = World::new([]);
    assert_eq!(world.compiled.snapshot.generation, 1);
    world.compile();
    assert_eq!(world.compiled.snapshot.generation, 2);
    assert_eq!(world.serves("a.test", "/"), "404");
    assert!(world.compiled.report.is_empty());
    assert_eq!(world.compiled.recheck_at(), None);
    let current = |settings: &Arc<Settings>, compiled: &Compiled| {
        compiled.is_current(&Default::default(), settings, world.now)
    };
    assert!(current(&world.settings, &world.compiled));
    assert!(!current(&Arc::new(Settings::default()), &world.compiled), "other settings");
    let never = Compiled::empty(&world.settings, &Tickets::new(PERIOD).unwrap(), world.now).unwrap();
    assert!(!current(&world.settings, &never), "the first snapshot is compiled of nothing too");
    assert!(world.compiled.report.about(&Subject::DefaultCertificate).is_empty());
}

#[test]
fn tls_settings_that_cannot_be_had_leave_the_policy_as_it_was() {
    let mut world = World::new([]);
    let before = world.compiled.snapshot.tls.clone();
    world.set(Settings { ssl_ciphers: vec!["NO-SUCH-SUITE".into()], ..Settings::default() });
    assert!(Arc::ptr_eq(&before, &world.compiled.snapshot.tls));
    assert!(world.findings()[0].contains("NO-SUCH-SUITE"), "{:?}", world.findings());
    world.set(Settings { ssl_ciphers: Vec::new(), use_http2: false, ..Settings::default() });
    assert!(!Arc::ptr_eq(&before, &world.compiled.snapshot.tls));
    assert!(world.compiled.report.is_empty());
}
