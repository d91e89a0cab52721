#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| divvy_fuzz::requests(bytes));
