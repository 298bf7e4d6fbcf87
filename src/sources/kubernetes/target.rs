//! What one watch is of: a kind, in one namespace or all, narrowed by selectors; and the URLs that come of it.

use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Follow, Need, Resource};
use crate::settings::Settings;
use crate::store::objects::{Kind, ObjectName};

/// A set of objects that can be listed and watched.
pub(super) struct Target {
    pub resource: &'static Resource,
    /// The one of the resource's versions that the API server has, as far as is known.
    pub api_version: &'static str,
    namespace: Option<String>,
    fields: Option<String>,
    labels: Option<String>,
    /// The only object that is followed.
    pub object: Option<ObjectName>,
    /// What it is called in diagnostics.
    pub name: Arc<str>,
    pub need: Need,
    /// Only objects in namespaces that are selected count.
    pub in_selected: bool,
    /// These are the namespaces that are selected.
    pub selects: bool,
}

impl Target {
    /// All objects of a kind that are followed, in `namespace` or everywhere; `None` for kinds that are only
    /// followed by name.
    pub fn all(resource: &'static Resource, namespace: Option<&str>, settings: &Settings) -> Option<Self> {
        let fields = match resource.follow {
            Follow::All => None,
            Follow::Selected(fields) => Some(fields.to_owned()),
            Follow::Named => return None,
        };
        let namespace = namespace.filter(|_| !resource.kind.is_cluster_scoped());
        let selector = settings.watch_namespace_selector.as_ref();
        let selects = selector.is_some() && resource.kind == Kind::Namespace;
        let name = match namespace.filter(|namespace| settings.watch_namespace.as_deref() != Some(namespace))
        {
            Some(namespace) => format!("{} of {namespace}", resource.plural).into(),
            None => resource.plural.into(),
        };
        Some(Self {
            resource,
            api_version: resource.api_version(),
            namespace: namespace.map(str::to_owned),
            fields,
            labels: selector.filter(|_| selects).cloned(),
            object: None,
            name,
            // Whoever selects namespaces has nothing without them.
            need: if selects { Need::Vital } else { resource.need },
            in_selected: selector.is_some() && !resource.kind.is_cluster_scoped() && !resource.is_policy(),
            selects,
        })
    }

    /// The one object of this name, whether it exists or not.
    pub fn one(resource: &'static Resource, name: &ObjectName) -> Self {
        Self {
            resource,
            api_version: resource.api_version(),
            namespace: Some(name.namespace.to_string()),
            fields: Some(format!("metadata.name={}", name.name)),
            labels: None,
            object: Some(name.clone()),
            name: format!("{}/{name}", resource.plural).into(),
            need: Need::Optional,
            in_selected: false,
            selects: false,
        }
    }

    /// What it is called in the state directory. Neither `@` nor `.` is in the name of a kind or namespace.
    pub fn shelf(&self) -> String {
        match (&self.object, &self.namespace) {
            (Some(_), _) => named_shelf(self.resource),
            (None, Some(namespace)) => format!("{}@{namespace}", self.resource.plural),
            (None, None) => self.resource.plural.into(),
        }
    }

    /// The path of a request for these objects; parameters without a value are left out.
    pub fn path(&self, query: &[(&str, &str)]) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let mut path = format!("/{root}/{}", self.api_version);
        if let Some(namespace) = &self.namespace {
            path.push_str("/namespaces/");
            path.extend(utf8_percent_encode(namespace, NON_ALPHANUMERIC));
        }
        path.push('/');
        path.push_str(self.resource.plural);
        let fields = self.fields.as_deref().map(|fields| ("fieldSelector", fields));
        let labels = self.labels.as_deref().map(|labels| ("labelSelector", labels));
        let query = query.iter().copied().chain(fields).chain(labels);
        let mut separator = '?';
        for (key, value) in query.filter(|(_, value)| !value.is_empty()) {
            path.push(separator);
            path.push_str(key);
            path.push('=');
            path.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
            separator = '&';
        }
        path
    }
}

/// What the objects of a kind that are followed by name are called together in the state directory.
pub(super) fn named_shelf(resource: &Resource) -> String {
    format!("{}.named", resource.plural)
}
