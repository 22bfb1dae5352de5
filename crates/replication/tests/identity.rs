//! Messages of another cluster, and directories that are older copies, or two with one number: none of them is taken or counted.

mod trio;

use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_replication::{Cluster, ClusterId, Fenced, Life, NodeError, Replica, SentUpTo, TermError};
use std::sync::Arc;
use trio::{Trio, cluster, get, led, options, put, shared};

/// Opens or makes node 2 in another directory, and puts it in the place of the one that is there.
fn replace(trio: &mut Trio, replica: Replica) {
    trio.replicas[1] = replica;
}

/// Starts node 2 in a copy of its directory, which was started before.
fn start_copy(trio: &mut Trio, copy: &mut Arc<SimEnv>) {
    *copy = copy.crash(CrashKind::Kill, 5);
    let replica = Replica::open(shared(copy), "/db", options(), 2).unwrap();
    replace(trio, replica);
}

/// Node 2 hears of the leader, node 1.
fn hear_leader(trio: &Trio) -> Result<(), NodeError> {
    let message = trio.replica(1).append_after(2, 0).unwrap().expect("it leads");
    trio.replica(2).append(&message).map(|_| ())
}

fn fence(trio: &Trio, number: u32, term: u64, nominee: u32) -> Result<Fenced, NodeError> {
    trio.replica(number).fence(term, Some(nominee))
}

#[test]
fn an_older_copy_of_a_directory_neither_acknowledges_nor_votes() {
    let mut trio = led();
    put(&trio.db(1), "k", "old").unwrap();
    trio.replicate(1, &[2, 3]);
    let mut copy = trio.envs[1].crash(CrashKind::Kill, 5);
    // Node 2 is started again, and the others hear of that.
    trio.crash(2, CrashKind::PowerCut);
    put(&trio.db(1), "k", "new").unwrap();
    trio.replicate(1, &[2]);
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("new"), "a majority has it");
    // In its place comes the copy, which does not have that; it is started once, then more often than node 2 was.
    for starts in [1, 1, 3] {
        for _ in 0..starts {
            start_copy(&mut trio, &mut copy);
        }
        let error = hear_leader(&trio).unwrap_err();
        assert!(matches!(error, NodeError::OldDirectory { by: 1, .. }), "{error}");
        assert!(error.to_string().contains("of node 2") && error.to_string().contains("fill it"), "{error}");
        // From then on it says nothing.
        assert!(matches!(fence(&trio, 2, 50, 3), Err(NodeError::OldDirectory { .. })));
    }
    // The verdict stays, however often it is started.
    for _ in 0..40 {
        start_copy(&mut trio, &mut copy);
    }
    assert!(matches!(fence(&trio, 2, 60, 3), Err(NodeError::OldDirectory { by: 1, .. })));
    assert!(trio.replica(2).node().retire().is_none());
}

/// Node 3 has heard nothing of the later life: nothing can be found there, as if node 2 had been away. Node 1 has.
#[test]
fn an_older_copy_that_is_fenced_for_itself_hears_of_its_later_life() {
    let mut trio = led();
    let mut copy = trio.envs[1].crash(CrashKind::Kill, 5);
    trio.crash(2, CrashKind::PowerCut);
    put(&trio.db(1), "k", "new").unwrap();
    trio.replicate(1, &[2]);
    start_copy(&mut trio, &mut copy);
    let promises = [2, 3].map(|number| fence(&trio, number, 60, 3).unwrap());
    trio.replicas[2].appoint(60, &promises).unwrap();
    let promises = [1, 2].map(|number| fence(&trio, number, 70, 2).unwrap());
    let error = trio.replica(2).appoint(70, &promises).unwrap_err();
    assert!(matches!(error, NodeError::OldDirectory { by: 1, .. }), "{error}");
    assert!(matches!(fence(&trio, 2, 80, 3), Err(NodeError::OldDirectory { .. })));
}

/// A message from before its later life does not tell the copy of that, and the copy was started more often: what it acknowledges counts for nothing,
/// and does not take the place of the life that is remembered.
#[test]
fn a_late_message_does_not_make_an_older_copy_a_later_life() {
    let mut trio = led();
    let late = trio.replica(1).append_after(2, 0).unwrap().unwrap();
    let mut copy = trio.envs[1].crash(CrashKind::Kill, 5);
    trio.crash(2, CrashKind::PowerCut);
    put(&trio.db(1), "k", "new").unwrap();
    trio.replicate(1, &[2]);
    // Node 3 hears of it from node 1.
    let heard =
        trio.replica(1).append_after(3, trio.replica(3).positions().entries.last.index).unwrap().unwrap();
    trio.replica(3).append(&heard).unwrap();
    for _ in 0..3 {
        start_copy(&mut trio, &mut copy);
    }
    let appended = trio.replica(2).append(&late).unwrap();
    assert!(appended.envelope.from.start > 2);
    for number in [1, 3] {
        let lives = trio.replica(number).node().lives();
        assert!(lives.iter().any(|life| life.node == 2 && life.start == 2), "node {number}: {lives:?}");
    }
    let error = trio.replica(1).acknowledged(&appended).unwrap_err();
    assert!(matches!(error, NodeError::PastLife { node: 1, .. }), "{error}");
    let promises = [2, 3].map(|number| fence(&trio, number, 60, 3).unwrap());
    let error = trio.replicas[2].appoint(60, &promises).unwrap_err();
    assert!(matches!(error, NodeError::PastLife { node: 3, .. }), "{error}");
}

