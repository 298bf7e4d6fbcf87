//! The one ConfigMap that has to be known before anything runs, because settings are in it.

use std::path::PathBuf;

use super::Resource;
use super::kept::Kept;
use super::target::{Target, named_shelf};
use super::wire::Page;
use crate::api_server::{Api, ApiError};
use crate::store::objects::{ConfigMap, Decoded, Findings, Kind, Node, Object, ObjectName};

/// What the API server has under this name; `None` where that is nothing.
///
/// # Errors
/// It does not answer, or refuses to.
pub async fn read_config_map(api: &Api, name: &ObjectName) -> Result<Option<ConfigMap>, ApiError> {
    let Some(resource) = Resource::of(Kind::ConfigMap) else { return Ok(None) };
    let text = api.get(&Target::one(resource, name).path(&[])).await?;
    let page: Page = serde_json::from_slice(&text).map_err(|_| ApiError::Unreadable)?;
    Ok(page.items.unwrap_or_default().iter().find_map(|node| decode(resource, node)))
}

/// What was kept of it in `folder`, as [`super::Keep`] has it. Blocks on the disk.
pub fn kept_config_map(api: &Api, folder: PathBuf, name: &ObjectName) -> Option<ConfigMap> {
    let resource = Resource::of(Kind::ConfigMap)?;
    let kept = Kept::new(folder, api.server().to_owned());
    let loaded = kept.load_one(&kept.shelf(&named_shelf(resource)), name)?;
    let node: Node = serde_json::from_slice(loaded.objects.first()?).ok()?;
    decode(resource, &node)
}

fn decode(resource: &Resource, node: &Node<'_>) -> Option<ConfigMap> {
    // The watch reports what is wrong with it.
    match Object::decode(resource.api_version(), resource.kind.as_str(), node, &mut Findings::new()) {
        Decoded::Object(Object::ConfigMap(config_map)) => Some(config_map),
        _ => None,
    }
}
