//! Redirects that a route answers with: a status, and a location in which each request fills in what it asked for.
//! Annotations are parsed into these once; the pipeline fills them in.

use http::{StatusCode, Uri};

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub status: StatusCode,
    pub location: Location,
}

impl Redirect {
    /// The status with this code, of those that settings allow for redirects; 308 for what is none.
    pub fn status(code: u16) -> StatusCode {
        StatusCode::from_u16(code).unwrap_or(StatusCode::PERMANENT_REDIRECT)
    }
}

/// The value of `Location`, with gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location(Box<[Piece]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Gap(Gap),
}

/// What a request fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    Scheme,
    /// Without the port.
    Host,
    /// The port that the client named, after a colon; nothing where it named none.
    Port,
    Path,
    /// `?` where there is a query.
    QuestionMark,
    Query,
}

/// The gaps by the names that they have in nginx, the longest of those with a common beginning first.
const VARIABLES: [(&str, &[Gap]); 8] = [
    ("scheme", &[Gap::Scheme]),
    ("http_host", &[Gap::Host, Gap::Port]),
    ("host", &[Gap::Host]),
    ("request_uri", &[Gap::Path, Gap::QuestionMark, Gap::Query]),
    ("uri", &[Gap::Path]),
    ("is_args", &[Gap::QuestionMark]),
    ("args", &[Gap::Query]),
    ("query_string", &[Gap::Query]),
];

/// What a request asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub https: bool,
    /// Canonical; requests of HTTP/1.0 may have none.
    pub host: Option<&'a str>,
    pub port: Option<u16>,
    /// Canonical, beginning with one slash.
    pub path: &'a str,
    pub query: Option<&'a str>,
}

/// Why a text is no location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationError {
    /// It is neither an `http` or `https` URL nor a path.
    Malformed,
    /// It has a variable that is not known.
    UnknownVariable,
}

impl Location {
    /// Reads a URL or a path with variables of nginx in it. A path is sent as it is.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if !text.bytes().all(allowed) {
            return Err(LocationError::Malformed);
        }
        let is_path = text.starts_with('/');
        // `//host` would be another host, also where a variable makes it that.
        if is_path && text[1..].starts_with(['/', '$']) {
            return Err(LocationError::Malformed);
        }
        let location = Self(pieces_of(text)?.into());
        match is_path || location.is_url() {
            true => Ok(location),
            false => Err(LocationError::Malformed),
        }
    }

    /// The same path and query of another host.
    pub fn of_host(host: &str) -> Self {
        let gaps = [Gap::Port, Gap::Path, Gap::QuestionMark, Gap::Query].map(Piece::Gap);
        let start = [Piece::Gap(Gap::Scheme), Piece::Text("://".into()), Piece::Text(host.into())];
        Self(start.into_iter().chain(gaps).collect())
    }

    /// The value for one request. `None` where that has no host and the location needs one.
    pub fn fill(&self, asked: &Asked<'_>) -> Option<String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Gap(Gap::Scheme) => filled.push_str(if asked.https { "https" } else { "http" }),
                Piece::Gap(Gap::Host) => filled.push_str(asked.host?),
                Piece::Gap(Gap::Port) => filled.extend(asked.port.map(|port| format!(":{port}"))),
                Piece::Gap(Gap::Path) => filled.push_str(asked.path),
                Piece::Gap(Gap::QuestionMark) => filled.extend(asked.query.map(|_| '?')),
                Piece::Gap(Gap::Query) => filled.push_str(asked.query.unwrap_or_default()),
            }
        }
        Some(filled)
    }

    /// A path as a URL of the scheme and host that were asked for; a URL as it is.
    #[must_use]
    pub fn absolute(self) -> Self {
        let is_path = matches!(self.0.first(), Some(Piece::Text(text)) if text.starts_with('/'));
        if !is_path {
            return self;
        }
        let scheme = [Piece::Gap(Gap::Scheme), Piece::Text("://".into())];
        let host = [Piece::Gap(Gap::Host), Piece::Gap(Gap::Port)];
        Self(scheme.into_iter().chain(host).chain(self.0).collect())
    }

    /// Whether it makes an `http` or `https` URL of a request.
    fn is_url(&self) -> bool {
        let asked = Asked { https: true, host: Some("a.test"), port: None, path: "/", query: Some("a") };
        let uri = self.fill(&asked).and_then(|filled| filled.parse::<Uri>().ok());
        uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        })
    }
}