#[test]
fn a_promise_of_an_older_copy_is_refused_by_one_that_has_heard_of_its_later_life() {
    let mut trio = led();
    let mut copy = trio.envs[1].crash(CrashKind::Kill, 5);
    trio.crash(2, CrashKind::PowerCut);
    put(&trio.db(1), "k", "new").unwrap();
    trio.replicate(1, &[2]);
    for starts in 1..4 {
        for _ in 0..starts {
            start_copy(&mut trio, &mut copy);
        }
        trio.replica(1).reopen().unwrap();
        let term = 10 * starts;
        let promises = [1, 2].map(|number| fence(&trio, number, term, 1).unwrap());
        let error = trio.replica(1).appoint(term, &promises).unwrap_err();
        assert!(matches!(error, NodeError::PastLife { node: 1, .. }), "{error}");
        assert!(error.to_string().contains("of node 2"), "{error}");
        // With node 3 it goes on, and nothing is lost.
        let promises = [1, 3].map(|number| fence(&trio, number, term + 1, 1).unwrap());
        trio.replica(1).appoint(term + 1, &promises).unwrap();
        trio.replicate(1, &[3]);
        assert_eq!(get(&trio.db(3), "k").as_deref(), Some("new"));
    }
}

#[test]
fn of_two_directories_with_one_number_the_first_stays() {
    let mut trio = led();
    put(&trio.db(1), "k", "v").unwrap();
    trio.replicate(1, &[2, 3]);
    let env = SimEnv::new(77);
    let second = Replica::create(shared(&env), "/db", options(), &cluster(), 2).unwrap();
    let first = std::mem::replace(&mut trio.replicas[1], second);
    let error = hear_leader(&trio).unwrap_err();
    assert!(matches!(error, NodeError::OldDirectory { .. }), "{error}");
    assert!(error.to_string().contains("there are two with one number"), "{error}");
    replace(&mut trio, first);
    put(&trio.db(1), "k", "w").unwrap();
    trio.replicate(1, &[2]);
    assert_eq!(get(&trio.db(2), "k").as_deref(), Some("w"));
}

#[test]
fn messages_of_another_cluster_or_for_another_node_change_nothing() {
    let trio = led();
    let message = trio.replica(1).append_after(2, 0).unwrap().unwrap();
    let sent = |work: &dyn Fn(&mut fulgurite_replication::Append)| {
        let mut message = message.clone();
        message.term = 99;
        work(&mut message);
        let error = trio.replica(2).append(&message).unwrap_err();
        assert_eq!(trio.replica(2).node().term(), 1, "{error}");
        error
    };
    let error = sent(&|message| message.envelope.cluster = ClusterId(5));
    let names = ["node 2 is of cluster", "00c1", "node 1 of cluster", "0005"];
    assert!(names.iter().all(|name| error.to_string().contains(name)), "{error}");
    for change in [(1, 3), (2, 2), (7, 2)] {
        let error = sent(&|message| {
            (message.envelope.from.node, message.envelope.to) = change;
        });
        assert!(matches!(error, NodeError::Misdirected { node: 2, sent } if sent == change), "{error}");
    }
    let appended = trio.replica(2).append(&message).unwrap();
    let mut other = appended.clone();
    other.envelope.cluster = ClusterId(5);
    assert!(matches!(trio.replica(1).acknowledged(&other), Err(NodeError::OtherCluster { .. })));
    trio.replica(1).acknowledged(&appended).unwrap();
}

#[test]
fn nodes_that_were_made_for_other_members_appoint_nobody() {
    let mut trio = Trio::new(options().into());
    let env = SimEnv::new(77);
    let wider = Cluster { members: vec![1, 2, 3, 4, 5], ..cluster() };
    replace(&mut trio, Replica::create(shared(&env), "/db", options(), &wider, 2).unwrap());
    let promises = [1, 2].map(|number| fence(&trio, number, 1, 1).unwrap());
    let error = trio.replica(1).appoint(1, &promises).unwrap_err();
    assert!(
        matches!(&error, NodeError::OtherMembers { own: (1, own), .. } if own.members.len() == 3),
        "{error}"
    );
    let promises = [1, 3].map(|number| fence(&trio, number, 2, 1).unwrap());
    trio.replica(1).appoint(2, &promises).unwrap();
}

