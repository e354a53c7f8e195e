use proptest::prelude::*;

use super::*;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn task(text: &str, hop: u32) -> TaskKey {
    TaskKey { path: path(text), hop }
}

fn holder(node: u64) -> Holder {
    Holder { node: NodeId::new(node), relay: None }
}

/// A tree with these root branches.
fn tree(roots: &[&str]) -> Tree {
    let mut tree = Tree::new(roots.len(), 100);
    for root in roots {
        tree.ensure(&path(root)).unwrap();
    }
    tree
}

#[test]
fn a_reply_before_its_entry_is_counted_once() {
    let mut tree = tree(&["/0"]);
    assert_eq!(tree.receive(&path("/0"), 0), Ok(true));
    assert_eq!(tree.receive(&path("/0"), 0), Ok(false));
    assert_eq!((tree.open(), tree.missing()), (1, 0));
    assert_eq!(tree.close(&task("/0", 0), 0, 2), Ok(true));
    assert_eq!((tree.open(), tree.missing()), (0, 1));
    assert_eq!(tree.receive(&path("/0"), 1), Ok(true));
    assert!(tree.is_complete());
    assert!(tree.get(&path("/0")).is_none(), "it is drained");
}

/// Seed 25 of the simulated liars: each of the four thousand millions was looked for.
#[test]
fn as_many_children_are_given_up_as_there_are() {
    let mut tree = tree(&["/0", "/1"]);
    for below in ["/0/0", "/0/2", "/0/2/1", "/1/0"] {
        tree.ensure(&path(below)).unwrap();
    }
    tree.give_up_children(&path("/0"), 1);
    let given_up = |tree: &Tree| {
        let all = tree.iter().filter(|(_, branch)| branch.state == BranchState::GivenUp);
        all.map(|(path, _)| path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(given_up(&tree), ["/0/0"]);
    tree.give_up_children(&path("/0"), u32::MAX);
    assert_eq!(given_up(&tree), ["/0/0", "/0/2", "/0/2/1"]);
}

#[test]
fn an_entry_opens_its_children_before_it_closes() {
    let mut tree = tree(&["/0"]);
    tree.close(&task("/0", 0), 3, 0).unwrap();
    assert_eq!((tree.open(), tree.missing()), (3, 0));
}

#[test]
fn a_frame_from_deep_below_opens_all_its_ancestors() {
    let mut tree = Tree::new(1, 100);
    tree.ensure(&path("/2/1/0")).unwrap();
    assert_eq!(tree.open(), 3);
    assert!(tree.get(&path("/2/1")).is_some());
}

#[test]
fn a_silent_task_closes_its_branch_and_owes_nothing() {
    let mut tree = tree(&["/0"]);
    tree.close(&task("/0", 0), 0, 0).unwrap();
    assert!(tree.is_complete());
    assert_eq!(tree.ensure(&path("/0")).map(|branch| branch.is_some()), Ok(false));
}

#[test]
fn a_stale_hop_neither_closes_a_branch_nor_moves_it_back() {
    let mut tree = tree(&["/0"]);
    assert_eq!(tree.hold(&task("/0", 2), holder(3)), Ok(true));
    assert_eq!(tree.hold(&task("/0", 1), holder(2)), Ok(false));
    assert_eq!(tree.close(&task("/0", 1), 0, 5), Ok(false));
    let branch = tree.get(&path("/0")).unwrap();
    assert_eq!((branch.hop, branch.holder), (2, Some(holder(3))));
    assert_eq!(branch.state, BranchState::Open);
}

/// Holder and hop are a pair: an entry of a later hop says nothing of who held the branch before,
/// and that one, when asked, leads on.
#[test]
fn an_entry_of_a_later_hop_leaves_the_holder_with_its_own_hop() {
    let mut tree = tree(&["/0"]);
    tree.hold(&task("/0", 0), holder(1)).unwrap();
    tree.close(&task("/0", 2), 0, 1).unwrap();
    let branch = tree.get(&path("/0")).unwrap();
    assert_eq!((branch.hop, branch.holder), (0, Some(holder(1))));
    assert_eq!(tree.hold(&task("/0", 2), holder(3)), Ok(true));
}

#[test]
fn a_task_that_is_heard_of_is_spoken_to_the_way_it_came() {
    let mut tree = tree(&["/0"]);
    tree.hold(&task("/0", 0), holder(1)).unwrap();
    let relayed = Holder { relay: Some(NodeId::new(9)), ..holder(1) };
    assert_eq!(tree.hear(&task("/0", 0), relayed), Ok(false));
    assert_eq!(tree.get(&path("/0")).unwrap().holder, Some(relayed));
}

#[test]
fn two_different_entries_of_one_task_contradict_each_other() {
    let mut tree = tree(&["/0"]);
    tree.close(&task("/0", 0), 1, 1).unwrap();
    assert_eq!(tree.close(&task("/0", 0), 1, 1), Ok(false));
    assert_eq!(tree.close(&task("/0", 0), 2, 1), Err(TreeFault::Contradiction));
}

#[test]
fn an_index_beyond_what_was_declared_is_a_contradiction() {
    let mut tree = tree(&["/0"]);
    tree.close(&task("/0", 0), 1, 1).unwrap();
    assert_eq!(tree.receive(&path("/0"), 1), Err(TreeFault::Contradiction));
    assert_eq!(tree.ensure(&path("/0/1")).map(|_| ()), Err(TreeFault::Contradiction));
    let mut early = Tree::new(1, 100);
    early.ensure(&path("/0/3")).unwrap();
    assert_eq!(early.close(&task("/0", 0), 3, 0), Err(TreeFault::Contradiction));
}

#[test]
fn a_failure_owes_nothing_but_its_known_branches_still_count() {
    let mut tree = tree(&["/0"]);
    assert_eq!(tree.fail_with_children(&task("/0", 0), 2), Ok(true));
    assert_eq!(tree.fail_with_children(&task("/0", 0), 2), Ok(false));
    assert_eq!((tree.open(), tree.missing()), (2, 0));
    tree.close(&task("/0/0", 0), 0, 0).unwrap();
    tree.close(&task("/0/1", 0), 0, 0).unwrap();
    assert!(tree.is_complete());
}

#[test]
fn a_settled_branch_cannot_fail() {
    let mut tree = tree(&["/0"]);
    tree.close(&task("/0", 0), 1, 0).unwrap();
    assert!(!tree.fail(&path("/0")));
}

#[test]
fn a_subtree_that_is_given_up_is_not_waited_for_and_does_not_come_back() {
    let mut tree = tree(&["/0", "/1"]);
    tree.ensure(&path("/0/0/0")).unwrap();
    tree.give_up(&path("/0"));
    assert_eq!((tree.open(), tree.missing(), tree.unsaid()), (1, 0, 4));
    for below in ["/0/0", "/0/0/0", "/0/7/1"] {
        tree.ensure(&path(below)).unwrap();
        assert_eq!(tree.open(), 1, "{below}");
        assert_eq!(tree.get(&path(below)).unwrap().state, BranchState::GivenUp);
    }
    assert_eq!(tree.recount(), (1, 0, 6));
}

#[test]
fn what_is_given_up_still_says_its_word() {
    let mut tree = tree(&["/0"]);
    tree.ensure(&path("/0/0")).unwrap();
    tree.give_up(&path("/0"));
    assert!(tree.is_complete());
    assert_eq!(tree.close(&task("/0", 0), 2, 1), Ok(false));
    assert_eq!((tree.unsaid(), tree.is_complete()), (2, true), "/0/0 and /0/1 run on");
    assert_eq!(tree.fail_with_children(&task("/0/0", 0), 0), Ok(false));
    assert_eq!(tree.close(&task("/0/1", 0), 0, 0), Ok(false));
    assert_eq!(tree.recount(), (0, 0, 0));
}

#[test]
fn a_guess_is_no_word_until_the_task_says_one() {
    let mut tree = tree(&["/0", "/1"]);
    assert!(tree.fail(&path("/0")));
    assert_eq!((tree.open(), tree.unsaid()), (1, 2));
    assert_eq!(tree.close(&task("/0", 0), 1, 3), Ok(false), "the failure that was told stays");
    assert_eq!((tree.open(), tree.unsaid()), (1, 2), "its branch is known by name alone");
    assert_eq!(tree.get(&path("/0")).unwrap().state, BranchState::Failed);
    assert_eq!(tree.get(&path("/0/0")).unwrap().state, BranchState::Named);
    assert_eq!(tree.close(&task("/0/0", 0), 0, 0), Ok(false));
    assert_eq!((tree.open(), tree.unsaid()), (1, 1));
    tree.rule_out(&path("/1"));
    tree.rule_out(&path("/1"));
    assert_eq!((tree.open(), tree.unsaid()), (1, 0));
    assert_eq!(tree.recount(), (1, 0, 0));
}

#[test]
fn the_word_of_an_earlier_hop_is_no_word_of_the_branch() {
    let mut tree = tree(&["/0"]);
    tree.hold(&task("/0", 1), holder(2)).unwrap();
    assert!(tree.fail(&path("/0")));
    assert_eq!(tree.fail_with_children(&task("/0", 0), 0), Ok(false));
    assert_eq!(tree.unsaid(), 1);
    assert_eq!(tree.close(&task("/0", 1), 0, 1), Ok(false));
    assert_eq!(tree.unsaid(), 0);
}

#[test]
fn a_named_branch_is_open_once_it_is_heard_of() {
    let mut tree = tree(&["/0"]);
    tree.fail(&path("/0"));
    tree.close(&task("/0", 0), 2, 0).unwrap();
    assert_eq!((tree.open(), tree.unsaid()), (0, 2));
    tree.ensure(&path("/0/1")).unwrap();
    assert_eq!((tree.open(), tree.unsaid()), (1, 2));
    tree.close(&task("/0/1", 0), 0, 0).unwrap();
    assert_eq!(tree.recount(), (0, 0, 1));
}

#[test]
fn who_sent_a_branch_somewhere_names_its_holder() {
    let mut tree = tree(&["/0"]);
    let (said, other) = (NodeId::new(3), NodeId::new(4));
    tree.hold(&task("/0", 1), holder(3)).unwrap();
    tree.hear(&task("/0", 1), holder(4)).unwrap();
    let branch = tree.get(&path("/0")).unwrap();
    assert!(branch.is_named(1, said) && !branch.is_named(1, other) && !branch.is_named(0, said));
}

/// T10: each of several root branches takes at most what is still free.
#[test]
fn one_root_branch_leaves_room_for_the_others() {
    let mut tree = Tree::new(3, 100);
    for root in ["/0", "/1", "/2"] {
        tree.ensure(&path(root)).unwrap();
    }
    assert_eq!(tree.close(&task("/0", 0), 100, 0), Err(TreeFault::TooManyBranches));
    let greedy = tree.branch_count();
    assert!((50..=53).contains(&greedy), "{greedy}");
    assert_eq!(tree.close(&task("/1", 0), 20, 0), Ok(true));
    assert_eq!(tree.close(&task("/2", 0), 10, 0), Ok(true));
    assert_eq!((tree.open(), tree.missing(), tree.unsaid()), tree.recount());
}

#[test]
fn the_number_of_branches_is_bounded() {
    let mut tree = Tree::new(1, 3);
    tree.ensure(&path("/0")).unwrap();
    assert_eq!(tree.close(&task("/0", 0), 1_000_000, 0), Err(TreeFault::TooManyBranches));
    assert!(tree.branch_count() <= 3);
}

/// Facts that the frames of a finished tree say, one each.
#[derive(Clone, Debug)]
enum Fact {
    Entry(TaskKey, u32, u32),
    Reply(Path, u32),
}

/// Every fact of a random tree of up to three levels.
fn facts() -> impl Strategy<Value = Vec<Fact>> {
    let level = || prop::collection::vec((0_u32..3, 0_u32..3), 30);
    (1_u32..3, level()).prop_map(|(roots, shape)| {
        let mut facts = Vec::new();
        let mut todo: Vec<Path> = (0..roots).map(|i| Path::root().child(i).unwrap()).collect();
        let mut shape = shape.into_iter();
        while let Some(at) = todo.pop() {
            let (mut children, replies) = shape.next().unwrap_or((0, 1));
            if at.level_count() >= 3 {
                children = 0;
            }
            todo.extend((0..children).map(|index| at.child(index).unwrap()));
            facts.extend((0..replies).map(|index| Fact::Reply(at.clone(), index)));
            facts.push(Fact::Entry(TaskKey { path: at, hop: 0 }, children, replies));
        }
        facts
    })
}

fn apply(tree: &mut Tree, fact: &Fact) {
    match fact {
        Fact::Entry(task, children, replies) => {
            tree.close(task, *children, *replies).unwrap();
        }
        Fact::Reply(path, index) => {
            if tree.ensure(path).unwrap().is_some() {
                tree.receive(path, *index).unwrap();
            }
        }
    }
}

fn state(tree: &Tree) -> String {
    format!("{tree:?}")
}

fn with_roots(facts: &[Fact]) -> Tree {
    let mut tree = Tree::new(2, 1_000);
    for fact in facts {
        if let Fact::Entry(task, ..) = fact
            && task.path.level_count() == 1
        {
            tree.ensure(&task.path).unwrap();
        }
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// I1, I7, I16: in any order, complete exactly with the last fact, and counted right all the
    /// way.
    #[test]
    fn a_tree_is_complete_with_its_last_fact_in_any_order(
        facts in facts().prop_shuffle(),
    ) {
        let mut tree = with_roots(&facts);
        for (index, fact) in facts.iter().enumerate() {
            prop_assert!(!tree.is_complete(), "complete before fact {index} of {}", facts.len());
            apply(&mut tree, fact);
            prop_assert_eq!((tree.open(), tree.missing(), tree.unsaid()), tree.recount());
        }
        prop_assert!(tree.is_complete());
        prop_assert_eq!(tree.iter().count(), 0, "everything is drained");
    }

    /// I6: any fact twice is the fact once.
    #[test]
    fn a_fact_twice_is_a_fact_once(
        facts in facts().prop_shuffle(),
        twice in prop::collection::vec(any::<bool>(), 200),
    ) {
        let (mut once, mut doubled) = (with_roots(&facts), with_roots(&facts));
        for (fact, again) in facts.iter().zip(twice) {
            apply(&mut once, fact);
            apply(&mut doubled, fact);
            if again {
                apply(&mut doubled, fact);
            }
            prop_assert_eq!(state(&once), state(&doubled));
        }
    }
}
