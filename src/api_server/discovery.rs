//! Which kinds an API server has, and in which versions.

use serde::Deserialize;

use super::{Api, ApiError};

/// `v1 APIGroupList`: the API groups of a server, with their versions.
#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

impl Groups {
    /// Whether the server has a group in a version, as `networking.k8s.io/v1`.
    fn has(&self, api_version: &str) -> bool {
        let mut versions = self.groups.iter().flat_map(|group| &group.versions);
        versions.any(|version| version.group_version == api_version)
    }
}

/// `v1 APIResourceList`: the kinds of one version of a group.
#[derive(Deserialize)]
struct Kinds {
    resources: Vec<KindName>,
}

#[derive(Deserialize)]
struct KindName {
    name: String,
}

impl Api {
    /// The first of `versions`, as `networking.k8s.io/v1`, in which the server has the kind that is called `plural`;
    /// `None` where it has it in none. That must be what the server says about itself: a bare 404 may come from
    /// something in front of it.
    ///
    /// # Errors
    /// It does not answer, or refuses to.
    pub async fn first_version(
        &self,
        versions: &[&'static str],
        plural: &str,
    ) -> Result<Option<&'static str>, ApiError> {
        let read = |_| ApiError::Unreadable;
        let groups: Groups = serde_json::from_slice(&self.get("/apis").await?).map_err(read)?;
        for version in versions.iter().copied() {
            // The first group of all has no name and is always there.
            if !version.contains('/') {
                return Ok(Some(version));
            }
            if groups.has(version) {
                let text = self.get(&format!("/apis/{version}")).await?;
                let kinds: Kinds = serde_json::from_slice(&text).map_err(read)?;
                if kinds.resources.iter().any(|resource| resource.name == plural) {
                    return Ok(Some(version));
                }
            }
        }
        Ok(None)
    }
}