/// Node 3 is lost for good: node 4 takes its place, with a copy of node 2.
#[test]
fn a_node_that_is_lost_is_replaced_under_another_number() {
    let mut trio = led();
    put(&trio.db(1), "k", "1").unwrap();
    put(&trio.db(1), "long", &"v".repeat(300_000)).unwrap();
    trio.replicate(1, &[2]);
    let too_soon = Trio::new(options().into()).replica(3).node().change_members(&[1, 2, 3, 4]).unwrap_err();
    assert!(too_soon.to_string().contains("version 0: appoint a leader"), "{too_soon}");
    // Each of the others gets the new members, and nothing is in between.
    let change = |trio: &Trio, number: u32, members: &[u32]| {
        trio.replica(number).node().change_members(members).map(|cluster| cluster.version)
    };
    assert!(change(&trio, 1, &[1, 2, 4]).unwrap_err().to_string().contains("[1, 2, 3] cannot become"));
    assert_eq!(change(&trio, 1, &[1, 2, 3, 4]).unwrap(), 1);
    // The leader goes on with those with which it was appointed, and cannot be appointed with a node that has these.
    put(&trio.db(1), "k", "2").unwrap();
    trio.replicate(1, &[2]);
    assert_eq!(get(&trio.db(2), "k").as_deref(), Some("2"));
    trio.replica(1).reopen().unwrap();
    let promises = [1, 2].map(|number| fence(&trio, number, 5, 1).unwrap());
    let error = trio.replica(1).appoint(5, &promises).unwrap_err();
    assert!(matches!(error, NodeError::OtherMembers { .. }), "{error}");
    assert_eq!(change(&trio, 2, &[1, 2, 3, 4]).unwrap(), 1);
    let promises = [1, 2].map(|number| fence(&trio, number, 6, 1).unwrap());
    let error = trio.replica(1).appoint(6, &promises).unwrap_err();
    assert!(matches!(error, NodeError::NoMajority { fenced: 2, members: 4, .. }), "{error}");
    // A copy of one moment of the disk of node 2, which runs. Its file of terms is not for node 4.
    let copy = trio.envs[1].crash(CrashKind::Kill, 3);
    let five = Cluster { members: vec![1, 2, 3, 4], previous: vec![1, 2, 3], version: 1, ..cluster() };
    let join = |five: &Cluster| Replica::join(shared(&copy), "/db", options(), five, 4);
    let of_other = Cluster { id: ClusterId(7), ..five.clone() };
    assert!(matches!(join(&of_other), Err(NodeError::Term(TermError::NotACopy { .. }))));
    let error = Replica::join(shared(&copy), "/db", options(), &cluster(), 2).unwrap_err();
    assert!(error.to_string().contains("or is here already"), "{error}");
    assert!(matches!(
        Replica::create(shared(&copy), "/db", options(), &five, 4),
        Err(NodeError::Used { .. })
    ));
    let four = join(&five).unwrap();
    trio.replicas[2] = four;
    let fence_at = |trio: &Trio, at: usize, term| trio.replicas[at].fence(term, Some(1)).unwrap();
    let appoint = |trio: &Trio, term| {
        let promises = [0, 1, 2].map(|at| fence_at(trio, at, term));
        trio.replica(1).appoint(term, &promises).unwrap();
    };
    let replicate = |trio: &Trio| {
        for _ in 0..2 {
            trio.replica(1).flush().unwrap();
            for (at, number) in [(1, 2), (2, 4)] {
                let mut after = SentUpTo::from(trio.replicas[at].positions().entries.last.index);
                loop {
                    let message = trio.replica(1).append_after(number, after).unwrap().unwrap();
                    let appended = trio.replicas[at].append(&message).unwrap();
                    trio.replica(1).acknowledged(&appended).unwrap();
                    after = appended.up_to();
                    if message.is_empty() {
                        break;
                    }
                }
            }
        }
        for replica in &trio.replicas {
            while replica.database().maintain().unwrap() {}
        }
    };
    appoint(&trio, 7);
    // A leader that was appointed is not enough: without an entry of its own that is agreed, what was agreed before may be on no node of a majority
    // of the next set.
    for (at, number) in [(1, 2), (2, 4)] {
        let last = trio.replica(1).positions().entries.last.index;
        let message = trio.replica(1).append_after(number, last).unwrap().unwrap();
        let _ = trio.replicas[at].append(&message);
    }
    for at in [0, 1, 2] {
        let error = trio.replicas[at].node().change_members(&[1, 2, 4]).unwrap_err();
        assert!(matches!(error, NodeError::Term(TermError::NotInForce { version: 1, .. })), "{error}");
    }
    replicate(&trio);
    put(&trio.db(1), "k", "3").unwrap();
    replicate(&trio);
    // Now the lost one can go: all three have heard that an entry was agreed with four.
    for at in [0, 1, 2] {
        trio.replicas[at].node().change_members(&[1, 2, 4]).unwrap();
    }
    trio.replica(1).reopen().unwrap();
    appoint(&trio, 8);
    replicate(&trio);
    put(&trio.db(1), "k", "4").unwrap();
    replicate(&trio);
    for replica in &trio.replicas {
        let (db, number) = (replica.database(), replica.number());
        assert_eq!(get(&db, "k").as_deref(), Some("4"), "node {number}");
        assert_eq!(get(&db, "long").map(|value| value.len()), Some(300_000), "node {number}");
    }
}

