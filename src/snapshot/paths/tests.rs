use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

#[test]
fn spellings_of_one_path_are_one() {
    for (raw, canonical) in [
        ("/", "/"),
        ("/admin", "/admin"),
        ("//admin", "/admin"),
        ("/./admin", "/admin"),
        ("/x/../admin", "/admin"),
        ("/%2e%2e/admin", "/admin"),
        ("/a/%2E%2e/admin", "/admin"),
        ("/../../admin", "/admin"),
        ("/%61dmin", "/admin"),
        ("/admin/.", "/admin/"),
        ("/admin/x/..", "/admin/"),
        ("/admin//", "/admin/"),
        ("/..", "/"),
        ("/admin;x=1", "/admin;x=1"),
        ("/a/...;/x", "/a/...;/x"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%5cb", "/a%5Cb"),
        ("/%252e", "/%252e"),
        ("/%252e%252e/admin", "/%252e%252e/admin"),
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a b{c}|", "/a%20b%7Bc%7D%7C"),
        ("/.well-known/acme-challenge/x", "/.well-known/acme-challenge/x"),
        ("/...", "/..."),
        ("/%7Euser/%2D", "/~user/-"),
    ] {
        assert_eq!(canonical_path(raw).as_deref(), Ok(canonical), "{raw}");
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    for (raw, error) in [
        ("", PathError::NotAbsolute),
        ("admin", PathError::NotAbsolute),
        ("*", PathError::NotAbsolute),
        ("/admin%00", PathError::Nul),
        ("/a\0", PathError::Nul),
        ("/a\\..\\admin", PathError::Backslash),
        ("/#/../admin", PathError::Fragment),
        ("/a?b", PathError::Query),
        ("/a\r\nb", PathError::Control),
        ("/a\u{7f}", PathError::Control),
        ("/a%", PathError::Escape),
        ("/a%2", PathError::Escape),
        ("/a%zz", PathError::Escape),
        ("/a%+1", PathError::Escape),
        ("/a/..%2fadmin", PathError::HiddenDots),
        ("/a%2f..%2fadmin", PathError::HiddenDots),
        ("/a%5c%2e%2e%5cadmin", PathError::HiddenDots),
        ("/a%2f.", PathError::HiddenDots),
        ("/public/..;/admin", PathError::HiddenDots),
        ("/public/..;x=1%2fadmin", PathError::HiddenDots),
    ] {
        assert_eq!(canonical_path(raw), Err(error), "{raw:?}");
    }
}

#[test]
fn a_canonical_path_is_borrowed() {
    for raw in ["/", "/api/v1/users;id=7", "/.well-known/x", "/a%2Fb/"] {
        assert!(matches!(canonical_path(raw), Ok(Cow::Borrowed(_))), "{raw}");
    }
}

fn map(paths: &[(PathMatch, &'static str)]) -> PathMap<(PathMatch, &'static str)> {
    PathMap::new(paths.iter().map(|&(kind, path)| (kind, path.into(), (kind, path))))
}

#[test]
fn paths_match_as_kubernetes_defines() {
    use PathMatch::{Exact, Prefix};
    // The table in the Ingress documentation, row by row: kind, configured path, request, whether it matches.
    for (kind, configured, request, matches) in [
        (Prefix, "/", "/foo", true),
        (Prefix, "/", "/", true),
        (Exact, "/foo", "/foo", true),
        (Exact, "/foo", "/bar", false),
        (Exact, "/foo", "/foo/", false),
        (Exact, "/foo/", "/foo", false),
        (Exact, "/foo", "/Foo", false),
        (Prefix, "/foo", "/foo", true),
        (Prefix, "/foo", "/foo/", true),
        (Prefix, "/foo", "/foo/x", true),
        (Prefix, "/foo", "/foobar", false),
        (Prefix, "/foo", "/foo-bar", false),
        (Prefix, "/foo", "/fo", false),
        (Prefix, "/foo/", "/foo", true),
        (Prefix, "/foo/", "/foo/", true),
        (Prefix, "/foo/", "/foo/x", true),
        (Prefix, "/foo/", "/foobar", false),
        (Prefix, "/aaa/bb", "/aaa/bbb", false),
        (Prefix, "/aaa/bbb", "/aaa/bbb/ccc", true),
        (Prefix, "/aaa/bbb", "/aaa/bbbxyz", false),
    ] {
        let found = map(&[(kind, configured)]).find(request).is_some();
        assert_eq!(found, matches, "{kind:?} {configured} for {request}");
    }
}

#[test]
fn the_longest_prefix_wins_and_exact_before_all() {
    use PathMatch::{Exact, Prefix};
    let map = map(&[
        (Prefix, "/"),
        (Prefix, "/aaa"),
        (Prefix, "/aaa/bbb"),
        (Prefix, "/aaa-x"),
        (Exact, "/aaa"),
        (Prefix, "/both"),
        (Prefix, "/both/"),
    ]);
    for (request, expected) in [
        ("/aaa/bbb/ccc", (Prefix, "/aaa/bbb")),
        ("/aaa/ccc", (Prefix, "/aaa")),
        ("/aaa", (Exact, "/aaa")),
        ("/aaa/", (Prefix, "/aaa")),
        ("/aaa-x/y", (Prefix, "/aaa-x")),
        ("/aaa-y", (Prefix, "/")),
        ("/zzz", (Prefix, "/")),
        ("/both", (Prefix, "/both")),
        ("/both/", (Prefix, "/both/")),
        ("/both/x", (Prefix, "/both/")),
    ] {
        assert_eq!(map.find(request), Some(&expected), "{request}");
    }
    let shown: Vec<_> = map.entries().map(|(kind, path, _)| (kind, path)).collect();
    assert_eq!(shown[0], (Prefix, "/aaa/bbb"));
    assert_eq!(shown.last(), Some(&(Prefix, "/")));
    assert_eq!(shown.len(), map.iter().count());
}

#[test]
fn a_map_without_the_root_leaves_requests_unmatched() {
    assert_eq!(map(&[(PathMatch::Prefix, "/m")]).find("/a"), None);
    assert_eq!(map(&[(PathMatch::Prefix, "/m")]).find("/z"), None);
    assert!(PathMap::<()>::default().find("/").is_none());
    assert!(PathMap::<()>::default().is_empty());
}

#[test]
fn hostile_paths_end_at_the_longest_configured_one() {
    let deep = "/a".repeat(2_000);
    let map = PathMap::new([
        (PathMatch::Prefix, deep.clone().into_boxed_str(), "deep"),
        (PathMatch::Prefix, "/a".into(), "shallow"),
    ]);
    assert_eq!(map.find(&"/a".repeat(1_000_000)), Some(&"deep"));
    assert_eq!(map.find(&format!("{}b", "/a".repeat(1_999))), Some(&"shallow"));
}

/// Definition of the map, one rule after the other.
fn naive<'a>(routes: &'a [(PathMatch, String)], path: &str) -> Option<&'a (PathMatch, String)> {
    let exact = routes.iter().find(|(kind, exact)| *kind == PathMatch::Exact && exact == path);
    let segments = |path: &str| -> Vec<String> { path.split('/').skip(1).map(str::to_owned).collect() };
    let bare = |prefix: &str| prefix.strip_suffix('/').unwrap_or(prefix).to_owned();
    let covers = |prefix: &str| {
        let bare = bare(prefix);
        bare.is_empty() || segments(path).starts_with(&segments(&bare))
    };
    let prefixes = routes.iter().filter(|(kind, prefix)| *kind == PathMatch::Prefix && covers(prefix));
    // Of `/foo` and `/foo/` the first is for the path `/foo` itself, the second for everything below.
    let rank = |prefix: &str| (bare(prefix).len(), prefix.ends_with('/') != (bare(prefix) == path));
    exact.or_else(|| prefixes.max_by_key(|(_, prefix)| rank(prefix)))
}

fn arbitrary_path() -> impl Strategy<Value = String> {
    proptest::string::string_regex("(/[ab.-]{1,2}){0,4}/?")
        .unwrap()
        .prop_map(|path| canonical_path(&format!("/{path}")).unwrap().into_owned())
}

fn arbitrary_routes() -> impl Strategy<Value = Vec<(PathMatch, String)>> {
    let kind = prop_oneof![Just(PathMatch::Exact), Just(PathMatch::Prefix)];
    proptest::collection::btree_set((kind, arbitrary_path()), 0..12)
        .prop_map(|routes| routes.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

proptest! {
    #[test]
    fn the_map_finds_what_the_definition_says(
        routes in arbitrary_routes(),
        paths in proptest::collection::vec(arbitrary_path(), 1..20),
    ) {
        let build = |routes: &[(PathMatch, String)]| {
            PathMap::new(routes.iter().map(|route| (route.0, route.1.as_str().into(), route.clone())))
        };
        let map = build(&routes);
        let reversed = build(&routes.iter().rev().cloned().collect::<Vec<_>>());
        for path in paths {
            prop_assert_eq!(map.find(&path), naive(&routes, &path), "{}", path);
            prop_assert_eq!(map.find(&path), reversed.find(&path), "order of insertion, {}", path);
        }
    }

    #[test]
    fn the_canonical_form_is_a_fixed_point_without_detours(raw in "/([a-c./%;\\\\]|%2[eEfF]|%5[cC]|%6[1-3]|\\PC){0,20}") {
        if let Ok(path) = canonical_path(&raw) {
            let again = canonical_path(&path);
            prop_assert_eq!(again.as_deref(), Ok(&*path));
            prop_assert!(path.starts_with('/') && !path.contains("//"));
            prop_assert!(!path.split('/').any(|segment| segment == "." || segment == ".."));
            prop_assert!(path.is_ascii());
        }
    }

    #[test]
    fn no_string_panics(raw in "\\PC{0,60}|/[\\x00-\\xff]{0,60}") {
        if let Ok(path) = canonical_path(&raw) {
            map(&[(PathMatch::Prefix, "/a"), (PathMatch::Exact, "/b")]).find(&path);
        }
    }
}
