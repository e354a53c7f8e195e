//! Properties of every system, tried over all sets of a few members.

use proptest::prelude::*;

use super::*;

type System = Box<dyn QuorumSystem>;

fn members(count: usize) -> Vec<NodeId> {
    (1..=count as u64).map(NodeId::new).collect()
}

fn all_sets(count: usize) -> impl Iterator<Item = MemberSet> {
    (0..1_u32 << count).map(move |bits| (0..count).filter(|i| bits >> i & 1 == 1).collect())
}

/// Systems whose quorums must meet, and in how many members.
fn meeting(count: usize, weights: &[u32]) -> Vec<(System, usize)> {
    let nodes = members(count);
    let faulty = (count - 1) / 3;
    let weights: Vec<_> = nodes.iter().copied().zip(weights.iter().copied()).collect();
    let mut systems: Vec<(System, usize)> = vec![
        (Box::new(Majority), 1),
        (Box::new(All), count),
        (Box::new(Threshold(count / 2 + 1)), 1),
        (Box::new(Byzantine { faulty }), faulty + 1),
        (Box::new(Weighted::majority(weights)), 1),
    ];
    let columns = (1..=count).filter(|columns| count.is_multiple_of(*columns));
    systems.extend(columns.map(|columns| (Box::new(Grid { columns }) as System, 1)));
    systems
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn any_two_quorums_have_as_many_members_in_common_as_promised(
        count in 1_usize..7, weights in prop::collection::vec(1_u32..10, 7),
    ) {
        let nodes = members(count);
        for (system, common) in meeting(count, &weights) {
            prop_assert_eq!(system.check(&nodes), Ok(()));
            let quorums: Vec<_> = all_sets(count).filter(|set| system.is_quorum(&nodes, set)).collect();
            prop_assert!(!quorums.is_empty());
            for (a, b) in quorums.iter().flat_map(|a| quorums.iter().map(move |b| (a, b))) {
                prop_assert!(a.intersection(b).len() >= common, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn a_set_with_a_quorum_in_it_is_one(
        count in 1_usize..7, weights in prop::collection::vec(1_u32..10, 7), k in 1_usize..7,
    ) {
        let nodes = members(count);
        let mut systems = meeting(count, &weights);
        systems.push((Box::new(First), 0));
        systems.push((Box::new(Threshold(k.min(count))), 0));
        for (system, _) in systems {
            for set in all_sets(count).filter(|set| system.is_quorum(&nodes, set)) {
                prop_assert!(set.len() >= system.fewest(count));
                for more in 0..count {
                    let larger = set.union(&[more].into_iter().collect());
                    prop_assert!(system.is_quorum(&nodes, &larger));
                }
            }
        }
    }
}

#[test]
fn a_majority_is_more_than_half() {
    assert_eq!([1, 2, 3, 4, 5].map(Majority::of), [1, 2, 2, 3, 3]);
}

#[test]
fn a_byzantine_quorum_is_of_the_known_sizes() {
    let sizes = [(4, 1, 3), (5, 1, 4), (7, 2, 5), (10, 3, 7), (3, 0, 2), (4, 0, 3)];
    for (count, faulty, size) in sizes {
        assert_eq!(Byzantine { faulty }.of(count), size, "{count} members, {faulty} faulty");
    }
    assert!(Byzantine { faulty: usize::MAX }.of(4) > 4, "no members are one");
}

#[test]
fn rules_that_do_not_fit_the_members_are_refused() {
    let nodes = members(4);
    assert_eq!(Threshold(0).check(&nodes), Err(Unsuitable::ThresholdZero));
    let too_high = Unsuitable::ThresholdTooHigh { threshold: 5, available: 4 };
    assert_eq!(Threshold(5).check(&nodes), Err(too_high));
    let too_many = Unsuitable::TooManyFaulty { faulty: 2, members: 4, needed: 7 };
    assert_eq!(Byzantine { faulty: 2 }.check(&nodes), Err(too_many));
    assert!(Byzantine { faulty: usize::MAX }.check(&nodes).is_err());
    let no_grid = |columns| Err(Unsuitable::NoGrid { members: 4, columns });
    assert_eq!(Grid { columns: 3 }.check(&nodes), no_grid(3));
    assert_eq!(Grid { columns: 0 }.check(&nodes), no_grid(0));
    let strangers = [(NodeId::new(9), 3)];
    let too_heavy = Unsuitable::ThresholdTooHigh { threshold: 2, available: 0 };
    assert_eq!(Weighted::majority(strangers).check(&nodes), Err(too_heavy));
    assert_eq!(Weighted::at_least(0, strangers).check(&nodes), Err(Unsuitable::ThresholdZero));
    let systems: [System; 7] = [
        Box::new(First),
        Box::new(Majority),
        Box::new(All),
        Box::new(Threshold(1)),
        Box::new(Byzantine { faulty: 0 }),
        Box::new(Weighted::majority(strangers)),
        Box::new(Grid { columns: 1 }),
    ];
    assert!(systems.iter().all(|system| system.check(&[]) == Err(Unsuitable::NoMembers)));
}

#[test]
fn a_grid_takes_a_whole_row_and_one_of_each_other() {
    let (nodes, grid) = (members(6), Grid { columns: 3 });
    let is_quorum = |indices: &[usize]| grid.is_quorum(&nodes, &indices.iter().copied().collect());
    assert!(is_quorum(&[0, 1, 2, 4]) && is_quorum(&[2, 3, 4, 5]));
    assert!(!is_quorum(&[0, 1, 2]) && !is_quorum(&[0, 1, 3, 4]));
}
