//! Damage: which file, where in it, and which commits.

use std::fmt;
use std::path::PathBuf;

use fulgurite_types::Csn;

use super::{CsnRange, Error, Source, readable};

/// Damaged or missing data: what and where, as far as that is known. `Display` is a sentence with all of it.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// use fulgurite::{Database, Error, Options};
///
/// # std::fs::create_dir(&path).unwrap();
/// # std::fs::write(path.join("SUPERBLOCK"), "not one").unwrap();
/// // Another program overwrote the superblock.
/// let Err(Error::Damaged(damage)) = Database::open(&path, Options::default()) else { panic!("it opened") };
/// assert!(damage.path.as_ref().is_some_and(|path| path.ends_with("SUPERBLOCK")), "{damage}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Damage {
    /// The file to restore; only its name where the code that found the damage knows no directories.
    pub path: Option<PathBuf>,
    /// The offset in that file of the record, chunk or value that is damaged.
    pub offset: Option<u64>,
    /// The first and the last commit that lost something.
    pub csns: Option<CsnRange>,
    /// The table of the damaged value.
    pub table: Option<String>,
    /// The key of the damaged value.
    pub key: Option<Box<[u8]>>,
    /// The kind of damage, as text.
    pub what: String,
    pub(super) source: Option<Source>,
}

impl Damage {
    pub(crate) fn new(what: impl Into<String>) -> Damage {
        Damage { what: what.into(), ..Damage::default() }
    }

    /// The damage is in this file.
    pub(crate) fn in_file(mut self, path: impl Into<PathBuf>) -> Damage {
        self.path = Some(path.into());
        self
    }

    /// Something of this commit is lost.
    pub(crate) fn of_commit(mut self, csn: Csn) -> Damage {
        self.csns = Some(CsnRange { first: csn, last: csn });
        self
    }

    /// The value of this key is lost.
    pub(crate) fn of_key(mut self, key: &[u8]) -> Damage {
        self.key = Some(key.into());
        self
    }
}

impl From<Damage> for Error {
    fn from(damage: Damage) -> Error {
        Error::Damaged(Box::new(damage))
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.offset) {
            (Some(path), Some(offset)) => write!(f, "{} at byte {offset}: ", path.display())?,
            (Some(path), None) => write!(f, "{}: ", path.display())?,
            _ => {}
        }
        write!(f, "{}", self.what)?;
        if let Some(key) = &self.key {
            write!(f, "; it is the value of key {}", readable(key))?;
        }
        if let Some(table) = &self.table {
            write!(f, " of table `{table}`")?;
        }
        match self.csns {
            Some(range) if range.first == range.last => write!(f, "; lost of {range}")?,
            Some(range) => write!(f, "; lost are {range}")?,
            None => {}
        }
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Damage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}
