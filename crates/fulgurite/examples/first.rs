//! The example of the README, to be run: `cargo run -p fulgurite --example first`. It leaves `./data` behind.

#![expect(unused_variables, reason = "the example shows what comes back")]

fn main() -> fulgurite::Result<()> {
    use fulgurite::{Database, Options};

    let db = Database::open("./data", Options::default())?; // creates, or recovers
    let users = db.table("users")?; // opens, or creates
    users.put("alice", "1")?; // durable when it returns
    let mut txn = db.begin(); // snapshot isolation
    let alice = txn.get(&users, "alice")?;
    txn.put(&users, "bob", "2")?;
    txn.commit()?; // Ok(Commit { csn }) or Error::Conflict
    db.transact(|txn| txn.put(&users, "carol", "3"))?; // retries conflicts, with a limit
    for entry in db.snapshot().range(&users, "b"..)? {
        let (key, value) = entry?;
        println!("{key:?} = {value:?}");
    }
    Ok(())
}
