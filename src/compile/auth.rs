//! The users of an Ingress with `auth-secret`: looked up in the Secret that it names, or the reason why nobody gets in.

use std::sync::Arc;

use http::HeaderValue;

use crate::annotations::{self, AuthDraft};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::annotation::AUTH_SECRET;
use crate::settings::Settings;
use crate::snapshot::passwords::BasicAuth;
use crate::store::objects::{Ingress, Kind, ObjectName};
use crate::store::{SecretNameError, Store, own_secret};

/// Why there is nobody to let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AuthError {
    #[error("A password is asked for, and {AUTH_SECRET} names no Secret with users")]
    NoName,
    #[error("{} {error}", quoted(.value))]
    Name { value: String, error: SecretNameError },
    #[error("Secret {0} does not exist")]
    NotFound(ObjectName),
    #[error("Secret {0} has no key \"auth\" with users")]
    NoFile(ObjectName),
    #[error("Secret {0} has no user with a hash that can be used")]
    Nobody(ObjectName),
}

impl AuthError {
    fn reason(&self) -> &'static str {
        match self {
            Self::NoName | Self::Name { .. } => "InvalidAnnotation",
            Self::NotFound(_) => "SecretNotFound",
            Self::NoFile(_) | Self::Nobody(_) => "NoUsers",
        }
    }
}

/// Who must say a password on the routes of `ingress`.
pub(super) fn resolve(ingress: &Ingress, auth: &AuthDraft, store: &Store) -> Result<BasicAuth, AuthError> {
    let value = auth.secret.as_ref().ok_or(AuthError::NoName)?;
    let name = own_secret(ingress, value).map_err(|error| AuthError::Name { value: value.clone(), error })?;
    let Some(secret) = store.secret(&name) else { return Err(AuthError::NotFound(name)) };
    let lists = secret.users.as_deref();
    let list = lists.and_then(|lists| if auth.is_map { lists.map.as_ref() } else { lists.file.as_ref() });
    let Some(users) = list else { return Err(AuthError::NoFile(name)) };
    if users.is_empty() {
        return Err(AuthError::Nobody(name));
    }
    let realm = auth.realm.replace('\\', "\\\\").replace('"', "\\\"");
    let challenge = HeaderValue::try_from(format!("Basic realm=\"{realm}\""));
    Ok(BasicAuth {
        users: users.clone(),
        // The annotation was checked before.
        challenge: challenge.unwrap_or(HeaderValue::from_static("Basic realm=\"\"")),
        or_source: auth.or_source,
    })
}

/// What there is to say about the users of `ingress`.
pub(super) fn finding(ingress: &Ingress, settings: &Settings, store: &Store) -> Option<Diagnostic> {
    let metadata = &ingress.metadata;
    let auth = annotations::effects(metadata, settings).auth?;
    let (severity, reason, message) = match resolve(ingress, &auth, store) {
        Ok(BasicAuth { users, .. }) if users.unusable > 0 => {
            let secret = quoted(auth.secret.as_deref().unwrap_or_default());
            let message = format!(
                "{} entries of Secret {secret} cannot be used: only hashes of bcrypt (up to a cost of 16), MD5 and SHA-1 \
                 are known.",
                users.unusable
            );
            (Severity::Warning, "UnusableUsers", message)
        }
        Ok(_) => return None,
        Err(error) => {
            let message = format!("{error}. Requests are refused (503) rather than served without it.");
            (Severity::Error, error.reason(), message)
        }
    };
    let field = annotations::field_of(metadata, settings, AUTH_SECRET);
    Some(Diagnostic::new(severity, ObjectRef::new(Kind::Ingress, &metadata.name), field, reason, message))
}

/// As [`resolve`], for a route.
pub(super) fn of_route(
    ingress: &Ingress,
    auth: Option<AuthDraft>,
    store: &Store,
) -> Result<Option<Arc<BasicAuth>>, &'static str> {
    let resolved = auth.map(|auth| resolve(ingress, &auth, store)).transpose();
    resolved.map(|auth| auth.map(Arc::new)).map_err(|_| AUTH_SECRET)
}
