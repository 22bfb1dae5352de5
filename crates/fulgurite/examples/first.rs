//! The example of the README, to be run: `cargo run -p fulgurite --example first`. It leaves `./data` behind.

#![expect(unused_variables, reason = "the example shows what comes back")]

fn main() -> fulgurite::Result<()> {
    use fulgurite::{Database, Options};

    let db = Database::open("./data", Options::default())?; // creates, or recovers
    let users = db.table("users")?; // opens, or creates
    users.put(b"alice", b"1")?; // durable when it returns
    let mut txn = db.begin(); // snapshot isolation
    let alice = txn.get(&users, b"alice")?;
    txn.put(&users, b"bob", b"2")?;
    txn.commit()?; // Ok(Commit { csn }) or Error::Conflict
    db.transact(|txn| txn.put(&users, b"carol", b"3"))?; // retries conflicts, with a limit
    for entry in db.snapshot().range(&users, b"b".as_slice()..)? {
        let (key, value) = entry?;
        println!("{key:?} = {value:?}");
    }
    Ok(())
}
