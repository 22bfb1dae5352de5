//! Compiles what stands between Rust and each library of C. A library whose header is missing is left out, and its
//! engines say so.

use std::path::Path;

/// A library of C: the name of its file in `c/`, its header, and what is linked.
struct Library {
    name: &'static str,
    header: &'static str,
    link: &'static str,
}

const LIBRARIES: [Library; 4] = [
    Library { name: "wiredtiger", header: "wiredtiger.h", link: "wiredtiger" },
    Library { name: "berkeleydb", header: "db.h", link: "db" },
    Library { name: "rocksdb", header: "rocksdb/c.h", link: "rocksdb" },
    Library { name: "leveldb", header: "leveldb/c.h", link: "leveldb" },
];

fn main() {
    println!("cargo:rerun-if-changed=c");
    let names: Vec<String> = LIBRARIES.iter().map(|library| format!("\"{}\"", library.name)).collect();
    println!("cargo:rustc-check-cfg=cfg(peer, values({}))", names.join(", "));
    let found: Vec<&Library> = LIBRARIES.iter().filter(|library| has(library.header)).collect();
    let mut build = cc::Build::new();
    build.file("c/peer.c").std("gnu11").extra_warnings(true).warnings_into_errors(true);
    for library in &found {
        build.file(format!("c/{}.c", library.name));
        println!("cargo:rustc-cfg=peer=\"{}\"", library.name);
    }
    build.compile("bench_peers");
    for library in &found {
        println!("cargo:rustc-link-lib={}", library.link);
    }
    // What `interpose.rs` defines has to be found by shared libraries that are loaded later, too.
    println!("cargo:rustc-link-arg=-rdynamic");
}

/// Whether the compiler finds the header.
fn has(header: &str) -> bool {
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let probe = Path::new(&out).join("probe.c");
    if std::fs::write(&probe, format!("#include <{header}>\n")).is_err() {
        return false;
    }
    cc::Build::new().cargo_metadata(false).cargo_warnings(false).file(&probe).try_expand().is_ok()
}
