//! The watch loop against a scripted server on a local port. What a real one does is in `tests/cluster`.

mod kept;
mod named;
mod scope;
mod server;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::timeout;

use super::*;
use crate::sources::{Address, Batch};
use crate::store::objects::{Object, ObjectName};
use crate::store::{Event, Store};
use server::{Reply, Server};

/// What the source sent, put together.
struct Seen {
    batches: Receiver<Batch>,
    store: Store,
    synced: bool,
    states: Vec<(String, bool, Option<String>)>,
    /// Kinds that the server does not have.
    absent: BTreeSet<String>,
    settings: watch::Sender<Arc<Settings>>,
}

impl Seen {
    /// Takes batches until `done`; what is asked for never comes where this runs into the time limit.
    async fn until(&mut self, done: impl Fn(&Seen, &Batch) -> bool) -> Batch {
        timeout(Duration::from_secs(20), async {
            loop {
                let mut batch = self.batches.recv().await.unwrap();
                let events: Vec<_> = std::mem::take(&mut batch.events);
                batch.events = events.iter().map(copy).collect();
                events.into_iter().for_each(|event| self.store.apply(event));
                self.synced = batch.synced;
                let states = batch.states.iter();
                for state in &batch.states {
                    match state.absent {
                        true => self.absent.insert(state.name.to_string()),
                        false => self.absent.remove(&*state.name),
                    };
                }
                self.states.extend(states.map(|it| (it.name.to_string(), it.synced, it.last_error.clone())));
                if done(self, &batch) {
                    return batch;
                }
            }
        })
        .await
        .expect("nothing of the kind was sent")
    }

    fn has_secret(&self, name: &str) -> bool {
        self.store.secret(&ObjectName::new("shop", name)).is_some()
    }

    fn has_service(&self, name: &str) -> bool {
        self.store.service(&ObjectName::new("shop", name)).is_some()
    }
}

fn copy(event: &Event) -> Event {
    match event {
        Event::Apply(object) => Event::Apply(object.clone()),
        Event::Delete(kind, name) => Event::Delete(*kind, name.clone()),
        Event::Staple(status) => Event::Staple(status.clone()),
        Event::StapleGone(leaf) => Event::StapleGone(*leaf),
    }
}

/// Runs the source against a server that answers by `script`.
fn run<F: Future<Output = ()>>(
    script: impl Fn(&str, usize) -> Option<Reply> + 'static,
    test: impl FnOnce(Seen, Server) -> F,
) {
    run_with(|settings| settings, script, test);
}

/// The same, with other settings.
fn run_with<F: Future<Output = ()>>(
    change: impl FnOnce(Settings) -> Settings,
    script: impl Fn(&str, usize) -> Option<Reply> + 'static,
    test: impl FnOnce(Seen, Server) -> F,
) {
    crate::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let server = Server::start(script).await;
        let (seen, _) = follow_with(change, &server, None);
        test(seen, server).await;
    });
}

/// Starts a source for the namespace `shop` of this server.
fn follow(server: &Server, keep: Option<Keep>) -> (Seen, AbortHandle) {
    follow_with(|settings| settings, server, keep)
}

/// The same, with other settings.
fn follow_with(
    change: impl FnOnce(Settings) -> Settings,
    server: &Server,
    keep: Option<Keep>,
) -> (Seen, AbortHandle) {
    follow_through(64, change, server, keep)
}

/// The same, with room for this many batches that wait.
fn follow_through(
    room: usize,
    change: impl FnOnce(Settings) -> Settings,
    server: &Server,
    keep: Option<Keep>,
) -> (Seen, AbortHandle) {
    let config = kube::Config::new(server.url().parse().unwrap());
    let settings = Settings { watch_namespace: Some("shop".into()), ..Settings::default() };
    let settings = watch::channel(Arc::new(change(settings))).0;
    let source = Kubernetes { api: Api::new(config).unwrap(), keep, settings: settings.subscribe() };
    let (sender, batches) = mpsc::channel(room);
    let task = tokio::task::spawn_local(source.run(sender)).abort_handle();
    let (store, states, absent) = (Store::new(), Vec::new(), BTreeSet::new());
    (Seen { batches, store, synced: false, states, absent, settings }, task)
}

