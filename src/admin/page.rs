//! The web page: one file without outside resources, whose script and style are the only ones its policy
//! allows. Everything it shows comes from the JSON API and is set as text, never as markup.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;

/// The page as it is sent.
pub struct Page {
    pub html: Bytes,
    /// Content-Security-Policy.
    pub policy: HeaderValue,
}

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

pub static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let html = include_str!("page/page.html").replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT);
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        source_hash(STYLE),
        source_hash(SCRIPT)
    );
    // Hashes in base64 are visible ASCII, so the other case does not occur; it allows nothing at all.
    let policy = HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    Page { html: html.into(), policy }
});

/// How Content Security Policy Level 3 names an inline element.
fn source_hash(element: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest::digest(&digest::SHA256, element.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_fetched_from_elsewhere_and_no_markup_is_made_of_data() {
        let html = std::str::from_utf8(&PAGE.html).unwrap();
        for outside in ["http://", "https://", "//cdn", "@import", "url(http"] {
            let without_names = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!without_names.contains(outside), "{outside}");
        }
        for unsafe_call in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(unsafe_call), "{unsafe_call}");
        }
    }

    #[test]
    fn the_policy_names_exactly_what_the_page_has() {
        let html = std::str::from_utf8(&PAGE.html).unwrap();
        let policy = PAGE.policy.to_str().unwrap();
        for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
            let (_, rest) = html.split_once(&format!("<{element}>")).unwrap();
            let (inline, rest) = rest.split_once(&format!("</{element}>")).unwrap();
            assert!(policy.contains(&format!("{directive} '{}'", source_hash(inline))), "{policy}");
            assert!(!rest.contains(&format!("<{element}")));
        }
        assert!(!html.contains(" style=") && !html.contains(" onclick="));
    }
}
