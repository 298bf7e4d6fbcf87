//! Messages, server and client of the CSR service, generated from `proto/istio/v1/auth/ca.proto`.
//!
//! The generated file is committed, so that a build needs no protobuf compiler. The test here fails when it and
//! the `.proto` have drifted apart; `PORTCULLIS_REGENERATE=1 cargo test --lib ca::proto` writes it anew.

#![allow(clippy::all, clippy::pedantic, missing_docs, reason = "generated code")]

include!("proto/istio.v1.auth.rs");

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_generated_code_is_fresh() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let descriptors = protox::compile(["istio/v1/auth/ca.proto"], [root.join("proto")]).unwrap();
        let out = tempfile::tempdir().unwrap();
        tonic_prost_build::configure()
            .build_transport(false)
            .out_dir(out.path())
            .compile_fds(descriptors)
            .unwrap();
        let fresh = fs::read_to_string(out.path().join("istio.v1.auth.rs")).unwrap();
        let committed = root.join("src/ca/proto/istio.v1.auth.rs");
        if std::env::var_os("PORTCULLIS_REGENERATE").is_some() {
            fs::write(&committed, &fresh).unwrap();
        }
        let hint = "the .proto changed: regenerate with PORTCULLIS_REGENERATE=1";
        assert!(fs::read_to_string(&committed).unwrap() == fresh, "{hint}");
    }
}
