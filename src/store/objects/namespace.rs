use super::Metadata;

/// `v1 Namespace`, for its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub metadata: Metadata,
}
