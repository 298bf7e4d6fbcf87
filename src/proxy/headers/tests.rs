use http::HeaderMap;

use super::*;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn names(map: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = map.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_concerns_one_connection_goes_no_further() {
    let mut map = headers(&[
        ("Host", "a"),
        ("Connection", "close, X-Secret, Host"),
        ("Keep-Alive", "5"),
        ("Proxy-Connection", "x"),
        ("Proxy", "http://evil"),
        ("X-Secret", "1"),
        ("TE", "gzip, trailers"),
        ("Accept", "*/*"),
    ]);
    assert_eq!(strip_request(&mut map, false), None);
    assert_eq!(names(&map), ["accept", "host", "te"]);
    assert_eq!(map[TE], "trailers");
}

#[test]
fn an_upgrade_needs_both_fields_and_is_never_h2c() {
    let websocket = [("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket")];
    assert_eq!(strip_request(&mut headers(&websocket), false), Some(HeaderValue::from_static("websocket")));
    assert_eq!(strip_request(&mut headers(&[("Upgrade", "websocket")]), false), None);
    let h2c = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "x")];
    let mut map = headers(&h2c);
    assert_eq!(strip_request(&mut map, false), None);
    assert!(map.is_empty());
}

#[test]
fn other_spellings_of_managed_fields_are_dropped() {
    let fields = [("x_forwarded_for", "1"), ("X.Real.IP", "1"), ("my_field", "1"), ("my.field", "1")];
    let mut map = headers(&fields);
    strip_request(&mut map, false);
    assert_eq!(names(&map), ["my.field"]);
    let mut map = headers(&fields);
    strip_request(&mut map, true);
    assert_eq!(names(&map), ["my.field", "my_field"]);
}

#[test]
fn the_client_is_the_rightmost_that_is_not_trusted() {
    let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    for (chain, client) in [
        (&["1.2.3.4"][..], Some("1.2.3.4")),
        (&["6.6.6.6, 1.2.3.4, 10.0.0.1"], Some("1.2.3.4")),
        (&["6.6.6.6", "1.2.3.4, 10.0.0.1"], Some("1.2.3.4")),
        (&["1.2.3.4, junk, 10.0.0.1"], Some("10.0.0.1")),
        (&["1.2.3.4, junk"], None),
        (&["[2001:db8::1]:80"], Some("2001:db8::1")),
        (&["6.6.6.6, ::ffff:10.0.0.1"], Some("6.6.6.6")),
        (&["1.2.3.4:5678"], Some("1.2.3.4")),
        (&[""], None),
        (&[], None),
    ] {
        assert_eq!(client_of(chain, &trusted), client.map(|ip| ip.parse().unwrap()), "{chain:?}");
    }
}

#[test]
fn what_a_client_says_about_itself_is_kept_under_another_name_only() {
    let mut map = headers(&[
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-For", "7.7.7.7"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "https"),
        ("X-Original-Forwarded-For", "8.8.8.8"),
        ("X-Real-IP", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
    ]);
    strip_request(&mut map, false);
    assert_eq!(names(&map), ["x-original-forwarded-for", "x-original-forwarded-host"]);
    assert_eq!(map[X_ORIGINAL_FORWARDED_FOR], "6.6.6.6, 7.7.7.7");
    assert_eq!(map[X_ORIGINAL_FORWARDED_HOST], "evil.example");
}

#[test]
fn nothing_of_a_client_passes_for_a_field_of_ours() {
    for (name, fate) in &MANAGED {
        let sent = [(name.as_str(), "forged")];
        let mut map = headers(&sent);
        strip_request(&mut map, true);
        let left: Vec<_> = map.keys().cloned().collect();
        match fate {
            Fate::Dropped => assert!(left.is_empty(), "{name}: {left:?}"),
            Fate::Renamed(other) => assert_eq!(left, [other], "{name}"),
            Fate::Decided => assert_eq!(left, [name], "{name}"),
        }
        let others = ["_", "."].map(|letter| name.as_str().replacen('-', letter, 1));
        for other in others.iter().filter(|other| *other != name.as_str()) {
            let mut map = headers(&[(other, "forged")]);
            strip_request(&mut map, true);
            assert!(map.is_empty(), "{other}");
            assert!(is_managed(&dashed(other)), "{other}");
        }
    }
    // Whatever tells the backend about the client is among them.
    let mut map = HeaderMap::new();
    let value = HeaderValue::from_static("x");
    ClientFields::new(&value, &value, &value, true).insert_into(&mut map);
    assert!(map.keys().all(is_claim), "{map:?}");
}

#[test]
fn trailers_are_understood_by_who_says_so_anywhere() {
    for (lines, understood) in [
        (&["trailers"][..], true),
        (&["Trailers, deflate"], true),
        (&["deflate;q=0.5", "trailers"], true),
        (&["deflate"], false),
        (&["xtrailers"], false),
        (&[], false),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| ("te", *line)).collect();
        assert_eq!(takes_trailers(&headers(&lines)), understood, "{lines:?}");
    }
}

#[test]
fn fields_about_the_client_are_the_same_as_lines_and_in_a_map() {
    let connection = Connection {
        peer: HeaderValue::from_static("192.0.2.1"),
        port: HeaderValue::from_static("443"),
        https: true,
    };
    let claimed = Claimed {
        client: Some("198.51.100.7".parse().unwrap()),
        https: Some(false),
        chain: Some(HeaderValue::from_static("6.6.6.6, 198.51.100.7")),
        ..Claimed::default()
    };
    for (fields, client, chain, proto) in [
        (connection.fields(), "192.0.2.1", "192.0.2.1", "https"),
        (claimed.fields(&connection, false), "198.51.100.7", "198.51.100.7", "http"),
        (claimed.fields(&connection, true), "198.51.100.7", "6.6.6.6, 198.51.100.7, 192.0.2.1", "http"),
    ] {
        let mut map = headers(&[("X-Real-IP", "6.6.6.6")]);
        fields.insert_into(&mut map);
        assert_eq!(
            (&map[X_REAL_IP], &map[X_FORWARDED_FOR], &map[X_SCHEME]),
            (
                &HeaderValue::from_static(client),
                &HeaderValue::from_static(chain),
                &HeaderValue::from_static(proto)
            )
        );
        let lines: String =
            map.iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap())).collect();
        assert_eq!(std::str::from_utf8(fields.lines()).unwrap(), lines);
    }
}
