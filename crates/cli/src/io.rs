//! The user's own input and output files; the database's go through `fulgurite::env`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "input and output files of the user are not the database's"
)]

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::{interrupt, stderr};

/// An input that is not read yet.
pub(crate) struct Input {
    pub reader: Box<dyn Read + Send>,
    /// Its name for messages.
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

/// A file that gets its name when all of it is written, so that a partial file is never taken for a complete one.
pub(crate) struct OutputFile {
    writer: BufWriter<File>,
    path: PathBuf,
    /// Its name until then; `None` for a pipe or a device, which is written directly.
    temporary: Option<PathBuf>,
    replaces: bool,
}

impl OutputFile {
    pub fn create(path: &Path) -> Result<OutputFile, Failure> {
        // The target of a symbolic link is replaced, not the link.
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let old = fs::metadata(path).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            let file = fs::OpenOptions::new().write(true).open(path);
            let file =
                file.map_err(|error| Failure::file("creating", &path.display().to_string(), &error))?;
            return Ok(OutputFile::new(file, path, None, false));
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let temporary = PathBuf::from(name);
        let file = create_like(&temporary, old.as_ref());
        let file =
            file.map_err(|error| Failure::file("creating", &temporary.display().to_string(), &error))?;
        interrupt::remove_at_exit(&temporary);
        Ok(OutputFile::new(file, path, Some(temporary), old.is_some()))
    }

    fn new(file: File, path: &Path, temporary: Option<PathBuf>, replaces: bool) -> OutputFile {
        let writer = BufWriter::with_capacity(1 << 18, file);
        OutputFile { writer, path: path.to_path_buf(), temporary, replaces }
    }

    /// Whether there was a file of that name.
    pub fn replaces(&self) -> bool {
        self.replaces
    }

    /// Makes the file durable and gives it its name.
    pub fn finish(mut self) -> Result<(), Failure> {
        let name = self.path.display().to_string();
        let failed = |error| Failure::file("writing", &name, &error);
        self.writer.flush().map_err(failed)?;
        if let Some(temporary) = self.temporary.take() {
            let named = self.writer.get_ref().sync_all().and_then(|()| fs::rename(&temporary, &self.path));
            if let Err(error) = named {
                self.temporary = Some(temporary);
                return Err(failed(error));
            }
            // The directory holds the name: without this sync a power cut may lose the name, and the file with it.
            let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        }
        Ok(())
    }
}

/// Creates a file with the mode of the one that it is to replace: a file that only its owner may read stays so, from
/// the first byte on.
fn create_like(path: &Path, old: Option<&Metadata>) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    let Some(old) = old else { return options.open(path) };
    let mode = old.permissions().mode() & 0o777;
    let file = options.mode(mode).open(path)?;
    // The umask has cleared bits of the new file's mode.
    if let Err(error) = file.set_permissions(Permissions::from_mode(mode)) {
        // The file has no name yet that the user knows.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Refuses a file in the directory of the database, or in that of its log, which may be elsewhere: it could replace one
/// of the database's files.
pub(crate) fn refuse_inside(database: &Path, file: &Path) -> Result<(), Failure> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A name that cannot be resolved fails later, with an error of its own.
    let whole = fs::canonicalize(file).or_else(|_| fs::canonicalize(parent));
    let Ok(whole) = whole else { return Ok(()) };
    for dir in [database.to_path_buf(), database.join("log")] {
        if fs::canonicalize(&dir).is_ok_and(|dir| whole.starts_with(dir)) {
            return Err(Failure::usage(format!(
                "{} is in the directory of the database, {}: choose another directory for the file",
                file.display(),
                dir.display()
            )));
        }
    }
    Ok(())
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
        if let Some(temporary) = self.temporary.take() {
            // The partial file of a failed export. The user has to see that failure, not this one.
            let _ = fs::remove_file(temporary);
        }
    }
}
