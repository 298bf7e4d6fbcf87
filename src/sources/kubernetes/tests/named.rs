//! Objects that are followed because something names them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::references::{Reference, References};
use super::*;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::sources::ObjectFindings;
use crate::store::objects::{Decoded, Findings, Node};

/// Ingresses with a number that name Secrets with the same.
fn ingresses(count: u64) -> Vec<Value> {
    (0..count).map(|at| ingress(&format!("i{at:03}"), &format!("m{at:03}"), 100 + at)).collect()
}

/// The Secret that a request by name is for.
fn secret_asked_for(path: &str) -> Option<&str> {
    let (_, name) = path.split_once("/secrets?")?.1.split_once("fieldSelector=metadata%2Ename%3D")?;
    Some(name)
}

fn decoded(kind: Kind, object: &Value) -> Object {
    let version = Resource::of(kind).unwrap().api_version();
    let text = object.to_string();
    let node: Node = serde_json::from_str(&text).unwrap();
    match Object::decode(version, kind.as_str(), &node, &mut Findings::new()) {
        Decoded::Object(object) => object,
        _ => panic!("{text}"),
    }
}

#[test]
fn many_secrets_that_are_missing_take_away_none_that_is_there() {
    let asked = Rc::new(RefCell::new(BTreeSet::new()));
    let names = asked.clone();
    let script = move |path: &str, count| {
        if is_list_of(path, "secrets")
            && let Some(name) = secret_asked_for(path)
        {
            names.borrow_mut().insert(name.to_owned());
            return (name == "real").then(|| list(7, &[secret("real", 3)]));
        }
        if is_watch_of(path, "ingresses") && count == 0 {
            let flood = ingresses(300).into_iter().map(|ingress| line("ADDED", ingress));
            return Some(Reply::stream([flood.collect::<String>()]).after(Duration::from_millis(300)).open());
        }
        is_list_of(path, "ingresses").then(|| list(5, &[ingress("web", "real", 4)]))
    };
    run(script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced && seen.has_secret("real")).await;
        // Each is looked at, also those that are in no watch.
        seen.until(|seen, _| {
            assert!(seen.has_secret("real"), "it is there");
            asked.borrow().len() == 301
        })
        .await;
    });
}

#[test]
fn more_secrets_than_can_be_watched_are_all_there_and_looked_at_again() {
    let gone = Rc::new(Cell::new(false));
    let now = gone.clone();
    let script = move |path: &str, _| {
        if is_list_of(path, "secrets") {
            let name = secret_asked_for(path).filter(|_| !now.get())?;
            return Some(list(7, &[secret(name, 3)]));
        }
        is_list_of(path, "ingresses").then(|| list(5, &ingresses(270)))
    };
    run(script, |mut seen, _| async move {
        let mut late = BTreeSet::new();
        while !seen.synced {
            let batch = seen.until(|_, _| true).await;
            for ObjectFindings { about, diagnostics } in batch.object_findings {
                match diagnostics.iter().any(|diagnostic| diagnostic.reason == "SeenLate") {
                    true => late.insert(about.name),
                    false => late.remove(&about.name),
                };
            }
        }
        let count = |seen: &Seen| (0..270).filter(|at| seen.has_secret(&format!("m{at:03}"))).count();
        assert_eq!(count(&seen), 270);
        assert_eq!(late.len(), 270 - 256, "it is said of those that are in no watch");
        gone.set(true);
        seen.until(|seen, _| count(seen) < 270).await;
    });
}

#[test]
fn what_is_there_comes_first_and_then_namespaces_take_turns() {
    let mut references = References::default();
    let named = |namespace: &str, secret: &str| {
        let mut object = ingress(&format!("for-{secret}"), secret, 1);
        object["metadata"]["namespace"] = namespace.into();
        Event::Apply(decoded(Kind::Ingress, &object))
    };
    let reference = |namespace, name| (Kind::Secret, ObjectName::new(namespace, name));
    references.observe(&[
        named("a", "1"),
        named("a", "2"),
        named("a", "3"),
        named("b", "1"),
        named("b", "2"),
        named("c", "1"),
    ]);
    references.set_named_by_settings(BTreeSet::from([reference("z", "default")]));
    assert!(references.set_found(&reference("b", "2"), true));
    assert!(!references.set_found(&reference("b", "2"), true), "that is known");
    let expected = [("z", "default"), ("b", "2"), ("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), ("a", "3")];
    assert_eq!(references.missing(), expected.map(|(namespace, name)| reference(namespace, name)));
}

#[test]
fn what_is_seen_by_name_counts_no_more_once_the_watch_of_the_type_has_the_secret() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (sender, mut batches) = mpsc::channel(8);
        let hub = Hub::new(sender);
        let name = ObjectName::new("shop", "real");
        let reference: Reference = (Kind::Secret, name.clone());
        let apply = |kind, object: Value| Event::Apply(decoded(kind, &object));
        let found = |event| hub::Found { events: vec![event], ..hub::Found::default() };
        hub.send(found(apply(Kind::Ingress, ingress("web", "real", 1))), None).await;
        let about = ObjectRef::new(Kind::Secret, &name);
        let mut odd = found(apply(Kind::Secret, secret("real", 2)));
        let said = Diagnostic::new(Severity::Warning, about.clone(), "data", "WrongType", "odd");
        odd.findings.push(ObjectFindings { about: about.clone(), diagnostics: vec![said] });
        hub.send_named(&reference, odd, None).await;
        assert!(hub.is_found(&reference));
        // The Secret is replaced by one of the type that is watched, and the two watches tell of it in this order.
        hub.send(found(apply(Kind::Secret, secret("real", 4))), None).await;
        let mut gone = found(Event::Delete(Kind::Secret, name.clone()));
        gone.findings.push(ObjectFindings { about, diagnostics: Vec::new() });
        hub.send_named(&reference, gone, None).await;
        hub.send_end(&reference, "secrets/shop/real".into()).await;
        let mut sent = Vec::new();
        while let Ok(batch) = batches.try_recv() {
            let said: Vec<_> = batch.object_findings.iter().map(|it| it.diagnostics.len()).collect();
            sent.push((batch.events.len(), said));
        }
        let expected = [(1, vec![]), (1, vec![1]), (1, vec![0]), (0, vec![]), (0, vec![])];
        assert_eq!(sent, expected, "nothing is taken away but what was said of it");
        assert!(!hub.is_found(&reference));
        // Also if it is gone again before anybody has looked, the watch by name has to begin anew.
        hub.send(found(Event::Delete(Kind::Secret, name)), None).await;
        assert_eq!(hub.missing(), vec![reference.clone()]);
        assert!(hub.take_taken_over().contains(&reference));
    });
}
