//! What the mesh ports are served with: the root certificates and revocation lists that clients are verified against,
//! and the gateway's own certificate. What cannot be read, or is gone, leaves the last good one in force.

use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::settings::Settings;
use crate::settings::places::TrustPlace;
use crate::store::objects::{Kind, ObjectName};
use crate::store::{REVOCATION_LISTS, ROOT_CERTIFICATES, Store};
use crate::tls::hbone::identity_of;
use crate::tls::hbone_client::HboneClient;
use crate::tls::keys::KeyPair;
use crate::tls::mesh::{MeshTrust, MeshTrustError, TrustBundle};

/// Whether a Secret is one that the settings take roots or the own certificate from.
pub(super) fn is_about(settings: &Settings, secret: &ObjectName) -> bool {
    let own = settings.hbone_certificate.as_ref().map(|place| place.object());
    own.as_ref() == Some(secret) || settings.mesh_trust_bundle.object() == *secret
}

/// The roots as they are at `now`, in seconds since the Unix epoch, and what there is to say about them.
pub(super) fn compile_trust(
    store: &Store,
    settings: &Settings,
    previous: Option<Arc<MeshTrust>>,
    now: i64,
) -> (Option<Arc<MeshTrust>>, Vec<Diagnostic>) {
    let (name, kind) = match &settings.mesh_trust_bundle {
        TrustPlace::ConfigMap(name) => (name.clone(), Kind::ConfigMap),
        place => (place.object(), Kind::Secret),
    };
    let finding = |reason, message: String| {
        let stays = if previous.is_some() { "; the last good roots stay" } else { "" };
        let object = ObjectRef::new(kind, &name);
        let field = format!("data.{ROOT_CERTIFICATES}");
        vec![Diagnostic::new(Severity::Error, object, field, reason, format!("{message}{stays}"))]
    };
    let Some(bundle) = find_bundle(store, settings, kind, &name) else {
        // Whoever has no mesh needs no roots either.
        let found = match settings.mesh_port.or(settings.hbone_port) {
            Some(_) => finding(
                "TrustBundleNotFound",
                "there are no root certificates: the ports of the mesh can verify nobody".into(),
            ),
            None => Vec::new(),
        };
        return (previous, found);
    };
    let same = previous.as_ref().filter(|previous| previous.is_made_of(&bundle, now)).cloned();
    match same.map_or_else(|| MeshTrust::new(bundle, now).map(Arc::new), Ok) {
        Ok(trust) => {
            let found = match trust.ended() {
                0 => Vec::new(),
                ended => {
                    let message = format!("{ended} of the root certificates have ended and are left out");
                    let field = format!("data.{ROOT_CERTIFICATES}");
                    let object = ObjectRef::new(kind, &name);
                    vec![Diagnostic::new(Severity::Warning, object, field, "RootExpired", message)]
                }
            };
            (Some(trust), found)
        }
        // What has ended is nothing to go on with.
        Err(error @ MeshTrustError::Ended) => {
            let found = Diagnostic::new(
                Severity::Error,
                ObjectRef::new(kind, &name),
                format!("data.{ROOT_CERTIFICATES}"),
                "InvalidTrustBundle",
                format!("the bundle cannot be used: {error}; the ports of the mesh can verify nobody"),
            );
            (None, vec![found])
        }
        Err(error) => {
            let found = finding("InvalidTrustBundle", format!("the bundle cannot be used: {error}"));
            (previous, found)
        }
    }
}

fn find_bundle(store: &Store, settings: &Settings, kind: Kind, name: &ObjectName) -> Option<TrustBundle> {
    let (roots, revocations) = match kind {
        Kind::ConfigMap => {
            let data = &store.config_map(name)?.data;
            let others = settings.mesh_trust_bundle.lists().and_then(|name| store.config_map(&name));
            let others = others.and_then(|map| map.data.get(REVOCATION_LISTS));
            let lists: Vec<&str> =
                data.get(REVOCATION_LISTS).into_iter().chain(others).map(String::as_str).collect();
            (data.get(ROOT_CERTIFICATES)?.as_str().into(), lists.join("\n").into())
        }
        _ => {
            let authorities = store.secret(name)?.authorities.as_ref()?;
            (authorities.roots.clone(), authorities.revocations.clone())
        }
    };
    let own = std::iter::once(&settings.mesh_trust_domain);
    let trust_domains = own.chain(&settings.mesh_trust_domain_aliases).cloned().collect();
    Some(TrustBundle { roots, revocations, trust_domains })
}

/// The gateway's own certificate of the mesh, and what there is to say about it.
pub(super) fn compile_own_certificate(
    store: &Store,
    settings: &Settings,
    previous: Option<Arc<KeyPair>>,
) -> (Option<Arc<KeyPair>>, Vec<Diagnostic>) {
    let Some(place) = &settings.hbone_certificate else {
        let found = settings.hbone_port.map(|_| Diagnostic {
            severity: Severity::Error,
            file: None,
            object: None,
            field: String::new(),
            reason: "HboneCertificateMissing",
            message: "hbone-port is set and hbone-certificate is not: no tunnel can be opened".into(),
        });
        return (None, found.into_iter().collect());
    };
    let name = place.object();
    let finding = |severity, reason, message: String| {
        vec![Diagnostic::new(severity, ObjectRef::new(Kind::Secret, &name), "", reason, message)]
    };
    let stays = if previous.is_some() { "; the last good one stays" } else { "" };
    let lost = |reason, why: &str| {
        finding(Severity::Error, reason, format!("the gateway's certificate of the mesh {why}{stays}"))
    };
    match store.secret(&name).map(|secret| &secret.pair) {
        Some(Some(Ok(pair))) => {
            let found = match identity_of(pair) {
                Some(_) => Vec::new(),
                None => {
                    let message =
                        "the certificate has no SPIFFE identity: node proxies will not open tunnels to it";
                    finding(Severity::Warning, "NoIdentity", message.into())
                }
            };
            (Some(pair.clone()), found)
        }
        Some(Some(Err(error))) => {
            let found = lost(error.reason(), &format!("cannot be used: {error}"));
            (previous, found)
        }
        Some(None) => (previous.clone(), lost("NoCertificate", "is not there: the Secret has no pair")),
        None => (previous.clone(), lost("SecretNotFound", "is not there")),
    }
}

/// What tunnels to workloads are opened with; the same as before where it is made of the same.
pub(super) fn compile_client(
    trust: &Option<Arc<MeshTrust>>,
    own: &Option<Arc<KeyPair>>,
    previous: Option<Arc<HboneClient>>,
) -> Option<Arc<HboneClient>> {
    let (trust, own) = trust.as_ref().zip(own.as_ref())?;
    identity_of(own)?;
    let same = previous.filter(|previous| previous.is_made_of(trust, own));
    Some(same.unwrap_or_else(|| Arc::new(HboneClient::new(trust.clone(), own.clone()))))
}