/// Two operators add different nodes, and one set gets a leader: the others take it for theirs.
#[test]
fn a_node_with_other_members_takes_those_of_the_leader_once_they_are_in_force() {
    let trio = led();
    let change = |number: u32, members: &[u32]| trio.replica(number).node().change_members(members);
    let of_leader = change(1, &[1, 2, 3, 4]).unwrap();
    change(2, &[1, 2, 3, 4]).unwrap();
    change(3, &[1, 2, 3, 5]).unwrap();
    let mut message = trio.replica(1).append_after(3, 0).unwrap().unwrap();
    message.cluster = of_leader;
    let agreed = std::mem::take(&mut message.agreed);
    trio.replica(3).append(&message).unwrap();
    let error = change(3, &[2, 3, 5]).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::NotInForce { version: 1, .. })), "{error}");
    message.agreed = agreed;
    trio.replica(3).append(&message).unwrap();
    assert_eq!(trio.replica(3).node().cluster(), message.cluster);
    let error = change(3, &[2, 3, 5]).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::ManyMembers { .. })), "{error}");
}

/// A member that was away while the members changed twice has the set that is in force once it hears of that.
#[test]
fn a_member_that_was_away_gets_the_members_that_are_in_force() {
    let trio = led();
    let mut message = trio.replica(1).append_after(3, 0).unwrap().unwrap();
    message.cluster = std::sync::Arc::new(Cluster { version: 4, members: vec![1, 2, 3, 8, 9], ..cluster() });
    trio.replica(3).append(&message).unwrap();
    assert_eq!(*trio.replica(3).node().cluster(), *message.cluster);
    message.cluster = std::sync::Arc::new(Cluster { version: 6, members: vec![1, 2, 8], ..cluster() });
    trio.replica(3).append(&message).unwrap();
    assert_eq!(trio.replica(3).node().cluster().version, 4, "it is no member any more");
}

/// What was agreed is on nodes 1 and 3, and node 3 is lost. Node 4 comes with a copy of node 2, which lacks it. Before an entry is agreed with four, no
/// node removes the lost one: nodes 2 and 4 would be a majority without it.
#[test]
fn what_is_agreed_survives_a_change_of_members() {
    let mut trio = led();
    let copy = trio.envs[1].crash(CrashKind::Kill, 3);
    put(&trio.db(1), "k", "agreed").unwrap();
    trio.replicate(1, &[3]);
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("agreed"));
    for number in [1, 2] {
        trio.replica(number).node().change_members(&[1, 2, 3, 4]).unwrap();
    }
    let four = Cluster { members: vec![1, 2, 3, 4], previous: vec![1, 2, 3], version: 1, ..cluster() };
    trio.replicas[2] = Replica::join(shared(&copy), "/db", options(), &four, 4).unwrap();
    trio.replica(1).reopen().unwrap();
    let promises = [0, 1, 2].map(|at| trio.replicas[at].fence(9, Some(1)).unwrap());
    trio.replica(1).appoint(9, &promises).unwrap();
    trio.replica(1).flush().unwrap();
    for (at, number) in [(1, 2), (2, 4)] {
        let last = trio.replica(1).positions().entries.last.index;
        let message = trio.replica(1).append_after(number, last).unwrap().unwrap();
        assert!(matches!(trio.replicas[at].append(&message), Err(NodeError::Gap { .. })));
        assert!(trio.replicas[at].node().change_members(&[1, 2, 4]).is_err());
    }
    let promises = [1, 2].map(|at| trio.replicas[at].fence(11, Some(2)).unwrap());
    let error = trio.replicas[1].appoint(11, &promises).unwrap_err();
    assert!(matches!(error, NodeError::NoMajority { fenced: 2, members: 4, .. }), "{error}");
}

