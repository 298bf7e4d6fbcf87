use super::{Field, Findings, Metadata};

/// `v1 Namespace`, for its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub metadata: Metadata,
}

impl Namespace {
    /// Reads the object behind `metadata`.
    pub(super) fn decode(metadata: Metadata, _: &Field<'_>, _: &mut Findings) -> Option<Self> {
        Some(Self { metadata })
    }
}
