use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> PathPattern {
    PathPattern::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_pattern_is_for_paths_that_begin_with_it_whatever_their_case() {
    for (text, path, matches) in [
        ("/foo", "/foo", true),
        ("/foo", "/foobar", true),
        ("/foo", "/FOO/x", true),
        ("/Foo", "/foo", true),
        ("/foo", "/fo", false),
        ("/foo/", "/foo", false),
        ("/foo$", "/foobar", false),
        ("/foo$", "/Foo", true),
        ("/[A-Z]{3}", "/ABC/x", true),
        ("/[A-Z]{3}", "/uuid", true),
        ("/[A-Z]{3}$", "/uuid", false),
        // Never in the middle of a path.
        ("/a/b/c", "/myproject/a/b/c", false),
        ("/a|/b", "/b/x", true),
        ("/a|/b", "/x/b", false),
        ("/a(.+)/b", "/ax/b", true),
        ("/v[0-9]+/items", "/v12/items/7", true),
        ("/v[0-9]+/items", "/x/v12/items", false),
        (r"/index\.html", "/index.html", true),
        (r"/index\.html", "/indexxhtml", false),
        ("/index.html", "/indexxhtml", true),
        (r"/\w+/\d+$", "/ab_1/22", true),
        ("/(?-i)Foo", "/foo", false),
        ("/foo(?-i)Bar", "/FOOBar", true),
        ("/ab?c", "/ac", true),
        ("/ab*", "/a", true),
        ("/", "/anything", true),
        // As paths have it.
        ("/caf\u{e9}", "/caf%C3%A9", true),
        ("/caf\u{e9}+/x$", "/caf%C3%A9%C3%A9/x", true),
        ("/a b", "/a%20b", true),
        ("/a b.", "/a%20bc", true),
        ("/caf%c3%a9(/|$)", "/caf%C3%A9", true),
        ("//x", "/x", true),
    ] {
        assert_eq!(pattern(text).matches(path), matches, "{text} for {path}");
    }
}

#[test]
fn groups_are_parts_of_the_path() {
    let something = pattern("/something(/|$)(.*)");
    assert_eq!(something.groups(), 2);
    for (path, first, second) in [
        ("/something", "", ""),
        ("/Something/", "/", ""),
        ("/something/new/", "/", "new/"),
        ("/something/a%2Fb", "/", "a%2Fb"),
    ] {
        let captures = something.captures(path);
        assert_eq!((captures.get(1), captures.get(2)), (first, second), "{path}");
        assert_eq!((captures.get(3), captures.get(9), captures.get(1000)), ("", "", ""));
    }
    assert_eq!(something.captures("/other").get(2), "");
    assert_eq!(pattern("/(a)|/(b)").captures("/b").get(2), "b");
    assert_eq!(pattern("/plain").captures("/plain").get(1), "");
    let many = pattern("/(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)");
    assert_eq!((many.groups(), many.captures("/abcdefghijk").get(9)), (11, "i"));
    assert_eq!(Captures::none().get(1), "");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let refused = |text: &str| PathPattern::new(text).expect_err(text).to_string();
    for (text, reason) in [
        ("/(?!admin)", "look-around"),
        ("/(?<=a)b", "flag"),
        (r"/(a)\1", "backreferences"),
        ("/(", "unclosed group"),
        ("/a)", "unopened group"),
        // Would be two patterns, were it put into a group.
        ("/a)|(/b", "unopened group"),
        ("/[", "unclosed character class"),
        ("/[\u{e9}]", "Unicode"),
        (r"/\p{L}", "Unicode"),
        ("/a**{", "repetition"),
        ("/a{2,1}", "invalid repetition"),
        (r"/\Qa", "escape"),
        ("foo", "does not begin with '/'"),
        ("/back\u{7}", "control character"),
    ] {
        assert!(refused(text).contains(reason), "{text}: {}", refused(text));
    }
    for large in ["/.{0,100000}", "/((a{0,100}){0,100}){0,100}", "/[^/]{5000}(.{5000}){50}"] {
        assert_eq!(PathPattern::new(large).unwrap_err(), PatternError::TooLarge, "{large}");
    }
    let nested = format!("/{}a{}", "(".repeat(2_000), ")".repeat(2_000));
    assert!(refused(&nested).contains("nest"), "{}", refused(&nested));
}

#[test]
fn the_longest_path_of_an_ingress_is_not_too_large() {
    let longest = format!("/{}.", "abcdefgh/".repeat(455));
    assert!(longest.len() > 4_090);
    assert!(pattern(&longest).matches(&longest.to_ascii_uppercase()));
}

/// What would take for ever, were every way through the pattern tried in turn.
#[test]
fn no_path_keeps_a_pattern_busy() {
    let pattern = pattern("/(a+)+(a+)+(a|aa)+$");
    let path = format!("/{}!", "a".repeat(30_000));
    assert!(!pattern.matches(&path));
    assert_eq!(pattern.captures(&path).get(1), "");
}

proptest! {
    #[test]
    fn no_text_panics_and_the_prefix_never_hides_a_match(
        text in r"/([a-cA-C/%.]|[(){}|*+?^$\\]|\[[a-c^]{0,3}\]|\(\?i\)|\{[0-9],?\}|\PC){0,12}",
        path in "/[a-cA-C/%.]{0,10}",
    ) {
        let Ok(pattern) = PathPattern::new(&text) else { return Ok(()) };
        let found = pattern.matches(&path);
        if let Some(regex) = &pattern.regex {
            prop_assert_eq!(found, regex.is_match(anchored(&path)));
            let captures = pattern.captures(&path);
            prop_assert_eq!(path.starts_with(captures.get(0)), true);
        }
    }
}
