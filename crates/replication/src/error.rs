//! Errors of the file of terms.

use fulgurite_types::DatabaseId;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of a node's file of terms.
#[derive(Debug)]
#[non_exhaustive]
pub enum TermError {
    /// The file system refused an operation. After a failed [`TermFile::save`](crate::TermFile::save) the term and vote on disk are the old or
    /// the new ones: the file takes nothing more, open it again.
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Neither copy in the file is valid: this node may have voted. Fill it from another node, under another number.
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another node or another database. It was not changed.
    NotOwn {
        /// The file.
        path: PathBuf,
        /// The node and the database that it belongs to.
        found: (u32, DatabaseId),
        /// Those that it was opened for.
        wanted: (u32, DatabaseId),
    },
    /// A term would fall, or a vote change in its term. Nothing was written.
    Stale {
        /// The term and the vote that are on record.
        kept: (u64, Option<u32>),
        /// Those that were to be saved.
        wanted: (u64, Option<u32>),
    },
    /// An earlier save failed: the term and the vote on disk are not known. Open the file again.
    Unknown,
}

fn vote(vote: Option<u32>) -> String {
    vote.map_or("no vote".into(), |node| format!("a vote for node {node}"))
}

impl fmt::Display for TermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TermError::Io { action, path, source } => {
                write!(
                    f,
                    "could not {action} {}: {source}; remove the cause and open it again",
                    path.display()
                )
            }
            TermError::Damaged { path } => write!(
                f,
                "{} is damaged: this node may have voted, so it must not vote again; fill it from another node, under another number",
                path.display()
            ),
            TermError::NotOwn { path, found, wanted } => write!(
                f,
                "{} belongs to node {} of database {}, not to node {} of database {}; give each node its own directory",
                path.display(),
                found.0,
                found.1,
                wanted.0,
                wanted.1
            ),
            TermError::Stale { kept, wanted } => write!(
                f,
                "term {} with {} is on record, so term {} with {} cannot be saved",
                kept.0,
                vote(kept.1),
                wanted.0,
                vote(wanted.1)
            ),
            TermError::Unknown => {
                write!(f, "an earlier save failed, so the term on disk is not known; open the file again")
            }
        }
    }
}

impl Error for TermError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TermError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
