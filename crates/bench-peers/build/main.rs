//! Builds the glue for libraries of other languages. A missing library is left out, and its engines report that.

#![expect(clippy::disallowed_methods, reason = "a build script has no database")]

mod c;
mod java;

fn main() {
    c::build();
    java::build();
}
