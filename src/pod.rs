//! Which pod this process is. The downward API says it in `POD_NAME` and `POD_NAMESPACE`; outside a cluster there is
//! none. Read once, by whoever puts the process together, and handed on from there.

use std::sync::Arc;

use crate::names::object::ObjectName;

/// What the environment says of this process. A variable that is empty is as good as none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    name: Option<Arc<str>>,
    namespace: Option<Arc<str>>,
    host: Option<Arc<str>>,
}

impl PodIdentity {
    pub fn from_environment() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty()).map(Arc::from);
        Self { name: variable("POD_NAME"), namespace: variable("POD_NAMESPACE"), host: variable("HOSTNAME") }
    }

    /// The pod; `None` where the environment does not tell both of its names.
    pub fn pod(&self) -> Option<ObjectName> {
        Some(ObjectName::new(self.namespace.clone()?, self.name.clone()?))
    }

    /// The namespace of the pod, where the environment tells.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// A name for this replica that people recognize: that of the pod, else of the machine.
    pub fn instance(&self) -> &str {
        self.name.as_deref().or(self.host.as_deref()).unwrap_or("portcullis")
    }

    /// The name under which this process holds a Lease. No two processes have the same, of one pod neither.
    pub fn lease_holder(&self) -> String {
        format!("{}_{:016x}", self.instance(), fastrand::u64(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(variables: &[(&str, &str)]) -> PodIdentity {
        PodIdentity::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_pod_is_known_by_both_of_its_names() {
        let pod = identity(&[("POD_NAME", "edge-0"), ("POD_NAMESPACE", "ingress"), ("HOSTNAME", "node")]);
        assert_eq!(pod.pod(), Some(ObjectName::new("ingress", "edge-0")));
        assert_eq!((pod.instance(), pod.namespace()), ("edge-0", Some("ingress")));
        assert!(pod.lease_holder().starts_with("edge-0_"));
        assert_ne!(pod.lease_holder(), pod.lease_holder());
        for half in
            [[("POD_NAME", "edge-0"), ("POD_NAMESPACE", "")], [("POD_NAME", ""), ("POD_NAMESPACE", "a")]]
        {
            assert_eq!(identity(&half).pod(), None);
        }
    }

    #[test]
    fn without_a_pod_the_machine_gives_the_name() {
        assert_eq!(identity(&[("POD_NAME", ""), ("HOSTNAME", "edge")]).instance(), "edge");
        assert_eq!(identity(&[]).instance(), "portcullis");
    }
}
