//! Writes the seeds of all targets to `fuzz/corpus/TARGET/`, for `cargo fuzz`.

use std::path::Path;

#[expect(clippy::disallowed_methods, reason = "a tool for the developer, outside any database")]
fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in fulgurite_fuzz::TARGETS {
        let dir = corpus.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (nth, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(format!("seed{nth:04}")), seed)?;
        }
    }
    Ok(())
}
