//! The session ticket keys that replicas share, from the Secret that a setting names. Keys that cannot be used, or
//! are gone, leave the last good ones in use.

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::settings::Settings;
use crate::store::Store;
use crate::store::objects::{Kind, TICKET_KEYS_TYPE};
use crate::tls::tickets::SharedKeys;

/// The keys as they are now, and what there is to say about them. Single values that are no keys are reported
/// where the Secret is read.
pub(super) fn compile_ticket_keys(
    store: &Store,
    settings: &Settings,
    previous: Option<SharedKeys>,
) -> (Option<SharedKeys>, Vec<Diagnostic>) {
    let Some(name) = &settings.ssl_session_ticket_secret else { return (None, Vec::new()) };
    let (field, reason, problem) = match store.secret(name) {
        Some(secret) => match &secret.ticket_keys {
            Some(keys) if !keys.is_empty() => return (Some(keys.clone()), Vec::new()),
            Some(_) => ("data", "NoTicketKeys", "the Secret has no usable session ticket key".to_owned()),
            None => {
                let problem =
                    format!("session ticket keys are read from a Secret of type {TICKET_KEYS_TYPE} only");
                ("type", "WrongSecretType", problem)
            }
        },
        None => ("", "SecretNotFound", format!("there is no Secret {name} with session ticket keys")),
    };
    let meanwhile = match previous {
        Some(_) => "the last good ones stay in use",
        None => "until there are, replicas do not resume each other's sessions",
    };
    let object = ObjectRef::new(Kind::Secret, name);
    let found = Diagnostic::new(Severity::Error, object, field, reason, format!("{problem}; {meanwhile}"));
    (previous, vec![found])
}
