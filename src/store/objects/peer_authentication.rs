use std::collections::BTreeMap;

use serde_json::Value;

use super::policy_reader::{Field, Reader};
use super::{Kind, Metadata};
use crate::diagnostics::Diagnostic;

/// `security.istio.io PeerAuthentication` (v1, v1beta1): whether a workload accepts plaintext, mTLS or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAuthentication {
    pub metadata: Metadata,
    /// The labels of the workloads that it's for. Empty means all of the namespace, or of the mesh.
    pub selector: BTreeMap<String, String>,
    pub mode: MtlsMode,
    /// By the port of the workload, not of a Service.
    pub ports: BTreeMap<u16, MtlsMode>,
    /// It could not be read and stands for STRICT until it is repaired.
    pub refused: bool,
}

/// `mtls.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MtlsMode {
    /// As the next wider level has it.
    #[default]
    Unset,
    Disable,
    Permissive,
    Strict,
}

impl PeerAuthentication {
    /// Reads one from its JSON form. What is wrong with it goes to `findings`; `None` where it has no name
    /// to go by, or its selector doesn't say whom it is for.
    pub fn decode(value: &Value, default_namespace: &str, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let (mut reader, metadata, mut spec) =
            Reader::start(Kind::PeerAuthentication, value, default_namespace, findings)?;
        let selector = reader.selector(spec.take("selector"))?;
        let mode = reader.mode(spec.take("mtls"));
        let ports = reader.ports(spec.take("portLevelMtls"), !selector.is_empty());
        reader.finish(spec);
        Some(match reader.refused {
            false => Self { metadata, selector, mode, ports, refused: false },
            true => {
                Self { metadata, selector, mode: MtlsMode::Strict, ports: BTreeMap::new(), refused: true }
            }
        })
    }
}

impl Reader<'_> {
    fn mode(&mut self, field: Option<Field<'_>>) -> MtlsMode {
        let Some(field) = field else { return MtlsMode::Unset };
        let mut mtls = self.fields(field);
        let mode = mtls.take("mode");
        let path = format!("{}.mode", mtls.path);
        self.finish(mtls);
        match self.text(mode) {
            None | Some("UNSET") => MtlsMode::Unset,
            Some("DISABLE") => MtlsMode::Disable,
            Some("PERMISSIVE") => MtlsMode::Permissive,
            Some("STRICT") => MtlsMode::Strict,
            Some(other) => {
                let message = format!("'{other}' is not one of UNSET, DISABLE, PERMISSIVE and STRICT");
                self.refuse(&path, "InvalidMode", message);
                MtlsMode::Unset
            }
        }
    }

    fn ports(&mut self, field: Option<Field<'_>>, selected: bool) -> BTreeMap<u16, MtlsMode> {
        let Some(field) = field.filter(|field| !field.value.is_null()) else { return BTreeMap::new() };
        let fields = self.fields(field);
        if !selected {
            self.refuse(&fields.path, "SelectorRequired", "ports need a selector with at least one label");
        }
        if fields.entries().next().is_none() {
            self.refuse(&fields.path, "InvalidPort", "there must be at least one port");
        }
        let mut ports = BTreeMap::new();
        for (port, field) in fields.entries() {
            let mode = self.mode(Some(field.clone()));
            match port_number(port) {
                Some(number) if number > 0 => drop(ports.insert(number, mode)),
                _ => self.refuse(
                    &field.path,
                    "InvalidPort",
                    format!("'{port}' is not a port number from 1 to 65535"),
                ),
            }
        }
        ports
    }
}

/// Decimal digits only, without sign or leading zero, so that each port has one spelling.
pub(super) fn port_number(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}
