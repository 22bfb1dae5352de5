//! The bytes of a file, sparse and shared between images.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The size of a device's atomic write.
pub(super) const SECTOR: u64 = 512;
const SECTORS_PER_PAGE: u64 = 8;
/// The unit that images share and that is copied on the first write.
pub(super) const PAGE: u64 = SECTOR * SECTORS_PER_PAGE;

static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

type Page = [u8; PAGE as usize];

/// The bytes of one sector; `None` is all zeros.
pub(super) type Sector = Option<Arc<[u8; SECTOR as usize]>>;

/// Pages by number. An absent page is all zeros; cloning costs one reference count.
#[derive(Clone, Default)]
pub(super) struct Content {
    pages: Arc<BTreeMap<u64, Arc<Page>>>,
}

impl Content {
    /// Fills `buf` with the bytes from `offset` on; the content has no end.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) {
        for (page, inside, range) in pieces(offset, buf.len()) {
            match self.pages.get(&page) {
                Some(bytes) => buf[range].copy_from_slice(&bytes[inside]),
                None => buf[range].fill(0),
            }
        }
    }

    /// Overwrites the bytes at `offset`. Zeros written to an absent page leave it absent.
    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        for (page, inside, range) in pieces(offset, data.len()) {
            let data = &data[range];
            if is_zero(data) {
                if !self.pages.contains_key(&page) {
                    continue;
                }
                if inside.len() as u64 == PAGE {
                    Arc::make_mut(&mut self.pages).remove(&page);
                    continue;
                }
            }
            let pages = Arc::make_mut(&mut self.pages);
            let bytes = pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(bytes)[inside].copy_from_slice(data);
        }
    }

    /// Zeros everything from `offset` on.
    pub(super) fn clear_from(&mut self, offset: u64) {
        if self.pages.last_key_value().is_none_or(|(page, _)| (page + 1) * PAGE <= offset) {
            return;
        }
        let pages = Arc::make_mut(&mut self.pages);
        pages.split_off(&offset.div_ceil(PAGE));
        if let Some(bytes) = pages.get_mut(&(offset / PAGE)) {
            Arc::make_mut(bytes)[(offset % PAGE) as usize..].fill(0);
        }
    }

    /// The bytes of a sector, `None` where the page is absent.
    pub(super) fn sector(&self, sector: u64) -> Option<&[u8]> {
        let start = (sector % SECTORS_PER_PAGE * SECTOR) as usize;
        self.pages.get(&(sector / SECTORS_PER_PAGE)).map(|bytes| &bytes[start..start + SECTOR as usize])
    }

    /// Sets a whole sector.
    pub(super) fn set_sector(&mut self, sector: u64, bytes: &Sector) {
        let bytes = bytes.as_ref().map_or(&ZEROS[..SECTOR as usize], |bytes| &bytes[..]);
        self.write(bytes, sector * SECTOR);
    }

    /// The numbers of the present pages, from the one that contains `offset` on.
    pub(super) fn pages_from(&self, offset: u64) -> impl Iterator<Item = u64> + '_ {
        self.pages.range(offset / PAGE..).map(|(page, _)| *page)
    }

    pub(super) fn has_page(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }
}

/// The sectors that a range of bytes touches.
pub(super) fn sectors(offset: u64, len: u64) -> Range<u64> {
    offset / SECTOR..(offset + len).div_ceil(SECTOR)
}

/// The sectors of a page.
pub(super) fn sectors_of_page(page: u64) -> Range<u64> {
    page * SECTORS_PER_PAGE..(page + 1) * SECTORS_PER_PAGE
}

/// The page of a sector.
pub(super) fn page_of_sector(sector: u64) -> u64 {
    sector / SECTORS_PER_PAGE
}

/// Whether two sectors hold the same bytes.
pub(super) fn same(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    let zeros = &ZEROS[..SECTOR as usize];
    a.unwrap_or(zeros) == b.unwrap_or(zeros)
}

/// A copy of a sector to keep as a version.
pub(super) fn version_of(bytes: Option<&[u8]>) -> Sector {
    let bytes: &[u8; SECTOR as usize] = bytes?.try_into().ok()?;
    if is_zero(bytes) { None } else { Some(Arc::new(*bytes)) }
}

pub(super) fn is_zero(data: &[u8]) -> bool {
    data.chunks(PAGE as usize).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

/// Cuts a range of bytes at page boundaries: the page, the range inside it, and the range of the caller's buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % PAGE) as usize;
        let size = (PAGE as usize - start).min(len - done);
        let piece = (at / PAGE, start..start + size, done..done + size);
        done += size;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 5 * PAGE as usize;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn content_is_bytes(
            steps in prop::collection::vec((0..LEN, 0..2 * PAGE as usize, 0..3u8), 1..12),
            cut in 0..LEN,
        ) {
            let mut content = Content::default();
            let mut bytes = vec![0; LEN];
            for (start, len, byte) in steps {
                let end = LEN.min(start + len);
                let before = content.clone();
                let kept = bytes.clone();
                content.write(&vec![byte; end - start], start as u64);
                bytes[start..end].fill(byte);
                for (content, bytes) in [(&content, &bytes), (&before, &kept)] {
                    let mut read = vec![9; LEN];
                    content.read(&mut read, 0);
                    prop_assert!(read == *bytes);
                }
            }
            content.clear_from(cut as u64);
            bytes[cut..].fill(0);
            let mut read = vec![9; LEN];
            content.read(&mut read, 0);
            prop_assert!(read == bytes);
            for (sector, bytes) in bytes.chunks(SECTOR as usize).enumerate() {
                prop_assert!(same(content.sector(sector as u64), Some(bytes)));
            }
        }
    }

    #[test]
    fn zeros_in_a_hole_take_no_page() {
        let mut content = Content::default();
        content.write(&[0; 3 * PAGE as usize], 100);
        assert_eq!(content.pages_from(0).count(), 0);
        content.write(&[1; 3 * PAGE as usize], 0);
        content.write(&[0; 3 * PAGE as usize], 0);
        assert_eq!(content.pages_from(0).count(), 0);
    }
}
