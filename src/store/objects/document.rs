//! `Authorization` documents: the JSON form of the `istio.security.Authorization` message (lowerCamelCase
//! names, defaults left out, bytes in base64), read and written. Reading is strict: what cannot be read would
//! widen the policy if it were left out, so it refuses the document. `trustDomains` and `notTrustDomains` are
//! fields of ours.

mod read;
mod write;
mod yaml;

pub use read::{DocumentError, from_value, reach};
pub use write::to_value;

use crate::snapshot::policies::Authorization;

/// The documents as YAML, keys sorted, separated by `---`; empty where there is none.
pub fn to_yaml<'a>(policies: impl IntoIterator<Item = &'a Authorization>) -> String {
    let documents: Vec<String> = policies.into_iter().map(|policy| yaml::print(&to_value(policy))).collect();
    documents.join("---\n")
}
