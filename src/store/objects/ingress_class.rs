use super::Metadata;

/// `networking.k8s.io/v1 IngressClass`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressClass {
    pub metadata: Metadata,
    /// `spec.controller`, compared with `--controller-class`.
    pub controller: String,
    /// Carries `ingressclass.kubernetes.io/is-default-class: "true"`.
    pub default: bool,
}
