use super::*;
use crate::wire::{Forward, Life};

fn op(seq: u64) -> OpId {
    OpId { source: Site(2), life: Life(1), seq }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn payload(len: usize) -> Payload {
    Payload::cut(Bytes::from(vec![0; len]))
}

fn sites(sites: &[u16]) -> SiteSet {
    sites.iter().copied().map(Site).collect()
}

fn fetches() -> Fetches {
    Fetches::new(&Limits { fetches_max: 8, fetch_rounds: 2, ..Limits::default() })
}

#[test]
fn the_last_operations_are_kept_up_to_the_bounds() {
    let limits = Limits { held_bytes_max: 1_000, held_max: 3, ..Limits::default() };
    let mut held = Holdings::new(&limits);
    for seq in 0..5 {
        held.insert(op(seq), payload(100));
        assert!(held.bytes() <= 300);
    }
    assert!(held.find(op(1)).is_none() && held.find(op(2)).is_some());
    held.insert(op(9), payload(950));
    assert!(held.find(op(4)).is_none() && held.find(op(9)).is_some());
    held.insert(op(10), payload(2_000));
    assert_eq!(held.bytes(), 0, "one that does not fit alone is not kept");
}

/// Empty ones count as much as others: either bound is filled by one source.
#[test]
fn one_source_displaces_only_what_is_its_own_beyond_its_share() {
    let of = |source: u16, seq| OpId { source: Site(source), ..op(seq) };
    for len in [0, 10] {
        let limits = Limits { held_bytes_max: 1_000, held_max: 30, ..Limits::default() };
        let mut held = Holdings::new(&limits);
        for seq in 0..10 {
            held.insert(of(1, seq), payload(40));
        }
        for seq in 0..1_000 {
            held.insert(of(2, seq), payload(len));
        }
        assert!((0..10).all(|seq| held.find(of(1, seq)).is_some()));
        assert!(held.find(of(2, 999)).is_some() && held.find(of(2, 0)).is_none());
        for seq in 10..100 {
            held.insert(of(1, seq), payload(40));
        }
        let kept = (0..1_000).filter(|seq| held.find(of(2, *seq)).is_some()).count();
        assert!(kept >= 15, "{kept}");
    }
}

#[test]
fn an_operation_is_found_by_any_of_its_chunks_and_released_by_its_source() {
    let mut held = Holdings::new(&Limits::default());
    held.insert(op(5), payload(70_000));
    held.insert(OpId { source: Site(3), ..op(0) }, payload(1));
    for (seq, is_there) in [(4, false), (5, true), (7, true), (8, false)] {
        assert_eq!(held.find(op(seq)).map(|(id, _)| id), is_there.then_some(op(5)));
    }
    held.release(op(6));
    assert!(held.find(op(5)).is_none());
    assert_eq!(held.bytes(), 1);
}

#[test]
fn holders_are_asked_in_turn_the_source_first_until_all_rounds_are_over() {
    let mut fetches = fetches();
    assert!(fetches.start(at(0), op(7), false) && fetches.start(at(0), op(7), false));
    let up = sites(&[0, 1]);
    assert_eq!(fetches.poll(at(0), up, &|_| true), Some(Step::Ask(op(7), Site(0))));
    assert_eq!(fetches.poll(at(999), up, &|_| true), None);
    assert_eq!(fetches.poll(at(1_000), up, &|_| true), Some(Step::Ask(op(7), Site(1))));
    fetches.on_have_not(at(1_010), op(7), 8, Site(0));
    assert_eq!(fetches.poll(at(1_010), up, &|_| true), None, "it was not asked last");
    fetches.on_have_not(at(1_020), op(7), 8, Site(1));
    assert_eq!(fetches.poll(at(1_020), up, &|_| true), None, "the second round begins later");
    assert_eq!(fetches.poll(at(2_020), up, &|_| true), Some(Step::Ask(op(7), Site(0))));
    fetches.on_have_not(at(2_030), op(7), 8, Site(0));
    assert_eq!(fetches.poll(at(2_030), up, &|_| true), Some(Step::Ask(op(7), Site(1))));
    fetches.on_have_not(at(2_040), op(7), 8, Site(1));
    assert_eq!(
        fetches.poll(at(2_040), up, &|_| true),
        Some(Step::Unavailable { op: op(7), until: 8, is_pull: false })
    );
    assert_eq!((fetches.len(), fetches.poll_timeout()), (0, None));
}

/// Its source is the one that knows: others are asked once it has nothing, or says nothing.
#[test]
fn a_source_that_is_reached_is_asked_alone_while_it_may_answer() {
    for is_denied in [true, false] {
        let mut fetches = fetches();
        assert!(fetches.start(at(0), op(7), false));
        let up = sites(&[0, 2]);
        for second in 0..30 {
            let now = at(1_000 * second);
            assert_eq!(fetches.poll(now, up, &|_| true), Some(Step::Ask(op(7), Site(2))));
        }
        let now = at(if is_denied { 29_001 } else { 30_000 });
        if is_denied {
            fetches.on_have_not(now, op(7), 8, Site(2));
        }
        assert_eq!(fetches.poll(now, up, &|_| true), Some(Step::Ask(op(7), Site(0))));
        // It is back.
        let mut again = self::fetches();
        assert!(again.start(at(0), op(7), true));
        assert_eq!(again.poll(at(0), sites(&[0]), &|_| true), Some(Step::Ask(op(7), Site(0))));
        assert_eq!(again.poll(at(1_000), up, &|_| true), Some(Step::Ask(op(7), Site(2))));
        // It does not owe it any more.
        assert_eq!(again.poll(at(2_000), up, &|_| false), None, "the second round begins later");
        assert_eq!(again.poll(at(3_000), up, &|_| false), Some(Step::Ask(op(7), Site(2))));
        assert_eq!(again.poll(at(4_000), up, &|_| false), Some(Step::Ask(op(7), Site(0))));
    }
}

/// One fills the room with what it never completes.
#[test]
fn what_one_makes_up_leaves_room_for_what_others_bring() {
    let limits =
        Limits { reorder_bytes_max: 100_000, payload_bytes_max: 100_000, ..Limits::default() };
    let mut fetches = Fetches::new(&limits);
    let up = sites(&[0, 1]);
    (0..30).for_each(|seq| assert!(fetches.start(at(0), op(seq), true)));
    while fetches.poll(at(0), up, &|_| true).is_some() {}
    while fetches.poll(at(1_000), up, &|_| true).is_some() {}
    let chunk = |seq, index: u32, count| Data {
        op: op(seq),
        index,
        count,
        epoch: 0,
        forward: Forward::Nobody,
        is_repair: true,
        is_body: false,
        payload: Bytes::from(vec![0; 32 << 10]),
    };
    for seq in (0..30).step_by(2) {
        let taken = fetches.take(at(1_001), Site(0), chunk(seq, 0, 2), &[]);
        assert!(taken.expect("it is right").is_none());
    }
    let other = fetches.take(at(1_001), Site(0), chunk(1, 0, 2), &[]);
    assert_eq!(other.err(), Some(Fault::Chunks { op: op(1) }), "it has said another thing");
    for seq in (0..30).step_by(3) {
        for index in 0..3 {
            let taken = fetches.take(at(1_002), Site(1), chunk(seq, index, 3), &[]);
            assert_eq!(taken.expect("it is right").is_some(), index == 2, "{seq}");
        }
    }
    assert!(fetches.answers.values().map(|it| it.bytes).sum::<usize>() <= 200_000);
}

/// A site that comes back after long has missed more than it could ask for one by one.
#[test]
fn what_all_say_that_they_do_not_have_is_not_asked_for_again_when_it_was_pulled() {
    let mut fetches = fetches();
    assert!(fetches.start(at(0), op(7), true) && fetches.start(at(0), op(8), true));
    let up = sites(&[0, 2]);
    for holder in [2, 0] {
        assert_eq!(fetches.poll(at(0), up, &|_| true), Some(Step::Ask(op(7), Site(holder))));
        fetches.on_have_not(at(0), op(7), 100 + u64::from(holder), Site(holder));
    }
    let gone = |seq| Some(Step::Unavailable { op: op(seq), until: 100, is_pull: true });
    assert_eq!(
        [fetches.poll(at(0), up, &|_| true), fetches.poll(at(0), up, &|_| true)],
        [gone(7), gone(8)]
    );
}

/// All its links may be down for a moment: nobody has said that there is nothing.
#[test]
fn what_nobody_could_be_asked_for_is_not_hopeless() {
    let mut fetches = fetches();
    assert!(fetches.start(at(0), op(7), true));
    assert_eq!(fetches.poll(at(0), SiteSet::EMPTY, &|_| true), None);
    assert_eq!(fetches.poll(at(1_000), sites(&[0]), &|_| true), Some(Step::Ask(op(7), Site(0))));
}

#[test]
fn no_more_is_asked_for_at_once_than_may_be() {
    let mut fetches = fetches();
    let mut start = |source: u16, seqs: std::ops::Range<u64>, is_pull| {
        let op = |seq| OpId { source: Site(source), ..op(seq) };
        seqs.filter(|seq| fetches.start(at(0), op(*seq), is_pull)).count()
    };
    assert_eq!(start(2, 0..9, true), 2, "half of the half for pulls");
    assert_eq!(start(1, 0..9, true), 1, "half of what that leaves");
    assert_eq!([start(2, 10..19, false), start(1, 10..19, false)], [2, 1], "the user's half");
    assert_eq!(start(2, 0..2, true), 2, "they are asked for already");
    fetches.cancel_pulls(op(0), 1);
    assert!(fetches.start(at(0), op(5), true) && !fetches.start(at(0), op(6), true));
    fetches.cancel_pulls(op(0), 99);
    assert_eq!(fetches.len(), 4, "what the user wants is not cancelled, nor what is of others");
}

#[test]
fn an_operation_that_no_stream_brings_is_put_together_once() {
    let mut fetches = fetches();
    let payload = payload(70_000);
    let chunk = |index: u32| Data {
        op: op(4),
        index,
        count: 3,
        epoch: 0,
        forward: Forward::Nobody,
        is_repair: true,
        is_body: false,
        payload: payload.chunks()[index as usize].clone(),
    };
    let holder = Site(0);
    assert!(
        fetches.take_own(at(0), holder, chunk(0)).expect("it is right").is_none(),
        "nobody wants it"
    );
    // Asked for by a chunk in the middle: nobody here knows where it begins.
    assert!(fetches.start(at(0), op(5), false));
    assert!(fetches.wants(op(4), 3) && !fetches.wants(op(4), 1));
    let up = SiteSet::EMPTY.with(holder);
    assert!(!fetches.asks(op(4), 3, holder), "nobody was asked yet");
    assert_eq!(fetches.poll(at(0), up, &|_| true), Some(Step::Ask(op(5), holder)));
    assert!(fetches.asks(op(4), 3, holder) && !fetches.asks(op(4), 1, holder));
    assert!(!fetches.asks(op(4), 3, Site(3)));
    for index in [2, 0, 0] {
        assert!(fetches.take_own(at(1), holder, chunk(index)).expect("it is right").is_none());
    }
    let wrong = Data { count: 4, ..chunk(1) };
    assert_eq!(fetches.take_own(at(1), holder, wrong).err(), Some(Fault::Chunks { op: op(4) }));
    assert_eq!(&fetches.present(op(5), holder, Bytes::new())[..], &[5]);
    assert!(fetches.present(op(5), Site(1), Bytes::new()).is_empty(), "it has brought nothing");
    let (id, whole) =
        fetches.take_own(at(1), holder, chunk(1)).expect("it is right").expect("it is whole");
    assert_eq!((id, whole.len(), fetches.len()), (op(4), 70_000, 0));
    assert!(fetches.is_done(op(4)));
    fetches.start(at(2), op(4), false);
    (0..3).for_each(|index| {
        assert!(fetches.take_own(at(2), holder, chunk(index)).is_ok_and(|it| it.is_none()))
    });
}

/// One who answers many sends the last of it late. Who has said that it does not have it, or brings
/// nothing, is not waited for.
#[test]
fn a_round_in_which_those_who_may_have_it_bring_something_does_not_count() {
    let up = sites(&[0]);
    for (is_denied, brings, is_kept) in
        [(false, true, true), (true, true, false), (false, false, false)]
    {
        let mut fetches = fetches();
        assert!(fetches.start(at(0), op(7), false) && fetches.start(at(0), op(100), false));
        for second in 0..5 {
            while fetches.poll(at(1_000 * second), up, &|_| true).is_some() {}
            if is_denied {
                fetches.on_have_not(at(1_000 * second + 1), op(100), 101, Site(0));
            }
            if brings {
                fetches.on_progress(at(1_000 * second + 500), op(5), 3, Site(0));
            }
        }
        assert_eq!(fetches.wants(op(100), 1), is_kept, "{is_denied} {brings}");
        // Never for longer than a holder takes to send all that it keeps.
        for second in 5..550 {
            while fetches.poll(at(1_000 * second), up, &|_| true).is_some() {}
            fetches.on_progress(at(1_000 * second + 500), op(5), 3, Site(0));
            assert!(second > 536 || fetches.wants(op(100), 1) == is_kept, "{second}");
        }
        assert!(!fetches.wants(op(100), 1));
    }
}