fn service(name: &str, version: u64) -> Value {
    let metadata =
        json!({ "name": name, "namespace": "shop", "resourceVersion": version.to_string(), "uid": name });
    json!({ "metadata": metadata, "spec": { "ports": [{ "port": 80 }] } })
}

fn secret(name: &str, version: u64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "shop", "resourceVersion": version.to_string() },
        "type": "Opaque",
        "data": {},
    })
}

fn ingress(name: &str, secret: &str, version: u64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "shop", "resourceVersion": version.to_string(), "uid": "u1" },
        "spec": { "tls": [{ "secretName": secret }], "rules": [{ "host": "shop.example.com" }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.7" }, { "hostname": "lb.example.com" }] } },
    })
}

fn list(version: u64, items: &[Value]) -> Reply {
    page(version, items, "")
}

fn page(version: u64, items: &[Value], next: &str) -> Reply {
    Reply::json(
        200,
        json!({ "metadata": { "resourceVersion": version.to_string(), "continue": next }, "items": items }),
    )
}

fn line(kind: &str, object: Value) -> String {
    json!({ "type": kind, "object": object }).to_string() + "\n"
}

fn is_list_of(path: &str, plural: &str) -> bool {
    path.contains(&format!("/{plural}?")) && !path.contains("watch=1")
}

fn is_watch_of(path: &str, plural: &str) -> bool {
    path.contains(&format!("/{plural}?")) && path.contains("watch=1")
}

#[test]
fn a_page_that_fails_costs_nothing_of_the_pages_before() {
    let script = |path: &str, count| match is_list_of(path, "services") {
        true if !path.contains("continue=") => Some(page(12, &[service("a", 10)], "next")),
        true if count == 0 => Some(Reply::json(500, json!({ "code": 500, "message": "lost" }))),
        true => Some(page(12, &[service("b", 11)], "")),
        false => None,
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.has_service("b")).await;
        assert!(seen.has_service("a"), "it was on a page that arrived");
    });
}

#[test]
fn a_list_that_is_too_large_is_had_in_smaller_pages() {
    let script = |path: &str, _| {
        is_list_of(path, "services").then(|| match path.contains("limit=200") {
            true => Reply::stream([" ".repeat((64 << 20) + 1)]),
            false => list(5, &[service("a", 3)]),
        })
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.has_service("a")).await;
    });
}

#[test]
fn pages_are_put_together_and_changes_follow() {
    let script = |path: &str, _| {
        if is_watch_of(path, "services") {
            assert!(
                path.contains("resourceVersion=12") && path.contains("allowWatchBookmarks=true"),
                "{path}"
            );
            let lines = [line("ADDED", service("c", 13)), line("DELETED", service("a", 14))].concat();
            // A line may arrive in any number of pieces.
            let (first, second) = lines.split_at(40);
            return Some(Reply::stream([first, second]).open());
        }
        is_list_of(path, "services").then(|| match path.contains("continue=more%2B1") {
            false => page(11, &[service("a", 3)], "more+1"),
            true => page(12, &[service("b", 5)], ""),
        })
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        assert!(seen.has_service("b"));
        seen.until(|seen, _| seen.has_service("c") && !seen.has_service("a")).await;
    });
}

