#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| divvy_fuzz::region(bytes));
