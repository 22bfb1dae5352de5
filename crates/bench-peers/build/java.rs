//! Compiles the Java part of `bdb-je`, if a compiler and the jar are installed, and passes the versions of the linked
//! libraries to the crate. If something is missing, the crate gets the reason, and is built without that part.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that do not report their version themselves.
const LIBRARIES: [&str; 2] = ["fjall", "redb"];
/// The environment variable with the path of the jar, if it is not in [`JAR_DIR`].
const JAR_VARIABLE: &str = "FULGURITE_JE_JAR";
/// Where the jar is, from the root of the repository.
const JAR_DIR: &str = "target/peers";
/// The command that fetches the jar.
const FETCH: &str = "mvn dependency:copy -Dartifact=com.sleepycat:je:18.3.12 -DoutputDirectory=target/peers";
/// The oldest Java that runs the compiled classes.
const RELEASE: &str = "11";

/// Compiles it.
pub fn build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    tell_versions(&root.join("Cargo.lock"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let built = match compile(&root, &out) {
        Ok(jar) => format!(
            "Ok(Built {{ jar: {jar:?}, classes: [\
             include_bytes!(concat!(env!(\"OUT_DIR\"), \"/PeerSession.class\")), \
             include_bytes!(concat!(env!(\"OUT_DIR\"), \"/Peer.class\"))] }})"
        ),
        Err(missing) => format!("Err({missing:?})"),
    };
    let text = format!("pub(super) const BUILT: Result<Built, &str> = {built};\n");
    std::fs::write(out.join("built.rs"), text).expect("OUT_DIR can be written");
}

fn tell_versions(lock: &Path) {
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(lock).unwrap_or_default();
    for name in LIBRARIES {
        let version = version_of(&text, name).unwrap_or("of unknown version");
        println!("cargo::rustc-env={}_VERSION={version}", name.to_uppercase());
    }
}

fn version_of<'t>(lock: &'t str, name: &str) -> Option<&'t str> {
    let (_, package) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    package.split('"').next()
}

/// Compiles the Java part; returns the jar, or the reason why it cannot.
fn compile(root: &Path, out: &Path) -> Result<String, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/Peer.java");
    println!("cargo::rerun-if-changed={}", source.display());
    let jar = find_jar(&root.join(JAR_DIR))?;
    let mut javac = Command::new("javac");
    javac.args(["--release", RELEASE, "-classpath"]).arg(&jar).arg("-d").arg(out).arg(source);
    let done = javac.output().map_err(|error| {
        // A file that never exists: cargo runs this each time, as it does not notice when a compiler is installed.
        println!("cargo::rerun-if-changed={}", out.join("no-javac").display());
        format!("no Java compiler ({error}): run `apt-get install default-jdk-headless`, then build again")
    })?;
    if !done.status.success() {
        return Err(format!("javac refused Peer.java: {}", String::from_utf8_lossy(&done.stderr)));
    }
    jar.into_os_string().into_string().map_err(|_| format!("the path of the jar in {JAR_DIR} is not UTF-8"))
}

fn find_jar(dir: &Path) -> Result<PathBuf, String> {
    println!("cargo::rerun-if-env-changed={JAR_VARIABLE}");
    if let Some(jar) = std::env::var_os(JAR_VARIABLE) {
        let jar = PathBuf::from(jar);
        println!("cargo::rerun-if-changed={}", jar.display());
        let missing = |_| format!("there is no {}, which {JAR_VARIABLE} names", jar.display());
        return jar.canonicalize().map_err(missing);
    }
    let missing = || format!("no je-*.jar: run `{FETCH}` in the repository, then build again");
    // Without the directory cargo would have nothing to watch, and would build everything again each time.
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    println!("cargo::rerun-if-changed={}", dir.display());
    let entries = std::fs::read_dir(dir).map_err(|_| missing())?;
    let mut jars: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_jar(path)).collect();
    jars.sort();
    jars.pop().ok_or_else(missing)?.canonicalize().map_err(|_| missing())
}

fn is_jar(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("je-") && name.ends_with(".jar")
}
