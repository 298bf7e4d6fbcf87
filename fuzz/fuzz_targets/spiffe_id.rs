#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis::testing::fuzz::spiffe_id(bytes));
