//! What produces objects: nothing here is read by the data plane, everything enters as events.

pub mod ocsp;
