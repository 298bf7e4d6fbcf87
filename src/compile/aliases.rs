//! `server-alias`: more names for a host, under which it has the same routes.
//!
//! A name with rules of its own is nobody's alias. Of the Ingresses of a host only the oldest with aliases names any, and
//! of several hosts that want the same name the one of the oldest Ingress has it, as in ingress-nginx.

use std::sync::Arc;

use super::classes::Classes;
use crate::annotations;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::names::annotation::SERVER_ALIAS;
use crate::settings::Settings;
use crate::store::Store;
use crate::store::objects::{Ingress, Kind};

/// The host that `alias` is another name of.
pub(super) fn origin(
    store: &Store,
    classes: &Classes<'_>,
    settings: &Settings,
    alias: &HostPattern,
) -> Option<HostPattern> {
    Look { store, classes, settings }.origin(alias).map(|(host, _)| host)
}

/// What there is to say to those that ask for `alias`.
pub(super) fn findings(
    store: &Store,
    classes: &Classes<'_>,
    settings: &Settings,
    alias: &HostPattern,
) -> Vec<Diagnostic> {
    let look = Look { store, classes, settings };
    let asking = look.asking(alias);
    if asking.is_empty() {
        return Vec::new();
    }
    let rules = look.with_rules(alias);
    let origin = look.origin(alias);
    let told = asking.into_iter().filter_map(|ingress| {
        let why = match (&rules, &origin) {
            (Some(other), _) => {
                format!("host {alias} has rules of its own, in Ingress {}", other.metadata.name)
            }
            (None, Some((host, owner))) => match hosts_of(ingress).contains(host) {
                // The same name for the same host, whoever of them says so.
                true => return None,
                false => {
                    format!("{alias} is a name of host {host} already, by Ingress {}", owner.metadata.name)
                }
            },
            (None, None) => match hosts_of(ingress).first() {
                Some(host) => format!("an older Ingress says which names host {host} has"),
                None => "the Ingress has no host with a name".to_owned(),
            },
        };
        let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
        let field = annotations::field_of(&ingress.metadata, settings, SERVER_ALIAS);
        let message = format!("The alias {alias} has no effect: {why}.");
        Some(Diagnostic::new(Severity::Warning, object, field, "AliasConflict", message))
    });
    told.collect()
}

struct Look<'a> {
    store: &'a Store,
    classes: &'a Classes<'a>,
    settings: &'a Settings,
}

impl<'a> Look<'a> {
    fn origin(&self, alias: &HostPattern) -> Option<(HostPattern, &'a Arc<Ingress>)> {
        let asking = self.asking(alias);
        // Nearly no host is one.
        if asking.is_empty() || self.with_rules(alias).is_some() {
            return None;
        }
        asking.into_iter().find_map(|ingress| {
            let host = hosts_of(ingress).into_iter().find(|host| self.names(host, ingress))?;
            Some((host, ingress))
        })
    }

    /// The Ingresses that want `alias` to be a name of theirs, oldest first.
    fn asking(&self, alias: &HostPattern) -> Vec<&'a Arc<Ingress>> {
        let mut asking = self.store.ingresses_of_alias(alias);
        asking
            .retain(|ingress| self.classes.serves_as_main(ingress) && self.aliases(ingress).contains(alias));
        asking
    }

    /// Whether it is for `ingress` to say which other names `host` has.
    fn names(&self, host: &HostPattern, ingress: &Ingress) -> bool {
        let mut aliasing = self.store.ingresses_aliasing(host).into_iter();
        let first = aliasing.find(|it| self.classes.serves_as_main(it) && !self.aliases(it).is_empty());
        first.is_some_and(|first| first.metadata.name == ingress.metadata.name)
    }

    fn with_rules(&self, host: &HostPattern) -> Option<&'a Arc<Ingress>> {
        self.store.ingresses_of_host(host).into_iter().find(|ingress| self.classes.serves_as_main(ingress))
    }

    fn aliases(&self, ingress: &Ingress) -> Vec<HostPattern> {
        annotations::server_aliases(&ingress.metadata, self.settings)
    }
}

/// Its hosts with a name, in the order of its rules.
fn hosts_of(ingress: &Ingress) -> Vec<HostPattern> {
    let named = ingress.rules.iter().filter_map(|rule| HostPattern::parse(rule.host.as_deref()?).ok());
    named.filter(|host| *host != HostPattern::Any).collect()
}
