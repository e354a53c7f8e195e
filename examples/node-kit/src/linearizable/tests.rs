//! Known histories, and small ones against every order there is.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::history::{Call, Outcome};

fn put(value: &str) -> Call {
    Call::Put { value: value.into() }
}

fn cas(expected: Option<&str>, value: &str) -> Call {
    Call::Cas { expected: expected.map(Into::into), value: value.into() }
}

fn found(value: &str) -> Outcome {
    Outcome::Found(Some(value.into()))
}

fn at(invoked: u64, returned: u64, call: Call, outcome: Outcome) -> Entry {
    Entry { returned: Some(returned), outcome: Some(outcome), ..open(invoked, call) }
}

fn open(invoked: u64, call: Call) -> Entry {
    Entry { client: 1, key: "k".into(), call, invoked, returned: None, outcome: None }
}

fn judge(entries: impl Into<Vec<Entry>>) -> Report {
    check(&History { entries: entries.into() }).unwrap()
}

fn is_linearizable(entries: impl Into<Vec<Entry>>) -> bool {
    judge(entries).is_linearizable()
}

use Outcome::{Applied, Done, Found};

#[test]
fn calls_one_after_the_other_have_their_own_order() {
    assert!(is_linearizable([]));
    assert!(is_linearizable([
        at(0, 1, Call::Get, Found(None)),
        at(2, 3, put("a"), Done),
        at(4, 5, cas(Some("a"), "b"), Applied(true)),
        at(6, 7, cas(Some("a"), "c"), found("b")),
        at(8, 9, Call::Delete, Applied(true)),
        at(10, 11, Call::Delete, Applied(false)),
        at(12, 13, put("d"), Found(None)),
        at(14, 15, Call::Get, found("d")),
    ]));
}

#[test]
fn a_read_of_an_old_value_is_named_with_the_write_it_missed() {
    let old = [at(0, 1, put("a"), Done), at(2, 3, put("b"), Done), at(4, 5, Call::Get, found("a"))];
    let report = judge(old.clone());
    let [violation] = &report.violations[..] else { panic!("{report}") };
    assert_eq!((&violation.stuck[..], &violation.ordered[..]), (&old[..], &[][..]));
    let text = report.to_string();
    assert!(text.contains("key k: 0 calls in order lead to nothing"), "{text}");
    // The read may come first if the second write overlaps it.
    let [a, b, read] = old;
    assert!(is_linearizable([a, Entry { returned: Some(6), ..b }, read]));
}

#[test]
fn two_reads_may_not_see_two_writes_in_two_orders() {
    let writes = [at(0, 20, put("a"), Done), at(1, 21, put("b"), Done)];
    let read = |at_time, value| at(at_time, at_time + 1, Call::Get, found(value));
    let [a, b] = writes;
    assert!(is_linearizable([a.clone(), b.clone(), read(3, "a"), read(5, "b")]));
    assert!(!is_linearizable([a, b, read(3, "a"), read(5, "b"), read(7, "a")]));
}

#[test]
fn a_call_of_unknown_outcome_may_come_late_or_never() {
    assert!(is_linearizable([open(0, put("a")), at(1, 2, Call::Get, Found(None))]));
    assert!(is_linearizable([
        open(0, put("a")),
        at(1, 2, Call::Get, Found(None)),
        at(3, 4, Call::Get, found("a")),
    ]));
    // It comes once.
    assert!(!is_linearizable([
        open(0, put("a")),
        at(1, 2, Call::Get, found("a")),
        at(3, 4, put("b"), Done),
        at(5, 6, Call::Get, found("a")),
    ]));
    // And not before it was made.
    assert!(!is_linearizable([at(0, 1, Call::Get, found("a")), open(2, put("a"))]));
}

#[test]
fn of_two_swaps_one_is_applied() {
    let swap = |value: &str, applied| at(1, 10, cas(None, value), Applied(applied));
    assert!(is_linearizable([swap("a", true), swap("b", false)]));
    assert!(!is_linearizable([swap("a", true), swap("b", true)]));
    assert!(!is_linearizable([swap("a", false), swap("b", false)]));
}

#[test]
fn keys_are_judged_apart() {
    let other = |entry: Entry| Entry { key: "other".into(), ..entry };
    let lost = other(at(2, 3, Call::Get, Found(None)));
    let report = judge([at(0, 1, put("a"), Done), lost.clone()]);
    assert_eq!((report.keys, report.is_linearizable()), (2, true));
    let report = judge([other(at(0, 1, put("a"), Done)), lost, at(0, 1, put("a"), Done)]);
    let keys: Vec<&str> = report.violations.iter().map(|violation| &violation.key[..]).collect();
    assert_eq!(keys, ["other"]);
}