/// A leader that cannot remember a life counts nothing of it, and leads no more; it goes on once it is opened again.
#[test]
fn a_leader_whose_file_of_terms_fails_leads_no_more() {
    let mut trio = Trio::new(options().into());
    trio.appoint(1, &[1, 2]);
    trio.replica(1).flush().unwrap();
    let message = trio.replica(1).append_after(3, 0).unwrap().unwrap();
    let appended = trio.replica(3).append(&message).unwrap();
    trio.envs[0].faults().fail_all_writes(true);
    let error = trio.replica(1).acknowledged(&appended).unwrap_err();
    trio.envs[0].faults().fail_all_writes(false);
    assert!(matches!(error, NodeError::Term(TermError::Io { action: "write", .. })), "{error}");
    assert_eq!(trio.replica(1).node().leads(), None);
    assert_eq!(trio.replica(1).positions().entries.agreed.index, 0);
    trio.replica(1).reopen().unwrap();
    trio.appoint(1, &[1, 2]);
    trio.replicate(1, &[3]);
    assert!(trio.replica(1).positions().entries.agreed.index > 1);
}

/// Node 3 was away since the beginning, and is needed for a majority of the next members. Of a node that was made for these it learns nothing.
#[test]
fn a_node_that_did_not_hear_what_is_in_force_hears_it_from_one_that_did() {
    let mut trio = Trio::new(options().into());
    trio.appoint(1, &[1, 2]);
    trio.replicate(1, &[2]);
    let four = [1, 2, 3, 4];
    let error = trio.replica(3).node().change_members(&four).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::NotInForce { version: 0, .. })), "{error}");
    for number in [1, 2] {
        trio.replica(number).node().change_members(&four).unwrap();
    }
    let copy = trio.envs[1].crash(CrashKind::Kill, 3);
    let cluster = Cluster { members: four.into(), previous: vec![1, 2, 3], version: 1, ..cluster() };
    let joined = Replica::join(shared(&copy), "/db", options(), &cluster, 4).unwrap();
    let of_joined = joined.fence(20, None).unwrap();
    assert_eq!(of_joined.in_force, None);
    let error = trio.replica(3).node().adopt_members(&of_joined).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::NotInForce { version: 1, .. })), "{error}");

    let of_two = fence(&trio, 2, 20, 1).unwrap();
    assert_eq!((of_two.cluster.version, of_two.in_force), (1, Some(0)));
    let other = Fenced { cluster: Cluster { id: ClusterId(7), ..cluster.clone() }.into(), ..of_two.clone() };
    let error = trio.replica(3).node().adopt_members(&other).unwrap_err();
    assert!(matches!(error, NodeError::OtherCluster { .. }), "{error}");
    let without = Fenced {
        cluster: Cluster { members: vec![1, 2], previous: vec![1, 2, 4], ..cluster.clone() }.into(),
        ..of_two.clone()
    };
    let error = trio.replica(3).node().adopt_members(&without).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::Members { node: 3, .. })), "{error}");
    assert_eq!(trio.replica(3).node().cluster().version, 0);
    assert_eq!(*trio.replica(3).node().adopt_members(&of_two).unwrap(), cluster);
    trio.crash(3, CrashKind::PowerCut);
    assert_eq!(*trio.replica(3).node().cluster(), cluster);
    // The ones before them were: these are not yet.
    let error = trio.replica(3).node().change_members(&[1, 3, 4]).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::NotInForce { version: 1, .. })), "{error}");
    // An older set changes nothing.
    let of_old =
        Fenced { cluster: Cluster { version: 0, ..cluster.clone() }.into(), in_force: Some(0), ..of_two };
    assert_eq!(*trio.replica(3).node().adopt_members(&of_old).unwrap(), cluster);
}

/// Four nodes; the first leads, and all have heard that an entry is agreed.
fn four() -> [Replica; 4] {
    let four = Cluster::new(ClusterId(0xc1), [1, 2, 3, 4]);
    let make =
        |number: u32| Replica::create(SimEnv::new(number.into()), "/db", options(), &four, number).unwrap();
    let nodes = [1, 2, 3, 4].map(make);
    let promises = [0, 1, 2, 3].map(|at| nodes[at].fence(1, Some(1)).unwrap());
    nodes[0].appoint(1, &promises).unwrap();
    nodes[0].flush().unwrap();
    for _ in 0..2 {
        for node in &nodes[1..] {
            let last = node.positions().entries.last.index;
            let message = nodes[0].append_after(node.number(), last).unwrap().unwrap();
            nodes[0].acknowledged(&node.append(&message).unwrap()).unwrap();
        }
    }
    nodes
}

