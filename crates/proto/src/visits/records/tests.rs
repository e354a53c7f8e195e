use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::id::{Incarnation, NodeId, NodeLife};
use crate::limits::Limits;
use crate::link::PeerName;
use crate::share::Shares;
use crate::task::Branch;
use crate::visits::origins::Origins;

/// Maker of records: the indices that they need.
struct Maker {
    origin: OriginIndex,
    payer: PeerIndex,
}

impl Maker {
    fn new() -> Self {
        let node = NodeId::new(1);
        let payer = Shares::new(&Limits::default(), 1).connect(PeerName::Node(node));
        let life = Incarnation::of_random(1 << 8);
        let origin = Origins::default().insert(NodeLife { node, life }, payer);
        Self { origin, payer }
    }

    fn record(&self, (seq, task, key): Name, since: Timestamp, is_over: bool) -> Record {
        let Self { origin, payer } = *self;
        let state = if is_over { over() } else { running(&task, key) };
        let (link, forget_at) = (LinkId::LOCAL, Timestamp::MAX);
        Record {
            seq,
            task,
            key,
            origin,
            link,
            payer,
            since,
            forget_at,
            waiting_bytes: 0,
            request_bytes: 0,
            state,
        }
    }
}

fn over() -> State {
    State::Over(Over::Answered(ReplyPath::Nowhere, None))
}

fn running(task: &TaskKey, key: Key) -> State {
    let times = (Timestamp::MAX, Timestamp::MAX);
    let limits = Limits::default();
    State::Running(Box::new(Task::new((task.clone(), key), times, None, Vec::new(), &limits)))
}

