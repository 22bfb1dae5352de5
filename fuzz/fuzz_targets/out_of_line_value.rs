#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| (fulgurite_fuzz::target("out_of_line_value").run)(input));
