//! A start while the API server is away, with what was kept before.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use tempfile::TempDir;
use tokio::time::sleep;

use super::*;

/// What the server has.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Before,
    Away,
    After,
}

fn answer(phase: Phase, path: &str) -> Option<Reply> {
    if phase == Phase::Away {
        return Some(Reply::json(503, json!({ "code": 503, "message": "away" })));
    }
    if is_list_of(path, "services") {
        let name = if phase == Phase::Before { "before" } else { "after" };
        return Some(list(20, &[service(name, 10), service("same", 11)]));
    }
    if is_list_of(path, "ingresses") {
        return Some(list(20, &[ingress("web", "named", 12)]));
    }
    if is_list_of(path, "secrets") && path.contains("metadata%2Ename%3Dnamed") {
        return Some(list(20, &[secret("named", 13)]));
    }
    None
}

/// Runs `test` with a server, a way to change what it has, and a folder that has what it had before.
fn with_kept<F: Future<Output = ()>>(test: impl FnOnce(Server, Rc<Cell<Phase>>, TempDir) -> F) {
    crate::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let phase = Rc::new(Cell::new(Phase::Before));
        let now = phase.clone();
        let server = Server::start(move |path, _| answer(now.get(), path)).await;
        let folder = tempfile::tempdir().unwrap();
        let (mut seen, task) = follow(&server, Some(keep(&folder, true)));
        seen.until(|seen, _| seen.synced && seen.has_secret("named")).await;
        // What is waiting is written when the source ends.
        task.abort();
        let all = ["ingresses@shop", "secrets@shop", "services@shop", "endpointslices@shop", "secrets.named"];
        timeout(Duration::from_secs(20), async {
            while !all.iter().all(|shelf| folder.path().join(shelf).join(".label").exists()) {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("all is kept");
        phase.set(Phase::Away);
        test(server, phase, folder).await;
    });
}

fn keep(folder: &TempDir, restore: bool) -> Keep {
    Keep { folder: folder.path().to_owned(), restore }
}

fn shelf(folder: &TempDir, name: &str) -> Vec<String> {
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    let mut found = names(&folder.path().join(name).join("shop"));
    found.sort();
    found
}

#[test]
fn what_was_kept_is_served_until_the_server_answers_and_then_what_it_says() {
    with_kept(|server, phase, folder| async move {
        let (mut seen, _task) = follow(&server, Some(keep(&folder, true)));
        let mut stale = Vec::new();
        timeout(Duration::from_secs(20), async {
            while !seen.synced {
                let batch = seen.until(|_, _| true).await;
                stale.extend(batch.states.into_iter().filter(|state| state.stale_since.is_some()));
            }
        })
        .await
        .expect("it counts as listed");
        assert!(seen.has_service("before") && seen.has_service("same") && seen.has_secret("named"));
        let services = stale.iter().find(|state| &*state.name == "services").expect("it is said");
        assert!(!services.synced && services.last_error.as_ref().unwrap().contains("away"), "{services:?}");

        phase.set(Phase::After);
        let batch = seen.until(|seen, _| seen.has_service("after")).await;
        assert_eq!(batch.events.len(), 2, "one came, one went, and the same is not sent again: {batch:?}");
        assert!(!seen.has_service("before") && seen.has_service("same") && seen.has_secret("named"));
        let services = batch.states.iter().find(|state| &*state.name == "services").unwrap();
        assert!(services.synced && services.stale_since.is_none());
        timeout(Duration::from_secs(20), async {
            while shelf(&folder, "services@shop") != ["after", "same"] {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("what is kept follows");
    });
}

#[test]
fn beside_another_generation_nothing_that_was_kept_is_served() {
    with_kept(|server, _, folder| async move {
        let (mut seen, _task) = follow(&server, Some(keep(&folder, false)));
        seen.until(|seen, _| seen.states.iter().filter(|(_, _, error)| error.is_some()).count() >= 4).await;
        assert!(!seen.synced && !seen.has_service("same"));
    });
}

#[test]
fn a_damaged_file_is_passed_over_and_the_rest_served() {
    with_kept(|server, _, folder| async move {
        fs::write(folder.path().join("services@shop/shop/before"), "{\"metadata\":").unwrap();
        let (mut seen, _task) = follow(&server, Some(keep(&folder, true)));
        seen.until(|seen, _| seen.synced).await;
        assert!(!seen.has_service("before") && seen.has_service("same"));
    });
}

#[test]
fn a_kind_of_which_nothing_is_known_holds_everything_up() {
    with_kept(|server, phase, folder| async move {
        fs::remove_file(folder.path().join("ingresses@shop/.label")).unwrap();
        let (mut seen, _task) = follow(&server, Some(keep(&folder, true)));
        seen.until(|seen, _| seen.has_service("same")).await;
        assert!(!seen.synced, "half of what there was would be worse than waiting");
        phase.set(Phase::After);
        seen.until(|seen, _| seen.synced && seen.has_service("after")).await;
    });
}

#[test]
fn a_first_list_that_has_arrived_is_not_cut_off_where_passing_it_on_takes_time() {
    with_kept(|server, phase, folder| async move {
        phase.set(Phase::After);
        let (mut seen, _task) = follow_through(1, |settings| settings, &server, Some(keep(&folder, true)));
        // Longer than the first list may take where something is kept; nobody takes batches meanwhile.
        sleep(Duration::from_secs(4)).await;
        seen.until(|seen, _| seen.synced && seen.has_service("after") && seen.has_secret("named")).await;
        timeout(Duration::from_secs(20), async {
            while shelf(&folder, "services@shop") != ["after", "same"] {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("what has gone is kept no longer");
    });
}
