//! Builds what stands between Rust and the libraries of other languages. What is missing is left out, and its engines
//! say so.

#![expect(clippy::disallowed_methods, reason = "a build script has no database")]

mod c;
mod java;

fn main() {
    c::build();
    java::build();
}
