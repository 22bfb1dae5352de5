//! `compare`: two reports side by side.

use std::path::PathBuf;

use super::{Failure, output};
use crate::compare::compare;

const REGRESSED: u8 = 3;

/// The reports.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// The older one, as JSON.
    old: PathBuf,
    /// The newer one, as JSON.
    new: PathBuf,
}

impl CompareArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let comparison = compare(&output::read(&self.old)?, &output::read(&self.new)?);
        output::print(&comparison.to_string())?;
        match comparison.has_regressions() {
            true => Err(Failure { text: String::new(), code: REGRESSED }),
            false => Ok(()),
        }
    }
}
