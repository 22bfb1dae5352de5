//! Keys and values that a read returns.

use std::fmt;
use std::ops::Deref;

use fulgurite_index::Pinned;

/// A key or value that was read. Up to 31 bytes are copied into it. More it refers to where they are in memory, without a copy, and pins
/// them there: it keeps one leaf (8 KiB) or the memory of one commit alive, unless it is short and the database is larger than its
/// memory budget. To keep the bytes for long, copy them out.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let users = db.table("users")?;
/// users.put("alice", "engineer")?;
/// let value = users.get("alice")?.unwrap();
/// assert_eq!(value, "engineer");                      // compares with anything that is bytes
/// assert_eq!(value.len(), 8);                         // and is a slice
/// let kept: Vec<u8> = value.to_vec();                 // a copy, which pins nothing
/// # assert_eq!(kept, b"engineer");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Value(pub(crate) Pinned);

impl Value {
    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// How many bytes of memory it keeps alive beside itself: none if it is short, else a leaf, all that one commit wrote to the table (1 MiB
    /// of what was replayed), or the value alone, with the bytes of its allocation. Two values of one leaf keep it alive once, and each
    /// counts it. For limits of what a program holds: a server's replies that their clients do not take.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.put(&users, "alice", "engineer")?;
    /// txn.put(&users, "bob", [b'x'; 4000])?;
    /// txn.put(&users, "carol", [b'y'; 100])?;
    /// txn.commit()?;
    /// assert_eq!(users.get("alice")?.unwrap().kept_bytes(), 0);
    /// let carol = users.get("carol")?.unwrap();
    /// assert!(carol.kept_bytes() > 4000);                 // bob's, too
    /// let copy = fulgurite::Value::from(carol.to_vec());
    /// assert!(copy.kept_bytes() < 200);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kept_bytes(&self) -> usize {
        self.0.held_bytes()
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value(Pinned::from_vec(bytes))
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        self.deref() == other.as_ref()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> std::cmp::Ordering {
        self.deref().cmp(other)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::error::readable(self))
    }
}
