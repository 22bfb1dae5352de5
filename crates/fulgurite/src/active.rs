//! The tables that have something to merge: background work does not look at the others, of which there may be many
//! thousands.
//!
//! INV-ACT-1: a table with a version in its memtables is in the list, or is about to be put there by the thread that
//! applied it. That thread applies first, then reads the table's flag, and if it is not set, sets it and lists the table.
//! A thread that takes a table from the list clears the flag first, then looks at the memtables, and keeps the table if
//! they are not empty. A fence stands between the two steps of either. So of both threads at least one sees what the
//! other did. The flag is set by one of them only: the one that does lists the table, or keeps it there.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// What can be listed.
pub(crate) trait Activity {
    /// Set while it is listed.
    fn flag(&self) -> &AtomicBool;

    /// Whether there is nothing to do for it.
    fn is_quiet(&self) -> bool;
}

/// The list.
pub(crate) struct Active<T>(Mutex<Vec<Arc<T>>>);

impl<T> Default for Active<T> {
    fn default() -> Active<T> {
        Active(Mutex::default())
    }
}

/// Lists an item unless it is listed. Called after something to do was added to it. An item refers to its list weakly:
/// the list keeps its items.
#[inline]
pub(crate) fn note<T: Activity>(list: &Weak<Active<T>>, item: &Arc<T>) {
    fence(Ordering::SeqCst);
    if !item.flag().load(Ordering::Relaxed) {
        put_there(list, item);
    }
}

#[cold]
fn put_there<T: Activity>(list: &Weak<Active<T>>, item: &Arc<T>) {
    if let Some(list) = list.upgrade()
        && !item.flag().swap(true, Ordering::SeqCst)
    {
        list.0.lock().push(item.clone());
    }
}

impl<T: Activity> Active<T> {
    pub fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().clone()
    }

    /// Adds up a figure of the listed items.
    pub fn sum(&self, figure: impl Fn(&T) -> u64) -> u64 {
        self.0.lock().iter().map(|item| figure(item)).sum()
    }

    /// Takes items from the list for which there is nothing to do.
    pub fn drop_quiet(&self) {
        self.0.lock().retain(|item| {
            if !item.is_quiet() {
                return true;
            }
            item.flag().store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // If another thread sets the flag, it lists the item once more.
            !item.is_quiet() && !item.flag().swap(true, Ordering::SeqCst)
        });
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[derive(Default)]
    struct Item {
        flag: AtomicBool,
        work: AtomicU64,
    }

    impl Activity for Item {
        fn flag(&self) -> &AtomicBool {
            &self.flag
        }

        fn is_quiet(&self) -> bool {
            self.work.load(Ordering::Relaxed) == 0
        }
    }

    #[test]
    fn an_item_is_listed_once_until_there_is_nothing_to_do() {
        let active = Arc::new(Active::default());
        let weak = Arc::downgrade(&active);
        let item = Arc::new(Item::default());
        item.work.store(1, Ordering::Relaxed);
        (0..3).for_each(|_| note(&weak, &item));
        active.drop_quiet();
        assert_eq!((active.all().len(), active.sum(|item| item.work.load(Ordering::Relaxed))), (1, 1));
        item.work.store(0, Ordering::Relaxed);
        active.drop_quiet();
        assert!(active.all().is_empty());
        note(&weak, &item);
        assert_eq!(active.all().len(), 1);
        drop(active);
        assert_eq!(Arc::strong_count(&item), 1);
    }

    /// One thread adds work, the other does it and drops what is quiet: no work is forgotten, nothing is listed twice.
    #[test]
    fn no_work_is_forgotten() {
        let active = Arc::new(Active::default());
        let weak = Arc::downgrade(&active);
        let item = Arc::new(Item::default());
        let rounds = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    item.work.fetch_add(1, Ordering::Relaxed);
                    note(&weak, &item);
                    while item.work.load(Ordering::Relaxed) > 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut done = 0;
            let mut idle = 0;
            while done < rounds {
                let listed = active.all();
                assert!(listed.len() <= 1, "listed twice");
                let worked: u64 = listed.iter().map(|item| item.work.swap(0, Ordering::Relaxed)).sum();
                done += worked;
                active.drop_quiet();
                idle = if worked == 0 { idle + 1 } else { 0 };
                assert!(idle < 5_000_000, "work was forgotten");
                if worked == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
