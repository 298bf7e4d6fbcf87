use std::collections::BTreeMap;

use super::metadata::decode_map;
use super::{Field, Findings, Metadata};

/// `v1 ConfigMap`; `binaryData` is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    pub metadata: Metadata,
    pub data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// Reads the object behind `metadata`.
    pub(super) fn decode(metadata: Metadata, object: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        Some(Self { metadata, data: decode_map(object, "data", findings) })
    }
}
