//! The user's own input and output files; the database's go through `fulgurite::env`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "input and output files of the user are not the database's"
)]

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::{interrupt, stderr};

/// What to read, before anything was read of it.
pub(crate) struct Input {
    pub reader: Box<dyn Read + Send>,
    /// What to call it in messages.
    pub name: String,
    /// Its length in bytes, if it is a regular file.
    pub size: Option<u64>,
}

/// Opens the file `path`, or standard input if that is missing or `-`.
pub(crate) fn open_input(path: Option<&Path>) -> Result<Input, Failure> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        if io::stdin().is_terminal() {
            match stderr::is_for_programs() {
                true => stderr::note("reading from the terminal; ^D ends"),
                false => stderr::line("reading from the terminal; ^D ends"),
            }
        }
        return Ok(Input { reader: Box::new(io::stdin()), name: "standard input".into(), size: None });
    };
    let name = path.display().to_string();
    let failed = |error| Failure::file("opening", &name, &error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Failure::new(format!("opening {name}: it is a directory")));
    }
    let size = metadata.is_file().then_some(metadata.len());
    Ok(Input { reader: Box::new(file), name, size })
}

/// A file that gets its name when all of it was written, so that no half of one is taken for the whole.
pub(crate) struct OutputFile {
    writer: BufWriter<File>,
    path: PathBuf,
    /// The name it has meanwhile; `None` for a pipe or a device, which is written as it is.
    part: Option<PathBuf>,
    replaces: bool,
}

impl OutputFile {
    pub fn create(path: &Path) -> Result<OutputFile, Failure> {
        // What a symbolic link points to is replaced, not the link.
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        let part = (!special).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}.part", std::process::id()));
            PathBuf::from(name)
        });
        let target = part.as_deref().unwrap_or(path);
        let file = match special {
            true => fs::OpenOptions::new().write(true).open(target),
            false => fs::OpenOptions::new().write(true).create_new(true).open(target),
        };
        let file = file.map_err(|error| Failure::file("creating", &target.display().to_string(), &error))?;
        part.iter().for_each(|part| interrupt::remove_at_exit(part));
        let replaces = !special && path.exists();
        let writer = BufWriter::with_capacity(1 << 18, file);
        Ok(OutputFile { writer, path: path.to_path_buf(), part, replaces })
    }

    /// Whether there was a file of that name.
    pub fn replaces(&self) -> bool {
        self.replaces
    }

    /// Makes it durable and gives it its name.
    pub fn finish(mut self) -> Result<(), Failure> {
        let name = self.path.display().to_string();
        let failed = |error| Failure::file("writing", &name, &error);
        self.writer.flush().map_err(failed)?;
        if let Some(part) = self.part.take() {
            let named = self.writer.get_ref().sync_all().and_then(|()| fs::rename(&part, &self.path));
            if let Err(error) = named {
                self.part = Some(part);
                return Err(failed(error));
            }
            // The name is the directory's: without this a power cut may take it, and the file with it.
            let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        }
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            // What is left of a failed export; the failure itself is what the user has to hear of.
            let _ = fs::remove_file(part);
        }
    }
}
