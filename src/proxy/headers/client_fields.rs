//! The fields that tell a backend about the client. They are the same for each request of a connection, so they
//! are made once, both as fields for HTTP/2 and as the lines of an HTTP/1.1 head, and never enter the header map of
//! a request: that would hash and copy them each time.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{X_FORWARDED_FOR, X_FORWARDED_PORT, X_FORWARDED_PROTO, X_FORWARDED_SCHEME, X_REAL_IP, X_SCHEME};

/// Fields about a client; by default none.
#[derive(Default)]
pub struct ClientFields {
    fields: Vec<(HeaderName, HeaderValue)>,
    lines: Vec<u8>,
}

impl ClientFields {
    pub fn new(client: &HeaderValue, chain: &HeaderValue, port: &HeaderValue, https: bool) -> Self {
        let scheme = HeaderValue::from_static(if https { "https" } else { "http" });
        let fields = vec![
            (X_REAL_IP, client.clone()),
            (X_FORWARDED_FOR, chain.clone()),
            (X_FORWARDED_PORT, port.clone()),
            (X_FORWARDED_PROTO, scheme.clone()),
            (X_FORWARDED_SCHEME, scheme.clone()),
            (X_SCHEME, scheme),
        ];
        let line = |(name, value): &(HeaderName, HeaderValue)| {
            [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat()
        };
        let lines = fields.iter().flat_map(line).collect();
        Self { fields, lines }
    }

    /// As they stand in the head of an HTTP/1.1 request.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Puts them into `headers`, in place of any of their name.
    pub fn insert_into(&self, headers: &mut HeaderMap) {
        headers.reserve(self.fields.len());
        for (name, value) in &self.fields {
            headers.insert(name, value.clone());
        }
    }
}
