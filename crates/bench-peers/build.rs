//! Tells the crate which versions of the libraries it is linked with: the lock file knows.

#![expect(clippy::disallowed_methods, reason = "a build script has no database")]

use std::path::Path;

/// Libraries that do not say their version themselves.
const LIBRARIES: [&str; 2] = ["fjall", "redb"];

fn main() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).unwrap_or_default();
    for name in LIBRARIES {
        let version = version_of(&text, name).unwrap_or("of unknown version");
        println!("cargo::rustc-env={}_VERSION={version}", name.to_uppercase());
    }
}

fn version_of<'t>(lock: &'t str, name: &str) -> Option<&'t str> {
    let (_, package) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    package.split('"').next()
}
