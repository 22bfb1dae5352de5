//! Compiles the C glue for each library of C. A library whose header is missing is left out, and its engines report
//! that.

use std::path::{Path, PathBuf};

/// A library of C: the name of its file in `c/`, its header, and the libraries to link.
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

/// Compiles and links the libraries that are installed.
pub fn build() {
    println!("cargo:rerun-if-changed=c");
    let names: Vec<String> = LIBRARIES.iter().map(|library| format!("\"{}\"", library.name)).collect();
    println!("cargo:rustc-check-cfg=cfg(peer, values({}))", names.join(", "));
    let mut build = cc::Build::new();
    build.file("c/peer.c").std("gnu11").extra_warnings(true);
    let mut links = Vec::new();
    for library in &LIBRARIES {
        let Some(header) = find(library.header) else {
            come_back(library);
            continue;
        };
        build.file(format!("c/{}.c", library.name));
        if library.name == "rocksdb" {
            build.define("PEER_ROCKSDB_VERSION", &*format!("\"{}\"", rocksdb_version(&header)));
        }
        println!("cargo:rustc-cfg=peer=\"{}\"", library.name);
        links.push(library.link);
    }
    build.compile("bench_peers");
    for link in links {
        println!("cargo:rustc-link-lib={link}");
    }
    // Shared libraries that are loaded later have to find the functions of `interpose.rs`, too.
    println!("cargo:rustc-link-arg=-rdynamic");
}

/// Has cargo run this each time, as it does not notice when a package is installed: it watches a file that never
/// exists.
fn come_back(library: &Library) {
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed={out}/no-{}", library.name);
}

/// Where the compiler finds the header: what it includes names its file in a line `# 1 "/path/header"`.
fn find(header: &str) -> Option<PathBuf> {
    let probe = Path::new(&std::env::var_os("OUT_DIR")?).join("probe.c");
    std::fs::write(&probe, format!("#include <{header}>\n")).ok()?;
    let mut build = cc::Build::new();
    let expanded = build.cargo_metadata(false).cargo_warnings(false).file(&probe).try_expand().ok()?;
    let expanded = String::from_utf8_lossy(&expanded);
    let mut names = expanded.lines().filter_map(|line| line.strip_prefix("# ")?.split('"').nth(1));
    names.find(|name| name.ends_with(&format!("/{header}"))).map(PathBuf::from)
}

/// The version in the header that is beside `header` and not C: that of the library is known to C++ only.
fn rocksdb_version(header: &Path) -> String {
    let text = std::fs::read_to_string(header.with_file_name("version.h")).unwrap_or_default();
    let number = |name: &str| {
        let define = format!("#define ROCKSDB_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&define)).unwrap_or("?").trim().to_string()
    };
    ["MAJOR", "MINOR", "PATCH"].map(number).join(".")
}