#[test]
fn nothing_counts_as_synced_before_every_kind_has_listed() {
    let script = |path: &str, count| {
        // The server has trouble with one kind at first.
        (is_list_of(path, "endpointslices") && count < 2).then(|| {
            Reply::json(
                503,
                json!({ "kind": "Status", "code": 503, "message": "etcdserver: leader changed" }),
            )
        })
    };
    run(script, |mut seen, _| async move {
        let slices = |seen: &Seen| {
            let states = seen.states.iter().filter(|state| state.0 == "endpointslices");
            states.map(|(_, synced, error)| (*synced, error.clone())).collect::<Vec<_>>()
        };
        let trouble = Some("etcdserver: leader changed (HTTP 503)".to_owned());
        seen.until(|seen, _| seen.synced).await;
        assert_eq!(
            slices(&seen)[..2],
            [(false, trouble.clone()), (true, trouble)],
            "listed, not yet watched"
        );
        seen.until(|seen, _| slices(seen).last() == Some(&(true, None))).await;
    });
}

#[test]
fn an_expired_version_leads_to_a_list_of_which_only_the_difference_is_passed_on() {
    let script = |path: &str, count| match (is_watch_of(path, "services"), count) {
        (true, 0) => Some(Reply::stream([line(
            "ERROR",
            json!({ "kind": "Status", "code": 410, "message": "too old resource version: 2 (9)" }),
        )])),
        (true, _) => None,
        (false, 0) if is_list_of(path, "services") => {
            Some(list(5, &[service("a", 3), service("b", 4), service("c", 5)]))
        }
        (false, 1) if is_list_of(path, "services") => Some(list(9, &[service("a", 3), service("b", 8)])),
        _ => None,
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.has_service("c")).await;
        let batch = seen.until(|_, batch| !batch.events.is_empty()).await;
        let names: Vec<_> = batch
            .events
            .iter()
            .map(|event| match event {
                Event::Apply(object) => ("apply", object.metadata().name.name.to_string()),
                Event::Delete(_, name) => ("delete", name.name.to_string()),
                Event::Staple(_) | Event::StapleGone(_) => ("other", String::new()),
            })
            .collect();
        assert_eq!(names, [("apply", "b".into()), ("delete", "c".into())]);
    });
}

#[test]
fn a_page_that_has_expired_begins_the_list_anew() {
    let script = |path: &str, count| {
        is_list_of(path, "services").then(|| match (count, path.contains("continue=")) {
            (0, false) => page(11, &[service("a", 3), service("b", 4)], "more"),
            (_, true) => Reply::json(410, json!({ "kind": "Status", "code": 410, "message": "expired" })),
            (_, false) => list(20, &[service("a", 3), service("c", 12)]),
        })
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        assert!(seen.has_service("a") && seen.has_service("c"));
        assert!(!seen.has_service("b"), "half a list counts for nothing");
    });
}

#[test]
fn a_server_that_is_too_busy_is_asked_again_when_it_says() {
    let script = |path: &str, count| {
        (is_list_of(path, "services") && count < 2).then(|| {
            let body = json!({ "kind": "Status", "code": 429, "message": "too many requests" });
            Reply::json(429, body).with_header("retry-after: 1")
        })
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        let busy = |state: &&(String, bool, Option<String>)| {
            state.0 == "services" && state.2.as_deref() == Some("too many requests (HTTP 429)")
        };
        assert!(seen.states.iter().any(|state| busy(&state)), "{:?}", seen.states);
    });
}

#[test]
fn data_older_than_before_is_listed_and_believed() {
    // A restored etcd: the watch from version 90 would stay silent, and version 4 means something else now.
    let script = |path: &str, count| {
        if is_watch_of(path, "services") {
            return (count == 0).then(|| Reply::stream([line("ADDED", service("late", 90))]));
        }
        is_list_of(path, "services").then(|| match count {
            0 => list(5, &[service("a", 4)]),
            _ => list(6, &[service("a", 4)]),
        })
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.has_service("late")).await;
        let batch = seen.until(|seen, _| !seen.has_service("late")).await;
        let again =
            |event: &Event| matches!(event, Event::Apply(object) if &*object.metadata().name.name == "a");
        assert!(batch.events.iter().any(again), "what has the same version is read again");
    });
}