/// Of four members two go to one set of three, and two to another one: two are a majority of each, and no leader is appointed. Three of four decide.
#[test]
fn two_operators_do_not_get_a_leader_each() {
    let nodes = four();
    let fence = |at: usize, term: u64, nominee: u32| nodes[at].fence(term, Some(nominee)).unwrap();
    let change = |at: usize, members: &[u32]| nodes[at].node().change_members(members).unwrap();
    change(0, &[1, 2, 4]);
    change(3, &[1, 2, 4]);
    change(2, &[1, 2, 3]);
    nodes[0].reopen().unwrap();
    let promises = [fence(0, 10, 1), fence(3, 10, 1)];
    let error = nodes[0].appoint(10, &promises).unwrap_err();
    assert!(matches!(error, NodeError::NoMajorityBefore { fenced: 2, .. }), "{error}");
    assert!(error.to_string().contains("[1, 2, 3, 4]"), "{error}");
    change(1, &[1, 2, 4]);
    let promises = [0, 1, 3].map(|at| fence(at, 11, 1));
    nodes[0].appoint(11, &promises).unwrap();
    // Once an entry is agreed two are enough.
    nodes[0].flush().unwrap();
    let last = nodes[3].positions().entries.last.index;
    let message = nodes[0].append_after(4, last).unwrap().unwrap();
    assert!(nodes[0].acknowledged(&nodes[3].append(&message).unwrap()).unwrap());
    nodes[0].reopen().unwrap();
    let promises = [fence(0, 12, 1), fence(3, 12, 1)];
    nodes[0].appoint(12, &promises).unwrap();
}

fn two(number: u32) -> Replica {
    let cluster = Cluster::new(ClusterId(0xc1), [1, 2]);
    Replica::create(SimEnv::new(number.into()), "/db", options(), &cluster, number).unwrap()
}

/// Of two members one goes: both have the set of one, and the one that goes leads no more.
#[test]
fn a_member_that_is_removed_counts_for_the_members_before() {
    let (one, two) = (two(1), two(2));
    let fence = |term, nominee| [&one, &two].map(|node| node.fence(term, Some(nominee)).unwrap());
    one.appoint(1, &fence(1, 1)).unwrap();
    one.flush().unwrap();
    for _ in 0..2 {
        let last = two.positions().entries.last.index;
        let message = one.append_after(2, last).unwrap().unwrap();
        one.acknowledged(&two.append(&message).unwrap()).unwrap();
    }
    one.node().change_members(&[1]).unwrap();
    one.reopen().unwrap();
    let error = one.appoint(2, &fence(2, 1)[..1]).unwrap_err();
    assert!(matches!(error, NodeError::NoMajorityBefore { fenced: 1, .. }), "{error}");
    two.node().change_members(&[1]).unwrap();
    let error = two.appoint(3, &fence(3, 2)).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::Members { node: 2, .. })), "{error}");
    one.appoint(4, &fence(4, 1)).unwrap();
    one.flush().unwrap();
    let at = one.positions().entries;
    assert_eq!((at.agreed.index, at.last.term), (at.last.index, 4), "alone it is a majority");
    // From then on it needs no other.
    one.reopen().unwrap();
    one.appoint(5, &[one.fence(5, Some(1)).unwrap()]).unwrap();
}

/// Node 1 leads a set of three after four, and is lost once one of the others has acknowledged: these two are a majority that has heard of it.
#[test]
fn the_first_leader_of_new_members_may_be_lost() {
    let nodes = four();
    let fence = |at: usize, term: u64, nominee: u32| nodes[at].fence(term, Some(nominee)).unwrap();
    let send = |to: usize| {
        let last = nodes[to].positions().entries.last.index;
        let message = nodes[0].append_after(to as u32 + 1, last).unwrap().unwrap();
        nodes[0].acknowledged(&nodes[to].append(&message).unwrap()).unwrap()
    };
    for at in [0, 1, 3] {
        nodes[at].node().change_members(&[1, 2, 4]).unwrap();
    }
    nodes[0].reopen().unwrap();
    let promises = [0, 1, 3].map(|at| fence(at, 2, 1));
    nodes[0].appoint(2, &promises).unwrap();
    nodes[0].flush().unwrap();
    assert!(send(1), "two of three have it");
    // Node 3 was removed, and node 1 is gone.
    let promises = [fence(1, 3, 2), fence(3, 3, 2)];
    assert_eq!((promises[0].is_settled, promises[1].is_settled), (true, false));
    nodes[1].appoint(3, &promises).unwrap();
}

