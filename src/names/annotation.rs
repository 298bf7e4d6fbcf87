//! Names of annotations that the store knows too, for its indexes. What they mean is in `annotations`.

/// Names the Secret with the users of an Ingress and their passwords.
pub const AUTH_SECRET: &str = "auth-secret";
/// Names the Secret with the authorities of a host's clients.
pub const AUTH_TLS_SECRET: &str = "auth-tls-secret";
/// Has the hosts of an Ingress with `www.` in front, or without it, sent to its own.
pub const FROM_TO_WWW_REDIRECT: &str = "from-to-www-redirect";
