use super::{Annotation, AnnotationError, PolicyDraft};
use crate::diagnostics::quoted;
use crate::names::HostPattern;
use crate::names::annotation::{Alias, SERVER_ALIAS, aliases};

/// `server-alias`. The names are asked for by [`super::server_aliases`].
pub struct ServerAlias;

/// The names in a list, but for regular expressions.
pub(super) fn hosts(value: &str) -> Result<Vec<HostPattern>, AnnotationError> {
    let mut hosts = Vec::new();
    for alias in aliases(value) {
        match alias {
            Ok(Alias::Host(host)) => hosts.push(host),
            Ok(Alias::Pattern(_)) => {}
            Err(_) => return Err(AnnotationError::Value),
        }
    }
    Ok(hosts)
}

impl Annotation for ServerAlias {
    fn name(&self) -> &'static str {
        SERVER_ALIAS
    }

    fn doc(&self) -> &'static str {
        "More names for the hosts of the Ingress: they have the same routes, of all Ingresses of the host. A name may be a wildcard for one label; regular expressions (`~…`) have no effect and are reported. A name that has rules of its own is no alias, nor one that an older Ingress has given to another host, and of the Ingresses of one host the oldest with aliases counts (`AliasConflict`). An alias has the certificate that a `tls` entry names for it, or one of the host that covers it."
    }

    fn expects(&self) -> &'static str {
        "names or wildcards, with commas between them"
    }

    fn example(&self) -> &'static str {
        "shop.example.org, *.shop.example.org"
    }

    fn default(&self) -> &'static str {
        "none"
    }

    fn apply(&self, value: &str, _: &mut PolicyDraft) -> Result<(), AnnotationError> {
        hosts(value).map(drop)
    }

    fn without_effect(&self, value: &str) -> Option<String> {
        let odd = aliases(value).find_map(|alias| match alias {
            Ok(Alias::Pattern(pattern)) => Some(pattern),
            Ok(Alias::Host(_)) | Err(_) => None,
        })?;
        Some(format!("{} is a regular expression, which no alias can be; it has no effect.", quoted(odd)))
    }
}
