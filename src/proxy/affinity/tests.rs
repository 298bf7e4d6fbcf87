use std::sync::Arc;

use http::header::COOKIE;
use proptest::prelude::*;

use super::*;
use crate::names::object::{ObjectName, ServicePortRef};
use crate::snapshot::clusters::{ClusterKey, Endpoint};

fn cluster(hosts: impl IntoIterator<Item = u8>) -> Cluster {
    let key = ClusterKey { service: ObjectName::new("a", "web"), port: ServicePortRef::Number(80) };
    let endpoint = |host| Arc::new(Endpoint::Address(([10, 0, 0, host], 8080).into()));
    Cluster::new(Arc::new(key), hosts.into_iter().map(endpoint).collect::<Vec<_>>(), None)
}

fn affinity(mode: AffinityMode, change_on_failure: bool) -> Affinity {
    Affinity { mode, change_on_failure, cookie: SessionCookie::default() }
}

/// Request fields with this cookie.
fn with(value: &str) -> HeaderMap {
    let field = format!("INGRESSCOOKIE={value}");
    HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&field).unwrap())])
}

/// A request of a client with `cookie`, of which the endpoints in `down` cannot be reached: which endpoint answers, and
/// the value of the cookie that is set, if any.
fn ask(cluster: &Cluster, affinity: &Affinity, cookie: &str, down: &[usize]) -> (usize, Option<String>) {
    let session = Session::new(&with(cookie), affinity, false, false);
    let mut tried = Vec::new();
    let at = loop {
        let at = session.choose(cluster, |at| tried.contains(&at)).unwrap();
        if !down.contains(&at) {
            break at;
        }
        tried.push(at);
    };
    let line = session.cookie(cluster, &affinity.cookie, "/");
    let value = |line: HeaderValue| line.to_str().unwrap()["INGRESSCOOKIE=".len()..][..24].to_owned();
    (at, line.map(value))
}

const MODES: [AffinityMode; 2] = [AffinityMode::Balanced, AffinityMode::Persistent];

#[test]
fn a_session_stays_and_is_told_once() {
    let cluster = cluster(1..=5);
    for mode in MODES {
        let affinity = affinity(mode, false);
        for _ in 0..100 {
            let (at, cookie) = ask(&cluster, &affinity, "", &[]);
            assert_eq!(ask(&cluster, &affinity, &cookie.unwrap(), &[]), (at, None));
        }
    }
}

#[test]
fn a_session_whose_endpoint_has_gone_goes_to_one_other() {
    for mode in MODES {
        let affinity = affinity(mode, false);
        for _ in 0..100 {
            let before = cluster(1..=5);
            let (at, cookie) = ask(&before, &affinity, "", &[]);
            let cookie = cookie.unwrap();
            let gone = u8::try_from(at).unwrap() + 1;
            let after = cluster((1..=5).filter(|host| *host != gone));
            let (first, told) = ask(&after, &affinity, &cookie, &[]);
            let (again, told_again) = ask(&after, &affinity, &cookie, &[]);
            assert_eq!((first, &told), (again, &told_again), "requests at the same time agree");
            match mode {
                AffinityMode::Balanced => assert_eq!(told, None),
                AffinityMode::Persistent => {
                    assert_eq!(ask(&after, &affinity, &told.unwrap(), &[]), (first, None));
                }
            }
        }
    }
}

#[test]
fn new_endpoints_take_sessions_over_unless_those_persist() {
    let (before, after) = (cluster(1..=2), cluster(1..=8));
    for mode in MODES {
        let affinity = affinity(mode, false);
        let moved = (0..200).filter(|_| {
            let (at, cookie) = ask(&before, &affinity, "", &[]);
            let (now, told) = ask(&after, &affinity, &cookie.unwrap(), &[]);
            assert_eq!(told, None);
            now != at
        });
        let moved = moved.count();
        match mode {
            AffinityMode::Balanced => assert!((100..200).contains(&moved), "{moved}"),
            AffinityMode::Persistent => assert_eq!(moved, 0),
        }
    }
}

#[test]
fn where_an_endpoint_cannot_be_reached_another_answers_and_keeps_the_session_if_asked_to() {
    let cluster = cluster(1..=5);
    for mode in MODES {
        for change_on_failure in [false, true] {
            let affinity = affinity(mode, change_on_failure);
            for _ in 0..100 {
                let (home, cookie) = ask(&cluster, &affinity, "", &[]);
                let cookie = cookie.unwrap();
                let (other, told) = ask(&cluster, &affinity, &cookie, &[home]);
                assert_ne!(other, home);
                assert_eq!(told.is_some(), change_on_failure, "{mode:?}");
                match told {
                    Some(told) => assert_eq!(ask(&cluster, &affinity, &told, &[]), (other, None)),
                    None => assert_eq!(ask(&cluster, &affinity, &cookie, &[home]), (other, None)),
                }
            }
        }
    }
}

#[test]
fn a_new_session_is_told_of_the_endpoint_that_answered() {
    let cluster = cluster(1..=3);
    for mode in MODES {
        let affinity = affinity(mode, false);
        for _ in 0..100 {
            let (at, cookie) = ask(&cluster, &affinity, "", &[0]);
            assert_eq!(ask(&cluster, &affinity, &cookie.unwrap(), &[]), (at, None), "{mode:?}");
        }
    }
}

