//! All objects, by kind, namespace and name: the only mutable state of the control plane.

pub mod objects;