fn pieces_of(text: &str) -> Result<Vec<Piece>, LocationError> {
    let mut parts = text.split('$');
    let mut pieces: Vec<_> = parts.next().into_iter().map(|text| Piece::Text(text.into())).collect();
    for part in parts {
        let known = VARIABLES.iter().find_map(|(name, gaps)| Some((part.strip_prefix(name)?, gaps)));
        let (rest, gaps) = known.ok_or(LocationError::UnknownVariable)?;
        if rest.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '_') {
            return Err(LocationError::UnknownVariable);
        }
        pieces.extend(gaps.iter().copied().map(Piece::Gap));
        pieces.push(Piece::Text(rest.into()));
    }
    pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASKED: Asked<'static> =
        Asked { https: true, host: Some("shop.test"), port: Some(8443), path: "/a/b", query: Some("c=d") };

    fn filled(text: &str, relative: bool) -> String {
        let location = Location::parse(text).unwrap();
        let location = if relative { location } else { location.absolute() };
        location.fill(&ASKED).unwrap()
    }

    #[test]
    fn urls_and_paths_are_filled_in() {
        for (text, relative, expected) in [
            ("https://new.test", false, "https://new.test"),
            ("https://new.test$request_uri", false, "https://new.test/a/b?c=d"),
            ("http://new.test:81/x$uri$is_args$args", true, "http://new.test:81/x/a/b?c=d"),
            ("$scheme://www.$host$uri?$query_string", false, "https://www.shop.test/a/b?c=d"),
            ("https://$http_host/", false, "https://shop.test:8443/"),
            ("/new?x=1#y", false, "https://shop.test:8443/new?x=1#y"),
            ("/new", true, "/new"),
            ("/old$uri", true, "/old/a/b"),
        ] {
            assert_eq!(filled(text, relative), expected, "{text}");
        }
        let plain = Asked { https: false, port: None, query: None, ..ASKED };
        let location = Location::of_host("www.shop.test");
        assert_eq!(location.fill(&ASKED).unwrap(), "https://www.shop.test:8443/a/b?c=d");
        assert_eq!(location.fill(&plain).unwrap(), "http://www.shop.test/a/b");
        let location = Location::parse("/x").unwrap().absolute();
        assert_eq!(location.fill(&Asked { host: None, ..ASKED }), None);
    }

    #[test]
    fn what_is_no_location_is_refused() {
        for text in [
            "",
            "new.test",
            "ftp://new.test",
            "https://",
            "https:///x",
            "//new.test",
            "/$uri",
            "/a b",
            "/a\r\nb",
            "javascript:alert(1)",
            "https://a.test/{x}",
            "https://ä.test",
            "$request_uri",
        ] {
            assert_eq!(Location::parse(text), Err(LocationError::Malformed), "{text:?}");
        }
        for text in ["https://a.test/$remote_addr", "https://a.test/$hostname", "https://a.test/$", "/x$1"] {
            assert_eq!(Location::parse(text), Err(LocationError::UnknownVariable), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_location_is_an_url_or_a_path_of_the_same_host(
            text in "(https?://|/|\\$scheme://)?([a-z./?#]|\\$(host|uri|args|request_uri)|\\PC){0,12}",
            relative: bool,
        ) {
            if let Ok(location) = Location::parse(&text) {
                let location = if relative { location } else { location.absolute() };
                let filled = location.fill(&ASKED).unwrap();
                prop_assert!(http::HeaderValue::from_str(&filled).is_ok());
                let is_path = filled.starts_with('/') && !filled.starts_with("//");
                prop_assert!(is_path || filled.starts_with("http"), "{}", filled);
            }
        }
    }
}
