//! Which kinds, namespaces and single objects are followed, as settings and the API server have it.

use super::*;
use crate::settings::places::TrustPlace;

/// What a server with these versions of the policies' group says about itself.
fn discovery(path: &str, versions: &[&str]) -> Option<Reply> {
    let versions = versions.iter().map(|version| json!({ "groupVersion": version }));
    match path {
        "/apis" => {
            Some(Reply::json(200, json!({ "groups": [{ "versions": versions.collect::<Vec<_>>() }] })))
        }
        _ if path.starts_with("/apis/security.istio.io/") && path.matches('/').count() == 3 => {
            let resources =
                [json!({ "name": "requestauthentications" }), json!({ "name": "peerauthentications" })];
            Some(Reply::json(200, json!({ "resources": resources })))
        }
        _ => None,
    }
}

fn with_mesh(settings: Settings) -> Settings {
    Settings { mesh_port: Some(15443), ..settings }
}

fn not_found() -> Reply {
    Reply::stream(["404 page not found\n"]).with_status(404)
}

fn peer_authentication(version: u64) -> Value {
    json!({
        "metadata": { "name": "p", "namespace": "shop", "resourceVersion": version.to_string() },
        "spec": { "mtls": { "mode": "STRICT" } },
    })
}

#[test]
fn policies_of_an_api_server_without_their_kinds_hold_nothing_up_and_are_seen_when_those_come() {
    let script = |path: &str, count| {
        let policies = path.contains("/peerauthentications?") || path.contains("/authorizationpolicies?");
        match path {
            _ if path.contains("/shop/") && is_list_of(path, "peerauthentications") && count > 0 => {
                Some(list(5, &[peer_authentication(4)]))
            }
            _ if is_watch_of(path, "peerauthentications") => None,
            _ if policies => Some(not_found()),
            _ => discovery(path, &["networking.k8s.io/v1"]),
        }
    };
    run_with(with_mesh, script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        assert!(seen.absent.contains("peerauthentications"), "{:?}", seen.absent);
        assert!(seen.absent.contains("authorizationpolicies"));
        assert!(seen.states.iter().all(|state| state.2.is_none()), "it is no error: {:?}", seen.states);
        seen.until(|seen, _| seen.store.peer_authentications().in_force().count() == 1).await;
        seen.until(|seen, _| !seen.absent.contains("peerauthentications")).await;
    });
}

#[test]
fn an_older_version_of_policies_is_as_good() {
    let script = |path: &str, _| match path {
        _ if path.contains("istio.io/v1beta1/") && is_list_of(path, "peerauthentications") => {
            Some(list(5, &[peer_authentication(4)]))
        }
        _ if path.contains("istio.io/v1/") => Some(not_found()),
        _ => discovery(path, &["security.istio.io/v1beta1"]),
    };
    run_with(with_mesh, script, |mut seen, _| async move {
        seen.until(|seen, _| seen.store.peer_authentications().in_force().count() > 0).await;
        assert!(!seen.absent.contains("peerauthentications"));
    });
}

#[test]
fn a_404_that_the_api_server_does_not_stand_by_empties_nothing() {
    // A proxy in between that lost its way: neither the kind nor what kinds there are can be had.
    let script = |path: &str, count| match path {
        _ if is_watch_of(path, "peerauthentications") => Some(Reply::stream([""])),
        _ if is_list_of(path, "peerauthentications") && count == 0 => {
            Some(list(5, &[peer_authentication(4)]))
        }
        _ if path.contains("/peerauthentications?") || path == "/apis" => Some(not_found()),
        _ => None,
    };
    run_with(with_mesh, script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        let failed = |seen: &Seen, _: &Batch| {
            seen.states.iter().any(|state| state.0 == "peerauthentications" && state.2.is_some())
        };
        seen.until(failed).await;
        assert_eq!(seen.store.peer_authentications().in_force().count(), 1);
    });
}

#[test]
fn policies_that_may_not_be_seen_are_waited_for() {
    let script = |path: &str, _| {
        let refused = Reply::json(403, json!({ "kind": "Status", "code": 403, "message": "no" }));
        path.contains("/authorizationpolicies?").then_some(refused)
    };
    run_with(with_mesh, script, |mut seen, _| async move {
        let all = |seen: &Seen, _: &Batch| {
            let listed = |name: &str| seen.states.iter().any(|state| state.0 == name && state.1);
            listed("secrets") && listed("pods") && listed("peerauthentications")
        };
        seen.until(all).await;
        let failed =
            |seen: &Seen, _: &Batch| seen.states.iter().any(|state| state.0 == "authorizationpolicies");
        if !failed(&seen, &Batch::default()) {
            seen.until(failed).await;
        }
        assert!(!seen.synced, "there may be policies that close what would be open");
    });
}

