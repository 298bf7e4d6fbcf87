//! Names of annotations that the store knows too, for its indexes. What they mean is in `annotations`.

use super::{HostError, HostPattern};

/// Names the Secret with the users of an Ingress and their passwords.
pub const AUTH_SECRET: &str = "auth-secret";
/// Names the Secret with the authorities of a host's clients.
pub const AUTH_TLS_SECRET: &str = "auth-tls-secret";
/// Has the hosts of an Ingress with `www.` in front, or without it, sent to its own.
pub const FROM_TO_WWW_REDIRECT: &str = "from-to-www-redirect";
/// The Service that answers in place of one without endpoints.
pub const DEFAULT_BACKEND: &str = "default-backend";
/// More names for a host of an Ingress.
pub const SERVER_ALIAS: &str = "server-alias";

/// One of the names in a list of aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alias<'a> {
    Host(HostPattern),
    /// A regular expression, as nginx has them.
    Pattern(&'a str),
}

/// Reads a list of aliases, one after the other.
pub fn aliases(list: &str) -> impl Iterator<Item = Result<Alias<'_>, HostError>> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| match name.starts_with('~') {
        true => Ok(Alias::Pattern(name)),
        // A host here takes no port.
        false if name.contains(':') => Err(HostError::Port),
        false => HostPattern::parse(name).map(Alias::Host),
    })
}
