//! Settings: one schema for flags, environment, file and ConfigMap.

/// All settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {}
