use std::collections::BTreeMap;

use super::Metadata;

/// `v1 ConfigMap`; `binaryData` is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    pub metadata: Metadata,
    pub data: BTreeMap<String, String>,
}
