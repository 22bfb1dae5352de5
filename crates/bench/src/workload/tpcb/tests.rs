//! The bank on Fulgurite.

use super::*;
use crate::testing::Bed;

const SMALL: Tpcb = Tpcb { branches: 3, accounts_per_branch: 50 };

#[test]
fn filling_leaves_the_rows_it_says() {
    let bed = Bed::new(SMALL);
    assert_eq!([BRANCHES, TELLERS, ACCOUNTS, HISTORY].map(|table| bed.rows(table).len()), [3, 30, 150, 0]);
    let mut rows = bed.tables().into_iter().flatten();
    assert!(rows.all(|(key, value)| key.len() + value.len() == 100 && balance(&value) == Some(0)));
    assert_eq!(bed.bytes(), SMALL.shape().loaded_bytes);
    bed.check(Some(&Done { kinds: vec![0], rolled_back: vec![0] })).expect("all are 0");
}

#[test]
fn four_threads_keep_the_sums() {
    let bed = Bed::new(SMALL);
    let (mut done, counts) = bed.run(4, 500);
    assert_eq!(done.kinds, [2000]);
    bed.check(Some(&done)).expect("the sums are the same");
    assert_eq!(Some(bed.bytes()), SMALL.live_bytes(&done));
    assert_eq!(counts.user_bytes, 2000 * SMALL.shape().bytes_per_operation);
    done.kinds[0] += 1;
    let error = bed.check(Some(&done)).expect_err("one is missing");
    assert!(error.to_string().contains("`history` holds 2000 rows instead of 2001"), "{error}");
}

#[test]
fn threads_that_begin_again_write_new_history() {
    let bed = Bed::new(SMALL);
    let steps = [30, 1, 20].map(|steps| bed.run(2, steps).0.operations());
    let done = Done { kinds: vec![steps.iter().sum()], rolled_back: vec![0] };
    assert_eq!(done.kinds, [102]);
    bed.check(Some(&done)).expect("no row was written over");
}

#[test]
fn every_sum_is_checked() {
    let bed = Bed::new(SMALL);
    bed.run(2, 100);
    for (table, words) in [
        (BRANCHES, "balances of `branches`"),
        (TELLERS, "balances of `tellers`"),
        (ACCOUNTS, "balances of `accounts`"),
    ] {
        let (key, row) = &bed.rows(table)[1];
        let mut wrong = row.clone();
        wrong[0] ^= 1;
        bed.check_fails(words, table, (key, Some(row), Some(&wrong)));
        bed.check_fails("rows instead of", table, (key, Some(row), None));
    }
    let (key, row) = &bed.rows(HISTORY)[7];
    bed.check_fails("not what the history says", HISTORY, (key, Some(row), None));
    let mut wrong = row.clone();
    wrong[16] ^= 1;
    bed.check_fails("not what the history says", HISTORY, (key, Some(row), Some(&wrong)));
    bed.check_fails("never written", HISTORY, (key, Some(row), Some(b"short")));
    let mut wrong = row.clone();
    wrong[12] ^= 1;
    bed.check_fails("never written", HISTORY, (key, Some(row), Some(&wrong)));
}

#[test]
fn an_amount_at_the_wrong_row_is_found_though_the_sums_are_right() {
    let bed = Bed::new(SMALL);
    bed.run(1, 50);
    for (table, name) in [(BRANCHES, "branches"), (TELLERS, "tellers"), (ACCOUNTS, "accounts")] {
        let rows = bed.rows(table);
        for ((key, row), by) in rows[..2].iter().zip([5, -5]) {
            let mut wrong = row.clone();
            let balance = balance(row).expect("a balance") + by;
            wrong[..8].copy_from_slice(&balance.to_le_bytes());
            bed.write(table, key, Some(&wrong));
        }
        let error = bed.check(None).expect_err("five moved");
        assert!(error.to_string().contains(&format!("some balances of `{name}`")), "{error}");
        rows[..2].iter().for_each(|(key, row)| bed.write(table, key, Some(row)));
    }
    bed.check(None).expect("all is undone");
}

#[test]
fn amounts_and_branches_are_as_the_rules_want() {
    let mut terminal =
        Terminal { bank: SMALL, thread: 0, random: Random::new(1), next: None, value: Vec::new() };
    let (mut at_home, mut tellers) = (0, [0; 30]);
    for _ in 0..20_000 {
        let History { account, teller, branch, amount, .. } = terminal.pick();
        assert!(amount.unsigned_abs() <= AMOUNT_MAX && branch == teller / 10 && account < 150);
        at_home += u32::from(account / 50 == u64::from(branch));
        tellers[teller as usize] += 1;
    }
    assert!((16_700..17_300).contains(&at_home), "{at_home}");
    assert!(tellers.iter().all(|count| (500..850).contains(count)), "{tellers:?}");
    terminal.bank.branches = 1;
    assert!((0..1000).all(|_| terminal.pick().account < 50));
}

#[test]
fn history_is_read_as_it_was_written() {
    let row = History { account: u64::MAX, teller: 1, branch: 2, amount: -3, time: 4 };
    assert_eq!(History::decode(&row.encode()), Some(row));
    assert_eq!(History::decode(&row.encode()[1..]), None);
}
