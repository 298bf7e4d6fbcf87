use proptest::prelude::*;

use super::*;

fn rewrite(pattern: &str, target: &str, path: &str, query: Option<&str>) -> Result<String, RewriteError> {
    let pattern = PathPattern::new(pattern).unwrap();
    Target::parse(target)
        .unwrap_or_else(|error| panic!("{target}: {error:?}"))
        .fill(&pattern.captures(path), query)
}

#[test]
fn groups_are_put_into_the_target() {
    for (pattern, target, path, query, expected) in [
        ("/something(/|$)(.*)", "/$2", "/something", None, "/"),
        ("/something(/|$)(.*)", "/$2", "/something/", None, "/"),
        ("/something(/|$)(.*)", "/$2", "/something/new/x", Some("a=b&c"), "/new/x?a=b&c"),
        ("/api/v([0-9]+)/(.*)", "/v$1/api/$2", "/api/v2/x", None, "/v2/api/x"),
        ("/foo", "/", "/foobar", Some("x"), "/?x"),
        ("/foo(/.*)", "$1", "/foo/bar", None, "/bar"),
        ("/foo(.*)", "$1", "/foo", None, "/"),
        ("/foo(.*)", "/x/$1", "/foo/bar", None, "/x/bar"),
        ("/foo(.*)", "/x$9/$1", "/foobar", None, "/x/bar"),
        ("/foo/(.)(.*)", "/$10/$2", "/foo/ab", None, "/a0/b"),
        ("/q/(.*)", "/index.php?q=$1", "/q/a/b", None, "/index.php?q=a/b"),
        ("/q/(.*)", "/index.php?q=$1", "/q/a", Some("x=y"), "/index.php?q=a&x=y"),
        ("/q/(.*)", "/$1?", "/q/a", Some("x=y"), "/a"),
        ("/q/(.*)", "/%7ea%2fb/$1", "/q/a", None, "/~a%2Fb/a"),
    ] {
        let found = rewrite(pattern, target, path, query);
        assert_eq!(found.as_deref(), Ok(expected), "{pattern} {target} {path}");
    }
}

#[test]
fn no_group_leads_out_of_the_place_it_was_put_in() {
    for (pattern, target, path) in [
        // A pattern without a slash at its end, and what it leaves.
        ("/img(.*)", "/static/$1", "/img../secret"),
        ("/img(.*)", "/static$1", "/img/../secret"),
        ("/img(.*)", "/static/$1", "/img.."),
        ("/img(.*)", "/static/$1", "/img./x"),
        ("/img(.*)", "/static/$1", "/img..;/secret"),
        ("/img(.*)", "/static/$1", "/img..%2Fsecret"),
        ("/(.)(.*)", "/a/$1$1/$2", "/.x"),
        // Parts of escapes that make another one.
        ("/(%)25(.*)", "/static/$1$2", "/%252e/secret"),
        ("/(%)25(2e)(.*)", "/static/$1$2$1$2/x", "/%252e"),
    ] {
        let found = rewrite(pattern, target, path, None);
        assert!(matches!(found, Err(RewriteError::Path(_))), "{pattern} {target} {path}: {found:?}");
    }
    for (pattern, target, path) in [("/(.)(.*)", "/$2$1", "/%41"), ("/(%)(..)", "/$1", "/%20")] {
        assert!(matches!(rewrite(pattern, target, path, None), Err(RewriteError::Path(PathError::Escape))));
    }
    assert_eq!(rewrite("/(.*)", "/$1", "//evil.test/x", None).unwrap(), "/evil.test/x");
}

#[test]
fn what_a_group_has_of_a_query_stays_in_its_parameter() {
    let found = rewrite("/q/(.*)", "/?q=$1", "/q/a&admin=1;b+c=d%26%3D%0D%0A%23", Some("e"));
    assert_eq!(found.unwrap(), "/?q=a%26admin%3D1%3Bb%2Bc%3Dd%26%3D%0D%0A%23&e");
}

#[test]
fn a_target_is_never_longer_than_a_request_may_be() {
    let path = format!("/{}", "a".repeat(30_000));
    assert_eq!(rewrite("/(.*)", &"/$1".repeat(1_000), &path, None), Err(RewriteError::TooLong));
    assert_eq!(rewrite("/(.*)", "/$1/$1", &path, Some(&"q".repeat(10_000))), Err(RewriteError::TooLong));
    assert_eq!(
        rewrite("/(.*)", &format!("/?{}", "$1".repeat(1_000)), &path, None),
        Err(RewriteError::TooLong)
    );
}

#[test]
fn what_is_no_target_is_refused() {
    for text in [
        "",
        "foo",
        "https://a.test/$1",
        "http://a.test",
        "/a b",
        "/a\r\nX: y",
        "/a#b",
        "/a\\b",
        "/../a",
        "/a/./b",
        "/a/%2e%2e/b",
        "/%$1",
        "/%0$1",
        "/%00",
        "/\u{e9}",
        "/a?b#c",
        "/a?b c",
        "/a?<",
    ] {
        assert_eq!(Target::parse(text), Err(TemplateError::Malformed), "{text:?}");
    }
    for text in ["/$", "/$0", "/$uri", "/${1}", "$scheme://a.test", "/a?b=$args"] {
        assert_eq!(Target::parse(text), Err(TemplateError::UnknownVariable), "{text:?}");
    }
    assert_eq!(Target::parse("/a/$3?$1").unwrap().groups(), 3);
    assert_eq!(Target::parse("/a?x=$4").unwrap().groups(), 4);
    assert_eq!(Target::parse("/").unwrap().groups(), 0);
}

proptest! {
    #[test]
    fn a_target_is_canonical_and_below_what_was_written(
        target in r"/t/([a-z/%.]|\$[1-3]|%2F|\PC){0,10}(\?([a-z=&]|\$[1-3]){0,4})?",
        path in r"/([ab./;%]|%2F|%25|%2e|\.\.|#|\?|\PC){0,12}",
        query in proptest::option::of("[a-z=&%]{0,8}"),
    ) {
        let (Ok(target), Ok(path)) = (Target::parse(&target), canonical_path(&path)) else { return Ok(()) };
        for pattern in ["/(.*)", "/(.)(.)(.*)", "/([^/]*)/?(.*?)(/.*|$)", "(.*)"] {
            let Ok(pattern) = PathPattern::new(pattern) else { continue };
            let Ok(filled) = target.fill(&pattern.captures(&path), query.as_deref()) else { continue };
            let bare = filled.split('?').next().unwrap();
            let canonical = canonical_path(bare);
            prop_assert_eq!(canonical.as_deref(), Ok(bare));
            prop_assert!(bare.starts_with("/t"), "{}", bare);
            prop_assert!(filled.parse::<http::Uri>().is_ok(), "{}", filled);
            prop_assert!(http::HeaderValue::from_str(&filled).is_ok());
        }
    }
}