fn name(seq: u64, index: u32, key: u64) -> Name {
    (seq, TaskKey { path: Path::root().child(index).unwrap(), hop: 0 }, Key(key))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

#[derive(Clone, Debug)]
enum Step {
    Insert { is_over: bool },
    End,
    Remove,
    Drain { len: u64, key: Option<u64> },
    DropFront { len: u64 },
    Age { back: u64 },
}

fn steps() -> impl Strategy<Value = Vec<(Step, Name)>> {
    let step = prop_oneof![
        8 => any::<bool>().prop_map(|is_over| Step::Insert { is_over }),
        3 => Just(Step::End),
        3 => Just(Step::Remove),
        1 => (0..20_u64, prop::option::of(1..3_u64))
            .prop_map(|(len, key)| Step::Drain { len, key }),
        1 => (0..20_u64).prop_map(|len| Step::DropFront { len }),
        1 => (0..10_u64).prop_map(|back| Step::Age { back }),
    ];
    // The lowest key there is and the lowest number, too.
    let name = (0..24_u64, 0..3_u32, 0..3_u64).prop_map(|(seq, index, key)| name(seq, index, key));
    vec((step, name), 0..120)
}

/// Model of the records: when each came, and whether it is over.
type Model = BTreeMap<Name, (Timestamp, bool)>;

fn check(records: &Records, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!((records.len(), records.is_empty()), (model.len(), model.is_empty()));
    prop_assert_eq!(records.iter().count(), model.len());
    for (name, (since, is_over)) in model {
        let record = records.get(by(name));
        prop_assert!(record.is_some(), "{:?} is not there", name);
        let record = record.unwrap();
        prop_assert_eq!((record.name(), record.since), (name.clone(), *since));
        prop_assert_eq!((record.is_over(), record.is_running()), (*is_over, !*is_over));
    }
    for seq in 0..26 {
        let mut of_call: Vec<Name> = records.of_call(seq).map(Record::name).collect();
        of_call.sort_unstable();
        let expected = model.keys().filter(|(of, _, _)| *of == seq).cloned();
        prop_assert_eq!(of_call, expected.collect::<Vec<_>>());
        for path in (0..3).map(|index| name(seq, index, 0).1.path) {
            let of_branch = records.of_branch(seq, path.clone()).map(Record::name);
            let mut of_branch: Vec<Name> = of_branch.collect();
            of_branch.sort_unstable();
            let expected = model.keys().filter(|(of, task, _)| *of == seq && task.path == path);
            prop_assert_eq!(of_branch, expected.cloned().collect::<Vec<_>>());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_are_a_map_by_name(steps in steps()) {
        let (maker, mut records, mut model) = (Maker::new(), Records::default(), Model::new());
        for (now, (step, name)) in (0..).zip(steps) {
            match step {
                Step::Insert { .. } if model.contains_key(&name) => {}
                Step::Insert { is_over } => {
                    records.insert(maker.record(name.clone(), at(now), is_over));
                    model.insert(name, (at(now), is_over));
                }
                Step::End => {
                    let (there, expected) = (records.get_mut(by(&name)), model.get_mut(&name));
                    prop_assert_eq!(there.is_some(), expected.is_some());
                    if let (Some(record), Some((_, is_over))) = (there, expected) {
                        record.state = over();
                        *is_over = true;
                    }
                }
                Step::Remove => {
                    let (taken, expected) = (records.remove(&name), model.remove(&name));
                    prop_assert_eq!(taken.is_some(), expected.is_some());
                    prop_assert!(taken.is_none_or(|record| record.name() == name));
                }
                Step::Drain { len, key } => {
                    let range = (name.0, name.0 + len);
                    let is_meant = |of: Key| key.is_none_or(|key| of == Key(key));
                    let mut drained = Vec::new();
                    let act = |record: Record| drained.push(record.name());
                    records.drain_over(range, |record| is_meant(record.key), act);
                    drained.sort_unstable();
                    let mut expected = Vec::new();
                    model.retain(|name, (_, is_over)| {
                        let is_within = (range.0..range.1).contains(&name.0);
                        let goes = is_within && *is_over && is_meant(name.2);
                        if goes {
                            expected.push(name.clone());
                        }
                        !goes
                    });
                    prop_assert_eq!(drained, expected);
                }
                Step::DropFront { len } => {
                    let range = (name.0, name.0 + len);
                    let recent: Vec<Name> = records.recent.iter().map(Record::name).collect();
                    let mut dropped = Vec::new();
                    let act = |record: &Record| dropped.push(record.name());
                    records.drop_front_over(range, |record| record.key != Key(0), act);
                    let is_meant = |name: &Name| {
                        (range.0..range.1).contains(&name.0) && name.2 != Key(0) && model[name].1
                    };
                    let there = recent.into_iter().filter(|name| model.contains_key(name));
                    let expected: Vec<Name> = there.take_while(is_meant).collect();
                    prop_assert_eq!(&dropped, &expected);
                    dropped.iter().for_each(|name| _ = model.remove(name));
                }
                Step::Age { back } => {
                    let limit = at(now.saturating_sub(back));
                    let mut aged = Vec::new();
                    records.age(|since| since <= limit, |name| aged.push(name));
                    let is_old =
                        |name: &Name| model.get(name).is_some_and(|(since, _)| *since <= limit);
                    prop_assert!(aged.iter().all(is_old), "{:?} by {:?}", aged, limit);
                    prop_assert!(records.oldest_recent().is_none_or(|since| since > limit));
                }
            }
            check(&records, &model)?;
        }
    }

    /// A number from which nothing is held below may be lower than the first, never higher.
    #[test]
    fn nothing_is_kept_below_the_first_number(steps in steps()) {
        let (maker, mut records) = (Maker::new(), Records::default());
        for (now, (step, name)) in (0..).zip(steps) {
            match step {
                Step::Insert { is_over } if records.get(by(&name)).is_none() => {
                    records.insert(maker.record(name, at(now), is_over));
                }
                Step::Age { back } => {
                    let limit = at(now.saturating_sub(back));
                    records.age(|since| since <= limit, |_| ());
                }
                Step::Remove => drop(records.remove(&name)),
                _ => {}
            }
            let lowest = records.iter().map(|record| record.seq).min();
            let first = records.first_seq();
            prop_assert!(lowest.is_none_or(|lowest| first.is_some_and(|first| first <= lowest)));
        }
    }

    /// Records that come in order and leave in order take no more room than what is there.
    #[test]
    fn a_ring_that_is_emptied_in_order_keeps_no_places(count in 1..200_u64) {
        let (maker, mut records) = (Maker::new(), Records::default());
        for seq in 0..count {
            records.insert(maker.record(name(seq, 0, 1), at(seq), true));
        }
        // The one that stays longest holds the places of all behind it.
        (1..count).for_each(|seq| assert!(records.remove(&name(seq, 0, 1)).is_some()));
        prop_assert_eq!(records.len(), 1);
        prop_assert!(records.remove(&name(0, 0, 1)).is_some());
        prop_assert_eq!((records.recent.len(), records.gone, records.first_seq()), (0, 0, None));
    }
}

#[test]
fn one_old_record_does_not_make_the_ring_span_what_came_since() {
    let (maker, mut records) = (Maker::new(), Records::default());
    records.insert(maker.record(name(1, 0, 1), at(0), false));
    let mut aged = Vec::new();
    for seq in 2..1_000 {
        records.insert(maker.record(name(seq, 0, 1), at(seq), true));
        records.remove(&name(seq, 0, 1));
        records.age(|since| since <= at(seq.saturating_sub(50)), |name| aged.push(name));
        assert!(records.recent.len() <= 52, "{}", records.recent.len());
    }
    assert_eq!((aged, records.len()), (vec![name(1, 0, 1)], 1));
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [1]);
}

/// Those of one call come in the order of their indices, and not of their names.
#[test]
fn many_records_of_one_call_move_few_others() {
    let (maker, mut records) = (Maker::new(), Records::default());
    let names: Vec<Name> = (0..10_000).map(|index| name(7, index, 1)).collect();
    let mut old = 0;
    for name in &names {
        let is_old = records.insert(maker.record(name.clone(), at(0), false));
        assert_eq!(is_old, records.old.contains_key(name));
        old = records.old.len();
    }
    assert!(old > names.len() / 10 * 9, "{} in the ring", records.recent.len());
    assert_eq!(records.of_call(7).count(), names.len());
    assert!(names.iter().all(|name| records.get(by(name)).is_some()));
    for name in &names {
        records.get_mut(by(name)).unwrap().state = over();
        assert_eq!(records.remove(name).map(|record| record.name()), Some(name.clone()));
    }
    assert!(records.is_empty());
}

#[test]
fn the_entry_and_the_branches_of_a_task_are_those_it_had() {
    let task = TaskKey { path: "/0".parse().unwrap(), hop: 2 };
    let mut record = Maker::new().record((7, task.clone(), Key(3)), at(0), false);
    let node = NodeId::new(5);
    {
        let running = record.running().unwrap();
        let (method, payload) = (crate::id::MethodId(1), crate::encoded::Encoded::default());
        let branch = Branch { to: node, method, payload, extensions: Vec::new(), deadline: None };
        running.delegate(branch).unwrap();
        running.finish();
        assert!(matches!(Over::of(running), Over::Tailed(child) if child.node == node));
    }
    assert!(record.is_tailed() && record.entry().is_none());
    let branches: Vec<_> = record.branches().map(|(task, key, _)| (task, key)).collect();
    assert_eq!(branches, [(TaskKey { hop: 3, ..task.clone() }, Key(3))], "a tail keeps the key");
    let below = TaskKey { path: "/0/1".parse().unwrap(), hop: 0 };
    assert_eq!(record.towards(&below, Key(3).child(1)).map(|child| child.node), Some(node));
    assert_eq!(record.towards(&below, Key(3).child(0)), None, "with the key of another branch");
    assert!(record.is_above(&task, Key(3)) && !record.is_above(&task, Key(4)));
}
