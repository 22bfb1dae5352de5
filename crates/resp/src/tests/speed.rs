//! The cost of parsing, to be looked at: `cargo test --release -p fulgurite-resp -- --ignored --nocapture parse_speed`.

use std::hint::black_box;

use crate::{Event, Limits, Parser, encode_command};

#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "it measures the processor, outside any database")]
fn parse_speed() {
    const COMMANDS: usize = 100;
    const ROUNDS: usize = 20_000;
    let mut input = Vec::new();
    for nth in 0..COMMANDS {
        encode_command(&mut input, &["SET".to_string(), format!("key:{nth:012}"), "v".repeat(100)]);
    }
    let mut parser = Parser::new(Limits::default());
    let mut best_ns = f64::INFINITY;
    for _ in 0..5 {
        let start = std::time::Instant::now();
        for _ in 0..ROUNDS {
            let mut position = 0;
            while position < input.len() {
                let parsed = parser.parse(black_box(&input[position..])).expect("it is well formed");
                let Event::Command(arguments) = parsed.event else { panic!("a command") };
                black_box(&arguments[1]);
                position += parsed.consumed_bytes;
            }
        }
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / (COMMANDS * ROUNDS) as f64);
    }
    println!("{best_ns:.1} ns a command of 3 arguments, {} bytes", input.len() / COMMANDS);
}