/// Node 3 went to another set than the others, which theirs wins: it takes that of their word, once it is in force.
#[test]
fn a_node_with_other_members_takes_those_that_are_in_force() {
    let nodes = four();
    let fence = |at: usize, term: u64, nominee: u32| nodes[at].fence(term, Some(nominee)).unwrap();
    for at in [0, 1, 3] {
        nodes[at].node().change_members(&[1, 2, 3, 4, 5]).unwrap();
    }
    nodes[2].node().change_members(&[1, 2, 3, 4, 6]).unwrap();
    nodes[0].reopen().unwrap();
    let promises = [0, 1, 3].map(|at| fence(at, 2, 1));
    nodes[2].node().adopt_members(&promises[1]).unwrap();
    assert_eq!(nodes[2].node().cluster().members, [1, 2, 3, 4, 6], "nothing says which of them is");
    nodes[0].appoint(2, &promises).unwrap();
    nodes[0].flush().unwrap();
    for _ in 0..2 {
        for to in [1, 3] {
            let last = nodes[to].positions().entries.last.index;
            let message = nodes[0].append_after(to as u32 + 1, last).unwrap().unwrap();
            nodes[0].acknowledged(&nodes[to].append(&message).unwrap()).unwrap();
        }
    }
    nodes[2].node().adopt_members(&fence(1, 3, 2)).unwrap();
    assert_eq!(nodes[2].node().cluster().members, [1, 2, 3, 4, 5]);
}

/// Node 4 was added and leads, and node 3 does not know it: it was away, or went to another operator's members.
#[test]
fn a_node_takes_the_members_of_a_leader_that_it_does_not_know() {
    for other in [None, Some([1, 2, 3, 5])] {
        let trio = led();
        trio.replicate(1, &[2, 3]);
        let (four, copy) = ([1, 2, 3, 4], trio.envs[1].crash(CrashKind::Kill, 3));
        for number in [1, 2] {
            trio.replica(number).node().change_members(&four).unwrap();
        }
        if let Some(other) = other {
            trio.replica(3).node().change_members(&other).unwrap();
        }
        let set = Cluster { members: four.into(), previous: vec![1, 2, 3], version: 1, ..cluster() };
        let joined = Replica::join(shared(&copy), "/db", options(), &set, 4).unwrap();
        let nodes = [trio.replica(1), trio.replica(2), &joined];
        joined.appoint(9, &nodes.map(|node| node.fence(9, Some(4)).unwrap())).unwrap();
        joined.flush().unwrap();
        let message = |to: u32| joined.append_after(to, 2).unwrap().unwrap();
        let error = trio.replica(3).append(&message(3)).unwrap_err();
        assert!(matches!(error, NodeError::Misdirected { node: 3, sent: (4, 3) }), "{error}");
        for number in [1, 2] {
            if number == 1 {
                trio.replica(1).reopen().unwrap();
            }
            let last = trio.replica(number).positions().entries.last.index;
            let message = joined.append_after(number, last).unwrap().unwrap();
            joined.acknowledged(&trio.replica(number).append(&message).unwrap()).unwrap();
        }
        // For another node it says nothing.
        let mut misdirected = message(3);
        misdirected.envelope.to = 2;
        assert!(matches!(trio.replica(3).append(&misdirected), Err(NodeError::Misdirected { .. })));
        assert_ne!(*trio.replica(3).node().cluster(), set);
        trio.replica(3).append(&message(3)).unwrap();
        assert_eq!(*trio.replica(3).node().cluster(), set);
        assert!(trio.replica(3).node().lives().iter().any(|life| life.node == 4), "its life is remembered");
    }
}

/// Node 2 is removed, whose word counts for the members before, and an older copy of its directory comes in its place. The others know its later life yet,
/// also after a start, and where they go to another operator's members, of which it is one.
#[test]
fn a_member_that_is_removed_does_not_count_as_an_older_copy() {
    let mut trio = led();
    trio.replicate(1, &[2, 3]);
    let mut copy = trio.envs[1].crash(CrashKind::Kill, 5);
    trio.crash(2, CrashKind::PowerCut);
    put(&trio.db(1), "k", "new").unwrap();
    trio.replicate(1, &[2, 3]);
    let later = trio.replica(2).node().life();
    start_copy(&mut trio, &mut copy);
    for number in [1, 2, 3] {
        trio.replica(number).node().change_members(&[1, 3]).unwrap();
    }
    for term in [9, 10] {
        trio.crash(1, CrashKind::PowerCut);
        let promises = [1, 2, 3].map(|number| fence(&trio, number, term, 1).unwrap());
        let error = trio.replica(1).appoint(term, &promises).unwrap_err();
        assert!(matches!(error, NodeError::PastLife { known, .. } if known == later), "{error}");
    }
    let other = Cluster { version: 1, members: vec![1, 2], previous: vec![1, 2, 3], ..cluster() };
    let word = Fenced { cluster: other.clone().into(), in_force: Some(1), ..fence(&trio, 3, 11, 1).unwrap() };
    assert_eq!(*trio.replica(1).node().adopt_members(&word).unwrap(), other);
    assert!(trio.replica(1).node().lives().contains(&later), "it was forgotten");
}

