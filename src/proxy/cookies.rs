//! The cookies of a request.

use http::HeaderMap;
use http::header::COOKIE;

/// The values of all cookies called `name`, in the order in which the client sent them: of several with one name, a
/// browser sends that of the longest path first.
pub fn all<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn they_are_found_by_their_whole_name_in_all_fields() {
        let mut headers = HeaderMap::new();
        for field in ["a=1; ab=2;a=3", "b; a; =; ;;a=;xa=4", "a=x=y; A=5"] {
            headers.append(COOKIE, HeaderValue::from_static(field));
        }
        headers.append(COOKIE, HeaderValue::from_bytes(b"\xff=\xff; a=\xff").unwrap());
        let found: Vec<_> = all(&headers, "a").collect();
        assert_eq!(found, [&b"1"[..], b"3", b"", b"x=y", b"\xff"]);
        assert_eq!(all(&headers, "none").count(), 0);
    }
}
