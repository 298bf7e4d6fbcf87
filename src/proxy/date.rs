//! The `Date` field (RFC 9110, section 6.6.1) of responses whose backend set none, written once a second.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    /// The second since the Unix epoch that was written last, and how.
    static WRITTEN: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
}

/// The present.
pub fn now() -> HeaderValue {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    WRITTEN.with_borrow_mut(|(written, value)| {
        if *written != second || value.is_empty() {
            let text = httpdate::fmt_http_date(now);
            *value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
            *written = second;
        }
        value.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_date_of_this_moment() {
        let before = SystemTime::now();
        let date = httpdate::parse_http_date(now().to_str().unwrap()).unwrap();
        let after = SystemTime::now();
        let second = std::time::Duration::from_secs(1);
        assert!(before - second <= date && date <= after, "{before:?} {date:?} {after:?}");
    }
}