#[test]
fn an_entry_that_contradicts_itself_is_refused() {
    for wrong in [
        at(1, 1, put("a"), Done),
        at(1, 2, Call::Get, Done),
        at(1, 2, put("a"), Applied(true)),
        at(1, 2, cas(Some("a"), "b"), found("a")),
        Entry { outcome: Some(Done), ..open(1, put("a")) },
    ] {
        let history = History { entries: vec![open(0, Call::Get), wrong] };
        let error = check(&history).unwrap_err();
        assert!(matches!(error, HistoryError::Contradiction { index: 1, .. }), "{error}");
    }
}

/// A history of one key as it comes about: clients take turns by a seeded lot, and a call takes
/// effect between its beginning and its end.
fn run_of(
    clients: u64,
    calls: u64,
    mut seed: u64,
    call_of: impl Fn(u64, u64) -> Call,
) -> Vec<Entry> {
    let mut lot = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let (mut value, mut entries): (Option<String>, Vec<Entry>) = (None, Vec::new());
    let mut under_way: Vec<Option<usize>> = vec![None; usize::try_from(clients).unwrap()];
    let mut stamp = 0;
    while (entries.len() as u64) < calls || under_way.iter().any(Option::is_some) {
        let client = usize::try_from(lot(clients)).unwrap();
        stamp += 1;
        match under_way[client] {
            None if (entries.len() as u64) < calls => {
                under_way[client] = Some(entries.len());
                let call = call_of(entries.len() as u64, lot(1000));
                entries.push(Entry { client: client as u64, ..open(stamp, call) });
            }
            None => {}
            Some(index) if entries[index].outcome.is_none() => {
                entries[index].outcome = Some(apply(&entries[index].call, &mut value));
            }
            Some(index) => {
                under_way[client] = None;
                entries[index].returned = Some(stamp);
                // Some answers are lost.
                if lot(500) == 0 {
                    (entries[index].returned, entries[index].outcome) = (None, None);
                }
            }
        }
    }
    entries
}

fn apply(call: &Call, value: &mut Option<String>) -> Outcome {
    match call {
        Call::Get => Found(value.clone()),
        Call::Put { value: new } => {
            *value = Some(new.clone());
            Done
        }
        Call::Delete => Applied(value.take().is_some()),
        Call::Cas { expected, value: new } if value == expected => {
            *value = Some(new.clone());
            Applied(true)
        }
        Call::Cas { .. } => Found(value.clone()),
    }
}

/// Half reads, half writes of values of their own.
fn reads_and_writes(index: u64, lot: u64) -> Call {
    if lot < 500 { Call::Get } else { put(&index.to_string()) }
}

/// All kinds of calls on three values.
fn everything(_: u64, lot: u64) -> Call {
    let value = |lot: u64| ["a", "b", "c"][usize::try_from(lot % 3).unwrap()];
    match lot % 10 {
        0..4 => Call::Get,
        4..6 => put(value(lot / 10)),
        6 => Call::Delete,
        _ => cas(Some(value(lot / 10)), value(lot / 30)),
    }
}

#[test]
fn a_hundred_thousand_calls_of_one_key_are_judged() {
    let mut entries = run_of(64, 100_000, 1, reads_and_writes);
    assert!(is_linearizable(entries.clone()));
    // A stale read in the middle: of the first value that anybody read.
    let is_read = |entry: &&Entry| matches!(entry.outcome, Some(Found(Some(_))));
    let first = entries.iter().find(is_read).unwrap().outcome.clone();
    let middle = entries.iter().skip(50_000).position(|entry| is_read(&entry)).unwrap() + 50_000;
    entries[middle].outcome = first;
    let report = judge(entries.clone());
    let [violation] = &report.violations[..] else { panic!("{report}") };
    assert!(violation.stuck.contains(&entries[middle]), "{violation}");
    assert!(violation.stuck.len() < 140, "{violation}");
}

#[test]
fn calls_of_few_values_are_judged() {
    for seed in 0..20 {
        assert!(is_linearizable(run_of(8, 2_000, seed, everything)), "seed {seed}");
    }
}

