use super::{Field, Findings, Metadata};

/// `networking.k8s.io/v1 IngressClass`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressClass {
    pub metadata: Metadata,
    /// `spec.controller`, compared with `--controller-class`.
    pub controller: String,
    /// Carries `ingressclass.kubernetes.io/is-default-class: "true"`.
    pub default: bool,
}

impl IngressClass {
    /// Reads the object behind `metadata`; one without a controller is nobody's.
    pub(super) fn decode(metadata: Metadata, object: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let spec = object.get("spec");
        let Some(field) = spec.as_ref().and_then(|spec| spec.get("controller")) else {
            findings.error(object, "MissingField", "spec.controller is missing");
            return None;
        };
        let controller = field.text(findings)?.to_owned();
        let default = metadata.annotations.get(DEFAULT_CLASS).is_some_and(|value| value == "true");
        Some(Self { metadata, controller, default })
    }
}

const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
