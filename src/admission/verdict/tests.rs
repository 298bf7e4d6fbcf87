use serde_json::{Value, json};

use super::*;
use crate::settings::choices::Source;
use crate::store::Event;
use crate::store::objects::ObjectName;
use crate::tls::tickets::Tickets;

const NOW: i64 = 1_900_000_000;

/// A cluster with a Service and an Ingress for `a.example.com/old`.
struct World {
    store: Store,
    compiled: Compiled,
    settings: Arc<Settings>,
}

impl World {
    fn new() -> Self {
        Self::with(Settings { source: Source::Kubernetes, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let tickets = Tickets::new(settings.ssl_session_timeout).unwrap();
        let compiled = Compiled::empty(&settings, &tickets, NOW).unwrap();
        let mut world = Self { store: Store::new(), compiled, settings };
        let service = json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "ports": [{ "port": 80 }] },
        });
        world.apply("v1", "Service", &service);
        world.apply(API_VERSION, "Ingress", &ingress("old", "a.example.com", "/old", "2026-01-01T00:00:00Z"));
        world
    }

    fn apply(&mut self, api_version: &str, kind: &str, object: &Value) {
        let (text, mut findings) = (object.to_string(), Findings::new());
        let node: Node = serde_json::from_str(&text).unwrap();
        let Decoded::Object(object) = Object::decode(api_version, kind, &node, &mut findings) else {
            panic!("{:?}", findings.into_list())
        };
        self.store.apply(Event::Apply(object));
        let changes = self.store.take_changes();
        self.compiled = compile(&self.store, &changes, &self.settings, &self.compiled, NOW);
    }

    fn judge(&mut self, before: Option<&Value>, object: &Value) -> Verdict {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "kind": { "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" },
                "operation": if before.is_some() { "UPDATE" } else { "CREATE" },
                "object": object,
                "oldObject": before,
            },
        });
        let text = review.to_string();
        let review = Review::parse(text.as_bytes()).unwrap();
        judge(&review, &mut self.store, &self.compiled, &self.settings, NOW)
    }
}

fn ingress(name: &str, host: &str, path: &str, created: &str) -> Value {
    let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    json!({
        "metadata": { "namespace": "shop", "name": name, "creationTimestamp": created },
        "spec": {
            "ingressClassName": "portcullis",
            "rules": [{ "host": host, "http": { "paths": [{ "path": path, "pathType": "Prefix", "backend": backend }] } }],
        },
    })
}

const LATER: &str = "2026-06-01T00:00:00Z";

#[test]
fn a_path_that_is_taken_is_refused_with_the_name_of_its_owner() {
    let mut world = World::new();
    let verdict = world.judge(None, &ingress("new", "a.example.com", "/old", LATER));
    assert_eq!(
        verdict.refusals,
        ["spec.rules[0].http.paths[0].path: Path \"/old\" of host a.example.com is served by the older \
          Ingress shop/old."]
    );
    let free = world.judge(None, &ingress("new", "a.example.com", "/new", LATER));
    assert_eq!(free.refusals, [""; 0]);
}

#[test]
fn an_older_ingress_cannot_take_a_path_away_either() {
    let mut world = World::new();
    let oldest = ingress("oldest", "b.example.com", "/", "2025-01-01T00:00:00Z");
    world.apply(API_VERSION, "Ingress", &oldest);
    let moved = ingress("oldest", "a.example.com", "/old", "2025-01-01T00:00:00Z");
    let verdict = world.judge(Some(&oldest), &moved);
    assert_eq!(
        verdict.refusals,
        [
            "Ingress shop/old: spec.rules[0].http.paths[0].path: Path \"/old\" of host a.example.com is served by \
          the older Ingress shop/oldest."
        ]
    );
}

#[test]
fn a_path_that_is_no_regular_expression_is_refused_whoever_makes_it_one() {
    let mut world = World::new();
    let regex = |path: &str| {
        let mut regex = ingress("regex", "a.example.com", path, LATER);
        regex["metadata"]["annotations"] = json!({ "portcullis.dev/use-regex": "true" });
        regex
    };
    let verdict = world.judge(None, &regex("/(?!new)"));
    assert!(verdict.refusals.len() == 1 && verdict.refusals[0].contains("look-around"), "{verdict:?}");
    assert_eq!(world.judge(None, &regex("/new.*")).refusals, [""; 0]);
    world.apply(API_VERSION, "Ingress", &ingress("odd", "a.example.com", "/odd(", LATER));
    let verdict = world.judge(None, &regex("/new.*"));
    assert!(verdict.refusals.len() == 1 && verdict.refusals[0].contains("Ingress shop/odd: "), "{verdict:?}");
}

