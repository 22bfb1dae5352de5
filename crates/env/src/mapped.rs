//! Files that are mapped into memory: persistent memory, and memory that survives the process.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::DiskError;

/// The length of a mapped file is a multiple of this many bytes.
pub const MAPPED_BYTES: usize = 4096;

/// What becomes durable together: a line of the processor's caches, in bytes.
pub const LINE_BYTES: usize = 64;

/// A power cut tears no aligned word of so many bytes: it is old or new as a whole.
pub const WORD_BYTES: usize = 8;

/// What the bytes of a mapped file survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryMedium {
    /// Persistent memory: stores that were written back and fenced survive a power cut.
    Persistent,
    /// Memory of the machine (tmpfs, hugetlbfs): everything that was stored survives a killed process. A crash of the operating
    /// system, a power cut, or the end of the container to which the mount belongs takes the file.
    Volatile,
}

/// A file that is mapped into memory. It promises exactly this:
/// - a store is seen by all threads of the process, and by the next one that maps the file after this one was killed;
/// - in [`MemoryMedium::Persistent`] memory a store is *durable* once its thread has seen it, has called
///   [`MappedFile::write_back`] for its bytes, and [`MappedFile::fence`] after that has returned **in the same thread**;
/// - until then a power cut, or a crash of the operating system, leaves of each aligned word of [`WORD_BYTES`] bytes any value that
///   it had since it was durable last: lines leave the caches by themselves, in any order;
/// - in [`MemoryMedium::Volatile`] memory both calls do nothing.
///
/// A child of `fork()` does not have the memory. Of the machine's processes one has a file mapped for writing, or several for
/// reading.
pub trait MappedFile: fmt::Debug + Send + Sync {
    /// What its bytes survive.
    fn medium(&self) -> MemoryMedium;

    /// Its length in bytes, a multiple of [`MAPPED_BYTES`].
    fn len(&self) -> usize;

    /// Whether the length is 0; it never is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its first byte, at an address that is a multiple of [`MAPPED_BYTES`]. The memory stays as long as this value. Which thread may
    /// access which bytes, the users of the file agree among themselves. Of a file that was opened for reading nothing may be written.
    fn as_ptr(&self) -> *mut u8;

    /// Stores a word at once, as little-endian bytes, after all earlier stores of this thread.
    ///
    /// # Panics
    /// Unless `offset` is a multiple of [`WORD_BYTES`] within the file, which was opened for writing.
    fn store_word(&self, offset: usize, word: u64);

    /// Loads a word at once: later loads of this thread see the stores before it.
    ///
    /// # Panics
    /// Unless `offset` is a multiple of [`WORD_BYTES`] within the file.
    fn load_word(&self, offset: usize) -> u64;

    /// Begins to write the lines of a range back from the processor's caches.
    ///
    /// # Errors
    /// Only a simulated machine that has crashed returns one.
    ///
    /// # Panics
    /// Unless the range is within the file, which was opened for writing.
    fn write_back(&self, range: Range<usize>) -> io::Result<()>;

    /// Gives up the file, for the next one that maps it: nothing is stored any more. In a child of the process that mapped it, only the
    /// child's part in that: the parent has it still.
    fn release(&self) {}

    /// Returns when everything that this thread began to write back is durable.
    ///
    /// # Errors
    /// That of [`MappedFile::check`]; on a simulated machine that has crashed another.
    fn fence(&self) -> io::Result<()>;

    /// Whether the memory has delivered all that was read, and taken all that was stored, so far. An access to a page that it does not
    /// deliver, because it is damaged or because another program cut the file short, does not end the process: from then on the page is one
    /// of zeros, stores to it are lost, and this is an error. Of 256 mapped files at a time that is so.
    ///
    /// # Errors
    /// Names the page.
    fn check(&self) -> io::Result<()>;
}

/// Fails for a length that no mapped file has.
pub(crate) fn check_len(path: &Path, bytes: u64) -> io::Result<()> {
    if bytes > 0 && bytes.is_multiple_of(MAPPED_BYTES as u64) && usize::try_from(bytes).is_ok() {
        return Ok(());
    }
    let what =
        format!("a file of {bytes} bytes is not mapped: the length has to be a multiple of {MAPPED_BYTES}");
    Err(DiskError::wrap("mmap", path, io::Error::new(io::ErrorKind::InvalidInput, what)))
}

/// The index of a word.
pub(crate) fn word_index(offset: usize, len: usize) -> usize {
    assert!(offset.is_multiple_of(WORD_BYTES) && offset < len, "a word at {offset} in a file of {len} bytes");
    offset / WORD_BYTES
}

/// The lines of a range.
pub(crate) fn lines(range: &Range<usize>, len: usize) -> Range<usize> {
    assert!(
        range.start <= range.end && range.end <= len,
        "bytes {} to {} of a file of {len}",
        range.start,
        range.end
    );
    if range.is_empty() { 0..0 } else { range.start / LINE_BYTES..range.end.div_ceil(LINE_BYTES) }
}

/// What an access to a lost page means.
pub(crate) fn lost_page(at: usize) -> io::Error {
    let what = format!(
        "the page at byte {at} of the mapped file cannot be accessed: its memory is damaged, or another program cut the file short"
    );
    io::Error::other(what)
}
