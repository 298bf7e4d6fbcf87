//! The TLS policy of a host: protocol versions, suites, groups, client certificates.

/// One policy, shared by all hosts that have the same.
pub struct TlsPolicy {}