#[test]
fn what_was_there_before_can_be_left_alone() {
    let mut world = World::new();
    let mut loser = ingress("loser", "a.example.com", "/old", LATER);
    loser["metadata"]["annotations"] = json!({ "portcullis.dev/proxy-body-size": "huge" });
    world.apply(API_VERSION, "Ingress", &loser);
    let mut labelled = loser.clone();
    labelled["metadata"]["labels"] = json!({ "team": "shop" });
    let verdict = world.judge(Some(&loser), &labelled);
    assert_eq!(verdict.refusals, [""; 0]);
    assert!(verdict.warnings.iter().any(|warning| warning.contains("older Ingress shop/old")), "{verdict:?}");
    assert!(verdict.warnings.iter().any(|warning| warning.contains("proxy-body-size")), "{verdict:?}");
}

#[test]
fn values_that_cannot_be_used_are_refused_and_named() {
    let mut world = World::new();
    let mut odd = ingress("new", "c.example.com", "/", LATER);
    odd["metadata"]["annotations"] = json!({ "nginx.ingress.kubernetes.io/ssl-redirect": "perhaps" });
    let verdict = world.judge(None, &odd);
    assert_eq!(verdict.refusals.len(), 1);
    assert!(verdict.refusals[0].contains("ssl-redirect must be"), "{verdict:?}");

    let mut two = ingress("new", "c.example.com", "/", LATER);
    two["spec"]["rules"].as_array_mut().unwrap().push(json!({ "host": "a..b" }));
    let verdict = world.judge(None, &two);
    assert!(verdict.refusals.iter().any(|refusal| refusal.contains("a..b")), "{verdict:?}");
}

#[test]
fn what_will_not_work_yet_is_a_warning() {
    let mut world = World::new();
    let mut early = ingress("new", "d.example.com", "/", LATER);
    early["spec"]["tls"] = json!([{ "hosts": ["d.example.com"], "secretName": "late" }]);
    early["metadata"]["annotations"] = json!({ "portcullis.dev/ssl-redirct": "true" });
    let verdict = world.judge(None, &early);
    assert_eq!(verdict.refusals, [""; 0]);
    let has = |part: &str| verdict.warnings.iter().any(|warning| warning.contains(part));
    assert!(has("there is no Secret shop/late"), "{verdict:?}");
    assert!(has("did you mean ssl-redirect?"), "{verdict:?}");
}

#[test]
fn what_is_not_ours_is_not_judged() {
    let mut world = World::new();
    let mut foreign = ingress("new", "a.example.com", "/old", LATER);
    foreign["spec"]["ingressClassName"] = "other".into();
    assert_eq!(world.judge(None, &foreign), Verdict::default());
    let mut elsewhere = ingress("new", "a.example.com", "/old", LATER);
    elsewhere["metadata"]["namespace"] = "elsewhere".into();
    let only =
        Settings { source: Source::Kubernetes, watch_namespace: Some("shop".into()), ..Settings::default() };
    assert_eq!(World::with(only).judge(None, &elsewhere), Verdict::default());
    assert!(!world.judge(None, &elsewhere).refusals.is_empty());
}

#[test]
fn a_question_changes_nothing() {
    let mut world = World::new();
    let old = world.store.ingress(&ObjectName::new("shop", "old")).unwrap().clone();
    let (generation, hosts) = (world.compiled.snapshot.generation, world.store.hosts());
    let findings = |world: &World| world.compiled.report.all().cloned().collect::<Vec<_>>();
    let before = findings(&world);
    world.judge(None, &ingress("new", "e.example.com", "/", LATER));
    let update = ingress("old", "f.example.com", "/", "2026-01-01T00:00:00Z");
    world.judge(Some(&ingress("old", "a.example.com", "/old", LATER)), &update);

    assert!(world.store.take_changes().is_empty());
    assert_eq!(world.store.hosts(), hosts);
    assert_eq!(world.store.ingresses().count(), 1);
    assert_eq!(*world.store.ingress(&ObjectName::new("shop", "old")).unwrap(), old);
    assert_eq!((world.compiled.snapshot.generation, findings(&world)), (generation, before));

    // What waits to be compiled goes on waiting.
    world.store.apply(Event::Delete(Kind::Ingress, ObjectName::new("shop", "old")));
    world.judge(None, &ingress("new", "e.example.com", "/", LATER));
    assert!(world.store.take_changes().ingresses.contains(&ObjectName::new("shop", "old")));
}