#[test]
fn where_all_have_failed_one_is_asked_again() {
    let cluster = cluster(1..=2);
    let session = Session::new(&HeaderMap::new(), &affinity(AffinityMode::Balanced, true), false, false);
    assert!(session.choose(&cluster, |_| true).is_some());
    assert_eq!(session.choose(&self::cluster([]), |_| false), None);
}

#[test]
fn cookies_of_others_are_none() {
    let cluster = cluster(1..=3);
    for mode in MODES {
        let long = "x".repeat(4096);
        for garbage in ["1700000000.123.4.5|abcdef", "10.0.0.1:8080", "", &long] {
            let (_, told) = ask(&cluster, &affinity(mode, false), garbage, &[]);
            assert!(told.is_some(), "{garbage}");
        }
    }
    // The first of ours counts, wherever it stands.
    let fields = with("x; INGRESSCOOKIE=0000000000000001000000ff; INGRESSCOOKIE=000000000000000200000000");
    let found = token(&fields, &affinity(AffinityMode::Balanced, false));
    assert_eq!(found, Some(Token { key: 1, tag: 0xff }));
}

#[test]
fn a_split_backend_is_named_and_the_key_stays() {
    let cluster = cluster(1..=3);
    let affinity = affinity(AffinityMode::Balanced, false);
    let other = Token { key: 7, tag: !cluster.tag() };
    let cookie = |split| {
        let session = Session::new(&with(&other.to_string()), &affinity, false, split);
        session.choose(&cluster, |_| false).unwrap();
        session.cookie(&cluster, &affinity.cookie, "/")
    };
    assert_eq!(cookie(false), None, "backends without a canary may share a cookie");
    let token = Token { key: 7, tag: cluster.tag() };
    assert_eq!(cookie(true).unwrap(), format!("INGRESSCOOKIE={token}; Path=/; HttpOnly").as_str());
}

#[test]
fn attributes() {
    let plain = SessionCookie::default();
    let full = SessionCookie {
        name: "route".into(),
        path: Some("/app".into()),
        domain: Some(".example.com".into()),
        max_age: Some(3600),
        expires: Some(86_400),
        same_site: Some(SameSite::None),
        conditional_same_site_none: true,
        secure: None,
    };
    let line = |cookie: &SessionCookie, https, agent: &str| {
        let affinity = Affinity { cookie: cookie.clone(), ..affinity(AffinityMode::Balanced, false) };
        let fields = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_str(agent).unwrap())]);
        let session = Session::new(&fields, &affinity, https, false);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let line = session.write(Token { key: 1, tag: 2 }, cookie, "/x", now);
        line.unwrap().to_str().unwrap().to_owned()
    };
    let value = "000000000000000100000002";
    assert_eq!(line(&plain, false, ""), format!("INGRESSCOOKIE={value}; Path=/x; HttpOnly"));
    assert_eq!(line(&plain, true, ""), format!("INGRESSCOOKIE={value}; Path=/x; Secure; HttpOnly"));
    let begin = format!(
        "route={value}; Expires=Mon, 07 Nov 1994 08:49:37 GMT; Max-Age=3600; Domain=.example.com; Path=/app; Secure; HttpOnly"
    );
    let new = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36";
    assert_eq!(line(&full, true, new), format!("{begin}; SameSite=None"));
    for old in [
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/60.0.3112.113 Safari/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 12_1 like Mac OS X) AppleWebKit/605.1.15 Version/12.0 Safari/604.1",
        "Mozilla/5.0 (iPad; CPU OS 12_2 like Mac OS X) AppleWebKit/605.1.15 Version/12.1 Safari/604.1",
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_6) AppleWebKit/605.1.15 Version/13.0 Safari/605.1.15",
    ] {
        assert_eq!(line(&full, true, old), begin, "{old}");
    }
    let always = SessionCookie { conditional_same_site_none: false, ..full };
    assert!(line(&always, true, "Chrome/60.0").ends_with("; SameSite=None"));
    let lax = SessionCookie { same_site: Some(SameSite::Lax), secure: Some(true), ..plain.clone() };
    assert!(line(&lax, false, "Chrome/60.0").ends_with("; Secure; HttpOnly; SameSite=Lax"));
    assert!(!line(&SessionCookie { secure: Some(false), ..plain }, true, "").contains("Secure"));
}

#[test]
fn paths_of_cookies_cover_those_of_their_routes() {
    for (path, expected) in [
        ("/", "/"),
        ("/x", "/x"),
        ("/x/", "/x"),
        ("/x/y/", "/x/y"),
        ("/x;y/z", "/"),
        ("/x/y;z", "/x"),
        ("/x/é", "/x"),
        ("/x y", "/"),
        ("", "/"),
    ] {
        assert_eq!(cookie_path(path), expected, "{path}");
    }
}

proptest! {
    #[test]
    fn nothing_that_a_client_sends_panics(fields in proptest::collection::vec("[ -~]{0,80}", 0..4), agent in "[ -~]{0,80}") {
        let cluster = cluster(1..=3);
        let mut headers: HeaderMap =
            fields.iter().map(|field| (COOKIE, HeaderValue::from_str(field).unwrap())).collect();
        headers.insert(USER_AGENT, HeaderValue::from_str(&agent).unwrap());
        for mode in MODES {
            let mut affinity = affinity(mode, false);
            affinity.cookie.conditional_same_site_none = true;
            affinity.cookie.same_site = Some(SameSite::None);
            let session = Session::new(&headers, &affinity, true, true);
            prop_assert!(session.choose(&cluster, |_| false).is_some());
            session.cookie(&cluster, &affinity.cookie, "/");
        }
    }
}
