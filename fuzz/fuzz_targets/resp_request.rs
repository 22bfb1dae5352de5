#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| (fulgurite_fuzz::target("resp_request").run)(input));