#[test]
fn an_optional_kind_that_is_refused_holds_nothing_up() {
    let forbidden = "ingressclasses.networking.k8s.io is forbidden: User \"gateway\" cannot list resource";
    let script = move |path: &str, _| {
        let refused = Reply::json(403, json!({ "kind": "Status", "code": 403, "message": forbidden }));
        path.contains("/ingressclasses").then_some(refused)
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        let state = seen.states.iter().find(|state| state.0 == "ingressclasses").unwrap();
        assert!(state.2.as_ref().unwrap().starts_with(forbidden), "{state:?}");
    });
}

#[test]
fn a_kind_that_matters_and_is_refused_is_waited_for() {
    let script = |path: &str, _| {
        let refused = Reply::json(403, json!({ "kind": "Status", "code": 403, "message": "no" }));
        path.contains("/secrets").then_some(refused)
    };
    run(script, |mut seen, _| async move {
        let failed = |seen: &Seen, _: &Batch| seen.states.iter().any(|state| state.0 == "secrets");
        seen.until(failed).await;
        assert_eq!(seen.states.iter().filter(|state| state.0 == "secrets" && state.1).count(), 0);
        assert!(!seen.synced);
    });
}

#[test]
fn a_secret_of_another_type_is_fetched_by_name_for_as_long_as_it_is_named() {
    let script = |path: &str, count| {
        let by_name = path.contains("fieldSelector=metadata%2Ename%3Dopaque");
        if path.contains("/secrets?") && !by_name {
            assert!(path.contains("fieldSelector=type%3Dkubernetes%2Eio%2Ftls"), "not all Secrets: {path}");
        }
        if is_list_of(path, "secrets") && by_name {
            return Some(list(7, &[secret("opaque", 3)]));
        }
        if is_watch_of(path, "ingresses") && count == 0 {
            // Some time after the first list, so that the test sees both.
            let gone = line("MODIFIED", ingress("web", "other", 9));
            return Some(Reply::stream([gone]).after(Duration::from_millis(300)).open());
        }
        is_list_of(path, "ingresses").then(|| list(5, &[ingress("web", "opaque", 4)]))
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.has_secret("opaque")).await;
        seen.until(|seen, _| seen.synced).await;
        seen.until(|seen, _| !seen.has_secret("opaque")).await;
    });
}

#[test]
fn a_silent_server_is_given_up_in_bounded_time() {
    let script = |path: &str, _| is_watch_of(path, "services").then(|| Reply::stream([""]).open());
    run(script, |mut seen, server| async move {
        seen.until(|seen, _| seen.synced).await;
        server.wait_for("/services?watch=1").await;
        // From here on nothing but timers is left to run.
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::time::pause();
        let failed = |state: &crate::sources::WatchState| state.last_error.is_some();
        let batch = loop {
            let batch = seen.batches.recv().await.unwrap();
            if batch.states.iter().any(failed) {
                break batch;
            }
        };
        assert_eq!(batch.states[0].last_error.as_deref(), Some("the API server did not answer in time"));
    });
}

#[test]
fn the_status_of_an_ingress_comes_beside_it() {
    let script = |path: &str, _| is_list_of(path, "ingresses").then(|| list(5, &[ingress("web", "tls", 4)]));
    run(script, |mut seen, _| async move {
        let batch = seen.until(|_, batch| !batch.ingress_statuses.is_empty()).await;
        let expected = [Address::Ip("203.0.113.7".into()), Address::Hostname("lb.example.com".into())];
        assert_eq!(batch.ingress_statuses[0].addresses, expected);
        assert_eq!(&*batch.ingress_statuses[0].uid, "u1");
    });
}

