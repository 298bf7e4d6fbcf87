//! The root certificates that clients of the mesh are verified against. A bundle that cannot be read, or is gone,
//! leaves the last good one in force.

use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::settings::Settings;
use crate::store::objects::Kind;
use crate::store::{ROOT_CERTIFICATES, Store};
use crate::tls::mesh::MeshTrust;

/// The roots as they are now, and what there is to say about them.
pub(super) fn compile_trust(
    store: &Store,
    settings: &Settings,
    previous: Option<Arc<MeshTrust>>,
) -> (Option<Arc<MeshTrust>>, Vec<Diagnostic>) {
    let name = &settings.mesh_trust_bundle;
    let finding = |reason, message: String| {
        let stays = if previous.is_some() { "; the last good roots stay" } else { "" };
        let object = ObjectRef::new(Kind::ConfigMap, name);
        let field = format!("data.{ROOT_CERTIFICATES}");
        vec![Diagnostic::new(Severity::Error, object, field, reason, format!("{message}{stays}"))]
    };
    let pem = store.config_map(name).and_then(|map| map.data.get(ROOT_CERTIFICATES));
    let Some(pem) = pem else {
        // Whoever has no mesh needs no roots either.
        let found = match settings.mesh_port {
            Some(_) => finding(
                "TrustBundleNotFound",
                "there are no root certificates: the mesh port can verify nobody".into(),
            ),
            None => Vec::new(),
        };
        return (previous, found);
    };
    let own = std::iter::once(&settings.mesh_trust_domain);
    let trust_domains: Vec<String> = own.chain(&settings.mesh_trust_domain_aliases).cloned().collect();
    if let Some(previous) = previous.as_ref().filter(|previous| previous.is_made_of(pem, &trust_domains)) {
        return (Some(previous.clone()), Vec::new());
    }
    match MeshTrust::new(pem, trust_domains) {
        Ok(trust) => (Some(Arc::new(trust)), Vec::new()),
        Err(error) => {
            let found =
                finding("InvalidTrustBundle", format!("the root certificates cannot be used: {error}"));
            (previous, found)
        }
    }
}
