//! Verification of the superblock: both copies, as the disk has them, and the record of the checkpoint.

use crate::check::CheckReport;
use crate::checkpoint::record;
use crate::engine::Engine;
use crate::superblock::FILE_NAME;
use crate::{Error, Result};

impl CheckReport {
    /// Verifies both copies of the superblock, and reads the record of the checkpoint.
    pub(crate) fn superblock(&mut self, engine: &Engine) -> Result<()> {
        let superblock = engine.superblock.lock();
        engine.check_open()?;
        let path = engine.files.path.join(FILE_NAME);
        let path = path.display();
        match (superblock.damaged_now()?, superblock.damaged_at_open()) {
            (Some(copy), _) => {
                self.mendable_problems += 1;
                self.problem(format!(
                    "{path}: copy {copy} of the superblock is damaged; the other one is good, and opening the database \
                     for writing mends it"
                ));
            }
            (None, Some(copy)) => self.notes.push(format!(
                "{path}: copy {copy} of the superblock was damaged when the database was opened, and was written again: \
                 have a look at the disk"
            )),
            (None, None) => {}
        }
        // Under the lock: no checkpoint frees the segments of this record meanwhile.
        let checkpoint = superblock.current().checkpoint;
        if !checkpoint.is_null() {
            match record::read(&*engine.log, checkpoint) {
                Ok(_) => {}
                Err(Error::Damaged(damage)) => self.problem(damage.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