/// Tries every order of every subset that has all calls that returned.
fn brute_force(entries: &[Entry]) -> bool {
    fn extend(entries: &[Entry], placed: &mut Vec<usize>, value: &Option<String>) -> bool {
        let left = |index: &usize| !placed.contains(index);
        let indices: Vec<usize> = (0..entries.len()).filter(left).collect();
        if indices.iter().all(|&index| entries[index].returned.is_none()) {
            return true;
        }
        indices.iter().any(|&index| {
            let precedes = |other: &usize| {
                entries[*other].returned.is_some_and(|returned| returned < entries[index].invoked)
            };
            let mut value = value.clone();
            if indices.iter().any(precedes) || !agrees(&entries[index], &mut value) {
                return false;
            }
            placed.push(index);
            let fits = extend(entries, placed, &value);
            placed.pop();
            fits
        })
    }
    extend(entries, &mut Vec::new(), &None)
}

/// Applies a call, if its outcome is what it would be.
fn agrees(entry: &Entry, value: &mut Option<String>) -> bool {
    let before = value.clone();
    let outcome = apply(&entry.call, value);
    match (&entry.call, &entry.outcome) {
        (_, None) => true,
        (Call::Put { .. } | Call::Delete, Some(Done)) => true,
        (Call::Put { .. } | Call::Delete, Some(Found(found))) => *found == before,
        (Call::Cas { .. }, Some(Applied(false))) => matches!(outcome, Found(_)),
        (_, Some(told)) => *told == outcome,
    }
}

/// A call with an outcome that may or may not fit.
fn some_entry() -> impl Strategy<Value = Entry> {
    let value = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let maybe = || prop::option::of(value()).prop_map(|value| value.map(String::from));
    let any_found = || maybe().prop_map(Found);
    let answered = prop_oneof![
        4 => any_found().prop_map(|outcome| (Call::Get, Some(outcome))),
        4 => value().prop_map(|value| (put(value), Some(Done))),
        1 => (value(), any_found()).prop_map(|(value, found)| (put(value), Some(found))),
        1 => value().prop_map(|value| (put(value), None)),
        1 => any::<bool>().prop_map(|applied| (Call::Delete, Some(Applied(applied)))),
        1 => Just((Call::Delete, Some(Done))),
        1 => Just((Call::Delete, None)),
        2 => (maybe(), value(), prop::option::of(any::<bool>())).prop_map(
            |(expected, value, applied)| (cas(expected.as_deref(), value), applied.map(Applied))
        ),
        1 => (maybe(), value(), any_found()).prop_map(|(expected, value, found)| {
            let is_same = Found(expected.clone()) == found;
            let outcome = if is_same { Applied(true) } else { found };
            (cas(expected.as_deref(), value), Some(outcome))
        }),
    ];
    (answered, 0..12_u64, 1..8_u64).prop_map(|((call, outcome), invoked, length)| Entry {
        returned: outcome.as_ref().map(|_| invoked + length),
        outcome,
        ..open(invoked, call)
    })
}

/// Each value is written by one call, which is when the search commits itself.
fn with_values_of_their_own(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut seen = Vec::new();
    entries.retain(|entry| match &entry.call {
        Call::Put { value } | Call::Cas { value, .. } => {
            let is_new = !seen.contains(value);
            seen.push(value.clone());
            is_new
        }
        Call::Get => true,
        Call::Delete => false,
    });
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn small_histories_are_judged_as_by_every_order(entries in vec(some_entry(), 1..7)) {
        prop_assert_eq!(is_linearizable(entries.clone()), brute_force(&entries));
    }

    #[test]
    fn so_are_those_with_values_of_their_own(entries in vec(some_entry(), 1..10)) {
        let entries = with_values_of_their_own(entries);
        prop_assert_eq!(is_linearizable(entries.clone()), brute_force(&entries));
    }

    #[test]
    fn so_are_those_that_came_about_with_one_answer_changed(
        seed in any::<u64>(),
        own in any::<bool>(),
        changed in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let call_of = if own { reads_and_writes } else { everything };
        let mut entries = run_of(3, 8, seed, call_of);
        if let Some((to, from)) = changed {
            let outcome = from.get(&entries).outcome.clone();
            let to = to.index(entries.len());
            if matches!(entries[to].call, Call::Get) && matches!(outcome, Some(Found(_))) {
                entries[to].returned.get_or_insert(u64::MAX);
                entries[to].outcome = outcome;
            }
        } else {
            prop_assert!(is_linearizable(entries.clone()));
        }
        prop_assert_eq!(is_linearizable(entries.clone()), brute_force(&entries));
    }
}