#[test]
fn what_is_odd_about_an_object_is_said_and_taken_back() {
    let odd = json!({
        "metadata": { "name": "a", "namespace": "shop", "resourceVersion": "4" },
        "spec": { "ports": [{ "port": "eighty" }, { "port": 443 }] },
    });
    let script = move |path: &str, count| {
        if is_watch_of(path, "services") && count == 0 {
            return Some(Reply::stream([line("MODIFIED", service("a", 6))]).open());
        }
        is_list_of(path, "services").then(|| list(5, std::slice::from_ref(&odd)))
    };
    run(script, |mut seen, _| async move {
        let batch = seen.until(|_, batch| !batch.object_findings.is_empty()).await;
        assert_eq!(batch.object_findings[0].diagnostics[0].field, "spec.ports[0].port");
        assert!(seen.has_service("a"), "the rest of it is used");
        let batch = seen.until(|_, batch| !batch.object_findings.is_empty()).await;
        assert!(batch.object_findings[0].diagnostics.is_empty());
    });
}

#[test]
fn an_object_that_cannot_be_used_stays_as_it_was_and_is_not_taken_for_deleted() {
    let mut unusable = ingress("web", "tls", 6);
    unusable["spec"]["rules"][0]["host"] = json!("shop..test");
    let script = move |path: &str, count| match (is_watch_of(path, "ingresses"), count) {
        (true, 0) => {
            let expired = json!({ "kind": "Status", "code": 410, "message": "too old resource version" });
            Some(Reply::stream([line("MODIFIED", unusable.clone()), line("ERROR", expired)]))
        }
        (false, 0) if is_list_of(path, "ingresses") => Some(list(5, &[ingress("web", "tls", 4)])),
        (false, _) if is_list_of(path, "ingresses") => {
            Some(list(9, &[unusable.clone(), ingress("later", "tls", 8)]))
        }
        _ => None,
    };
    run(script, |mut seen, _| async move {
        let batch = seen.until(|_, batch| !batch.object_findings.is_empty()).await;
        let last = batch.object_findings[0].diagnostics.last().unwrap();
        assert_eq!((last.reason, &*last.field), ("NoUsableRule", "spec.rules"));
        assert!(last.message.contains("stays as it was"), "{last}");
        let named = |name| ObjectName::new("shop", name);
        seen.until(|seen, _| seen.store.ingress(&named("later")).is_some()).await;
        let web = seen.store.ingress(&named("web")).unwrap();
        assert_eq!(web.rules[0].host.as_deref(), Some("shop.example.com"));
    });
}

#[test]
fn every_kind_says_how_the_api_server_names_it() {
    for resource in RESOURCES {
        let mut findings = crate::store::objects::Findings::new();
        let object = json!({ "metadata": { "name": "a" }, "spec": {} }).to_string();
        let node: crate::store::objects::Node = serde_json::from_str(&object).unwrap();
        for version in resource.kind.api_versions() {
            let decoded = Object::decode(version, resource.kind.as_str(), &node, &mut findings);
            let read = !matches!(decoded, crate::store::objects::Decoded::Unknown(_));
            assert!(read, "{resource:?} is not what the decoder of its kind reads");
        }
    }
}

proptest! {
    /// Whatever a server sends, it is read or refused.
    #[test]
    fn no_answer_is_too_odd(text in ".{0,200}", kind in "ADDED|MODIFIED|DELETED|ERROR|BOOKMARK|[A-Z]{0,8}", odd in odd_json()) {
        let _ = serde_json::from_str::<wire::Page>(&text);
        let line = json!({ "type": kind, "object": odd }).to_string();
        if let Ok(line) = serde_json::from_str::<wire::Line>(&line) {
            let _ = wire::version_of(&line.object);
            let _ = wire::status_of(&line.object);
            let _ = wire::ingress_status(ObjectName::new("a", "b"), &line.object);
        }
    }
}

/// JSON whose keys are those that are read, with values that mostly don't fit.
fn odd_json() -> impl Strategy<Value = Value> {
    let keys = "metadata|resourceVersion|uid|status|loadBalancer|ingress|ip|hostname|code|message|name";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((keys, inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}
