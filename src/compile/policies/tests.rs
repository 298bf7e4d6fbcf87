//! What compiled policies decide. Documents, byte for byte, are in `tests/golden/policy`.

mod acceptance;
mod differential;
mod documents;
mod peer;
mod properties;
mod vectors;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::*;
use crate::snapshot::policies::Connection;
use crate::store::objects::document;
use crate::tls::spiffe::SpiffeId;

/// Objects out of YAML documents, with the findings of reading them.
fn decode(yaml: &str) -> (Vec<PeerAuthentication>, Vec<AuthorizationPolicy>, Vec<Diagnostic>) {
    let (mut peer, mut authorization, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for value in serde_saphyr::from_multiple::<Value>(yaml).unwrap() {
        match value["kind"].as_str() {
            Some("PeerAuthentication") => peer.extend(PeerAuthentication::decode(&value, "", &mut findings)),
            Some("AuthorizationPolicy") => {
                authorization.extend(AuthorizationPolicy::decode(&value, "", &mut findings));
            }
            other => panic!("unexpected kind {other:?}"),
        }
    }
    (peer, authorization, findings)
}

fn compiled(yaml: &str) -> Policies {
    let (peer, authorization, _) = decode(yaml);
    compile_policies(&Mesh::default(), &peer, &authorization)
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn app_a() -> BTreeMap<String, String> {
    labels(&[("app", "a")])
}

fn keys(policies: &Policies, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<String> {
    policies.keys(namespace, labels).iter().map(ToString::to_string).collect()
}

fn connection(principal: Option<&SpiffeId>, port: u16) -> Connection<'_> {
    Connection { principal, source: ip("10.0.0.5"), destination: ip("10.0.1.9"), port }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn id(principal: &str) -> SpiffeId {
    SpiffeId::parse(&format!("spiffe://{principal}")).unwrap()
}
