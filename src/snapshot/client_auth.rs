//! What a host asks of its clients' certificates (`auth-tls-*`). `compile` makes it; the handshake takes its TLS policy, and
//! each request of the host is judged by it.

use std::sync::Arc;

use super::redirects::Redirect;
use super::search::{Bounds, SearchPattern};
use crate::tls::client_auth::ClientAuthorities;
use crate::tls::policy::TlsPolicy;

/// What becomes of the clients of a host.
pub enum ClientAuth {
    /// An Ingress asks for something that cannot be done: nobody is let in.
    Refused,
    Checked(ClientCheck),
}

/// How clients are checked.
pub struct ClientCheck {
    pub verify: VerifyClient,
    /// Most certificates between that of a client and an authority.
    pub depth: usize,
    /// Whom it is for, matched as nginx does; `None` is for all.
    pub subject: Option<Arc<SearchPattern>>,
    /// Backends get the certificate too.
    pub pass_certificate: bool,
    /// Where clients are sent whose certificate is missing or bad.
    pub error_page: Option<Redirect>,
    pub authorities: Arc<ClientAuthorities>,
    /// The TLS policy of the host; `None` where clients are asked for nothing.
    pub policy: Option<Arc<TlsPolicy>>,
}

/// Which clients are let in, by what they show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyClient {
    Off,
    #[default]
    On,
    /// Those who show nothing too.
    Optional,
    /// Those whose authority is unknown as well.
    OptionalNoCa,
}

impl ClientAuth {
    pub fn check(&self) -> Option<&ClientCheck> {
        match self {
            Self::Refused => None,
            Self::Checked(check) => Some(check),
        }
    }

    /// Whether nobody is to be served without TLS, where no client can show anything.
    pub fn wants_tls(&self) -> bool {
        self.check().is_none_or(|check| check.verify != VerifyClient::Off || check.subject.is_some())
    }

    /// Whether both ask the same, by the same TLS policy.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused, Self::Refused) => true,
            (Self::Checked(a), Self::Checked(b)) => {
                let policies = (a.policy.as_ref().map(Arc::as_ptr), b.policy.as_ref().map(Arc::as_ptr));
                (a.verify, a.depth, a.pass_certificate) == (b.verify, b.depth, b.pass_certificate)
                    && (&a.subject, &a.error_page) == (&b.subject, &b.error_page)
                    && a.authorities.is_same(&b.authorities)
                    && policies.0 == policies.1
            }
            _ => false,
        }
    }
}

/// Of a pattern for the subject of a client. Nothing bounds its text but the size of an object.
pub const SUBJECT_PATTERN: Bounds = Bounds { text: usize::MAX, automaton: 1 << 20 };

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::search::NoPattern;

    #[test]
    fn subjects_are_matched_anywhere_and_with_regard_to_case() {
        let matches = |pattern: &str, subject: &str| {
            SearchPattern::new(pattern, SUBJECT_PATTERN).unwrap().is_match(subject.as_bytes())
        };
        for (pattern, subject, expected) in [
            ("CN=hello-app", "CN=hello-app", true),
            ("CN=hello-app", "CN=hello-app-2,O=x", true),
            ("^CN=hello-app(,|$)", "CN=hello-app-2,O=x", false),
            ("CN=(hello|world)", "O=x,CN=world", true),
            ("CN=Hello", "CN=hello", false),
            ("(?i)CN=Hello", "CN=hello", true),
            (r"CN=\w+\d,O=Shop\\, Inc", r"CN=web1,O=Shop\, Inc.", true),
            (".*", "", true),
            ("CN=", "", false),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} on {subject}");
        }
        assert!(SearchPattern::new("", SUBJECT_PATTERN).unwrap().is_match(b""));
        assert!(!SearchPattern::new("CN=a", SUBJECT_PATTERN).unwrap().is_match(b""));
    }

    #[test]
    fn what_cannot_be_matched_in_linear_time_is_no_pattern() {
        for text in ["(", "CN=(?!admin)", r"(a)\1", "a{1000}{1000}", "[", "*", "(?P<a>", r"\p{Greek}"] {
            assert_eq!(SearchPattern::new(text, SUBJECT_PATTERN).err(), Some(NoPattern), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\PC|[()|*+?{}\\[\\]^$\\\\.0-9]){0,40}", subject in "[ -~]{0,60}") {
            if let Ok(pattern) = SearchPattern::new(&text, SUBJECT_PATTERN) {
                pattern.is_match(subject.as_bytes());
            }
        }
    }
}