/// A leader that has other members already counts those with which it was appointed, and remembers their lives before. The life of a node that was a member of a set that
/// did not come into force is none of a later one with its number.
#[test]
fn a_leader_remembers_the_lives_of_those_that_it_counts() {
    let mut trio = led();
    trio.replicate(1, &[2, 3]);
    trio.replica(1).node().change_members(&[1, 3]).unwrap();
    trio.crash(2, CrashKind::PowerCut);
    put(&trio.db(1), "k", "v").unwrap();
    trio.replicate(1, &[2]);
    assert_eq!(get(&trio.db(1), "k").as_deref(), Some("v"), "node 2 counts");
    let later = trio.replica(2).node().life();
    trio.crash(1, CrashKind::PowerCut);
    assert!(trio.replica(1).node().lives().contains(&later));

    let node = trio.replica(3).node();
    let set = |members: &[u32]| Cluster {
        version: 1,
        members: members.into(),
        previous: vec![1, 2, 3],
        ..cluster()
    };
    let four = Life { node: 4, directory: 7, start: 1, nonce: 7 };
    let word = |cluster: Cluster, in_force, lives: Vec<Life>| Fenced {
        cluster: cluster.into(),
        in_force,
        lives,
        ..fence(&trio, 2, 20 + in_force.unwrap_or(0), 1).unwrap()
    };
    node.adopt_members(&word(set(&[1, 2, 3, 4]), Some(0), vec![four])).unwrap();
    node.adopt_members(&word(set(&[1, 2, 3, 5]), Some(1), Vec::new())).unwrap();
    assert_eq!(node.cluster().members, [1, 2, 3, 5]);
    assert!(node.lives().iter().all(|life| life.node != 4));
}

/// Another node was there with the number of a new one, as the copy knows: nothing was changed.
#[test]
fn no_new_node_gets_a_number_that_was_used() {
    let trio = led();
    trio.replicate(1, &[2, 3]);
    for number in [1, 2] {
        trio.replica(number).node().change_members(&[1, 2]).unwrap();
    }
    let copy = trio.envs[0].crash(CrashKind::Kill, 3);
    let again = Cluster { members: vec![1, 2, 3], previous: vec![1, 2], version: 2, ..cluster() };
    let error = Replica::join(shared(&copy), "/db", options(), &again, 3).unwrap_err();
    assert!(matches!(error, NodeError::Term(TermError::UsedNumber { node: 3, .. })), "{error}");
    assert!(error.to_string().contains("a number that none had"), "{error}");
    let four = Cluster { members: vec![1, 2, 4], ..again };
    Replica::join(shared(&copy), "/db", options(), &four, 4).unwrap();
}

/// Node 4 was a member of a set that did not come into force, and becomes one again: what was heard of it before is remembered again before it counts.
#[test]
fn a_life_that_was_forgotten_meanwhile_is_remembered_again() {
    let trio = led();
    trio.replicate(1, &[2, 3]);
    let node = trio.replica(3).node();
    let set = |version, members: &[u32], previous: &[u32]| Cluster {
        version,
        members: members.into(),
        previous: previous.into(),
        ..cluster()
    };
    let send = |cluster: &Cluster| {
        let mut message = trio.replica(1).append_after(3, 0).unwrap().unwrap();
        message.cluster = std::sync::Arc::new(cluster.clone());
        let life = Life { node: 4, directory: 7, start: 1, nonce: 7 };
        message.lives = vec![fulgurite_replication::Lived { life, nonces: vec![7].into() }];
        trio.replica(3).append(&message).unwrap();
    };
    let knows = || trio.replica(3).node().lives().iter().any(|life| life.node == 4);
    for (version, members, previous, expected) in [
        (1, &[1, 2, 3, 4][..], &[1, 2, 3][..], true),
        (2, &[1, 2, 3], &[1, 2, 3, 4], true),
        (3, &[1, 2, 3, 5], &[1, 2, 3], false),
        (4, &[1, 2, 3, 4, 5], &[1, 2, 3, 5], true),
    ] {
        // It takes the members of the first, and what is said of them of the second.
        (0..2).for_each(|_| send(&set(version, members, previous)));
        assert_eq!((node.cluster().version, knows()), (version, expected), "version {version}");
    }
}

/// What another node says of a life is no proof that it continues the one that is remembered: an older copy may have been started more often.
#[test]
fn what_others_have_heard_does_not_replace_a_life_that_is_known() {
    let mut trio = led();
    let known = |trio: &Trio, of: u32| {
        trio.replica(1).node().lives().into_iter().find(|life| life.node == of).expect("it was heard")
    };
    let before = known(&trio, 3);
    trio.replica(1).reopen().unwrap();
    trio.term = 9;
    let mut promises = [1, 2].map(|number| fence(&trio, number, 9, 1).unwrap());
    promises[1].lives = vec![fulgurite_replication::Life { start: before.start + 5, nonce: 1, ..before }];
    trio.replica(1).appoint(9, &promises).unwrap();
    assert_eq!(known(&trio, 3), before);
    trio.replicate(1, &[2, 3]);
}