#[test]
fn policies_of_the_root_namespace_are_followed_beside_the_one_that_is_watched() {
    let script = |path: &str, _| {
        path.contains("/namespaces/istio%2Dsystem/peerauthentications?").then(|| {
            let mut policy = peer_authentication(4);
            policy["metadata"]["namespace"] = "istio-system".into();
            match is_list_of(path, "peerauthentications") {
                true => list(5, &[policy]),
                false => Reply::stream([""]).open(),
            }
        })
    };
    run_with(with_mesh, script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        let found: Vec<_> = seen.store.peer_authentications().in_force().collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].metadata.name, ObjectName::new("istio-system", "p"));
    });
}

#[test]
fn namespaces_that_are_selected_count_and_no_others() {
    let namespace = |name: &str| json!({ "metadata": { "name": name, "resourceVersion": "1" } });
    let of = |namespace: &str, version| {
        let mut object = service("web", version);
        object["metadata"]["namespace"] = namespace.into();
        object
    };
    let script = move |path: &str, count| match path {
        _ if is_list_of(path, "namespaces") => {
            assert!(path.contains("labelSelector=edge%3Dyes"), "{path}");
            Some(list(5, &[namespace("one")]))
        }
        _ if is_watch_of(path, "namespaces") && count == 0 => {
            let lines = [line("ADDED", namespace("two")), line("DELETED", namespace("one"))].concat();
            Some(Reply::stream([lines]).after(Duration::from_millis(300)).open())
        }
        _ if is_list_of(path, "services") => Some(list(5, &[of("one", 2), of("two", 3), of("three", 4)])),
        _ => None,
    };
    let selecting = |_| Settings { watch_namespace_selector: Some("edge=yes".into()), ..Settings::default() };
    run_with(selecting, script, |mut seen, _| async move {
        let has =
            |seen: &Seen, namespace: &str| seen.store.service(&ObjectName::new(namespace, "web")).is_some();
        seen.until(|seen, _| seen.synced).await;
        assert!(has(&seen, "one") && !has(&seen, "two") && !has(&seen, "three"));
        seen.until(|seen, _| has(seen, "two") && !has(seen, "one")).await;
        assert!(!has(&seen, "three"));
    });
}

#[test]
fn what_settings_name_is_followed_as_settings_change() {
    let script = |path: &str, _| {
        let named = |name: &str| path.contains(&format!("fieldSelector=metadata%2Ename%3D{name}"));
        match is_list_of(path, "secrets") {
            true if named("first") => Some(list(7, &[secret("first", 3)])),
            true if named("second") => Some(list(7, &[secret("second", 4)])),
            _ => None,
        }
    };
    let default = |name: &str| Some(ObjectName::new("shop", name));
    let first = move |settings| Settings { default_ssl_certificate: default("first"), ..settings };
    run_with(first, script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        assert!(seen.has_secret("first"), "it is there before anything is served");
        let now = Settings::clone(&seen.settings.borrow());
        seen.settings.send_replace(Arc::new(Settings { default_ssl_certificate: default("second"), ..now }));
        seen.until(|seen, _| seen.has_secret("second") && !seen.has_secret("first")).await;
    });
}

#[test]
fn config_maps_that_settings_name_are_followed_with_a_state_that_ends() {
    let script = |path: &str, _| {
        let map = json!({
            "metadata": { "name": "roots", "namespace": "mesh", "resourceVersion": "3" },
            "data": { "root-cert.pem": "pem" },
        });
        (is_list_of(path, "configmaps") && path.contains("roots")).then(|| list(7, &[map]))
    };
    let bundle = ObjectName::new("mesh", "roots");
    let roots = bundle.clone();
    let settings =
        move |settings| Settings { mesh_trust_bundle: TrustPlace::ConfigMap(roots), ..with_mesh(settings) };
    run_with(settings, script, |mut seen, _| async move {
        seen.until(|seen, _| seen.synced).await;
        assert!(seen.store.config_map(&bundle).is_some());
        assert!(seen.states.iter().any(|state| state.0 == "configmaps/mesh/roots"));
        let now = Settings::clone(&seen.settings.borrow());
        let other = ObjectName::new("mesh", "other");
        seen.settings
            .send_replace(Arc::new(Settings { mesh_trust_bundle: TrustPlace::ConfigMap(other), ..now }));
        let batch = seen.until(|seen, _| seen.store.config_map(&bundle).is_none()).await;
        assert_eq!(batch.ended, ["configmaps/mesh/roots".into()]);
    });
}
