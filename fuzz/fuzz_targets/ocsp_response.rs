#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portcullis::testing::fuzz::ocsp_response(bytes));
