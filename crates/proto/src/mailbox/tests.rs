use bytes::Bytes;
use proptest::prelude::*;

use super::mail::SENDERS_MAX;
use super::*;
use crate::id::Incarnation;
use crate::wire::Digest;

const NOW: Timestamp = Timestamp::ZERO;

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn cast(phase: u16, len: usize) -> Cast {
    let payload = Bytes::from(vec![0; len]);
    let (epoch, digest) = (0, Digest::ZERO);
    Cast {
        about: About::Tag { view: 0 },
        phase,
        sender: 0,
        epoch,
        budget_us: 1_000_000,
        digest,
        is_carried: false,
        payload,
    }
}

fn call(seq: u64) -> MailKey {
    let origin = NodeLife { node: node(9), life: Incarnation(1 << 8) };
    MailKey::Call(CallName { origin, seq })
}

fn tag(view: u64, sequence: u64) -> MailKey {
    MailKey::Tag(Tag { space: 7, view, sequence })
}

fn mailboxes(limits: &Limits) -> Mailboxes {
    Mailboxes::new(limits, 1)
}

fn post(mailboxes: &mut Mailboxes, from: u64, key: MailKey, cast: Cast) {
    mailboxes.handle_cast(NOW, (node(from), true), key, cast, 0);
}

fn take(mailboxes: &mut Mailboxes, key: MailKey) -> Vec<u64> {
    let mut casts = Vec::new();
    mailboxes.take(key, &mut casts);
    casts.into_iter().map(|(from, _)| from.get()).collect()
}

#[test]
fn what_comes_early_waits_for_its_reader_in_order() {
    let mut mailboxes = mailboxes(&Limits::default());
    for from in [3, 1, 2] {
        post(&mut mailboxes, from, call(1), cast(0, 10));
    }
    assert!(take(&mut mailboxes, call(1)).is_empty(), "nobody has joined");
    assert_eq!(mailboxes.join(call(1)), Ok(()));
    assert_eq!(mailboxes.join(call(1)), Err(JoinRefusal::Taken));
    assert_eq!(take(&mut mailboxes, call(1)), [3, 1, 2]);
    assert_eq!((mailboxes.held_bytes(), mailboxes.poll_timeout()), (0, None));
}

#[test]
fn a_reader_is_told_once_when_as_many_wait_as_it_needs() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.join(call(1)).unwrap();
    assert!(!mailboxes.poll_waiting(call(1), 3));
    for from in 1..=6 {
        post(&mut mailboxes, from, call(1), cast(0, 0));
        let expected = (from == 3).then_some(MailReader::Mailbox(call(1)));
        assert_eq!(mailboxes.poll_ready(), expected, "after {from}");
    }
    assert!(mailboxes.poll_waiting(call(1), 6));
    assert_eq!(take(&mut mailboxes, call(1)).len(), 6);
    assert!(!mailboxes.poll_waiting(call(1), 1));
    mailboxes.tell_readers();
    assert_eq!(mailboxes.poll_ready(), Some(MailReader::Mailbox(call(1))));
    assert_eq!(mailboxes.poll_ready(), None);
}

#[test]
fn a_reader_is_told_of_the_ways_to_those_that_it_watches() {
    let mut mailboxes = mailboxes(&Limits::default());
    (1..=3).for_each(|seq| mailboxes.join(call(seq)).unwrap());
    mailboxes.watch(call(1), &[node(1), node(2)]);
    mailboxes.watch(call(2), &[node(3)]);
    mailboxes.open_space(7, 1, TWO, Some([node(2)].into())).unwrap();
    mailboxes.open_space(8, 1, TWO, Some([node(3)].into())).unwrap();
    let mut told = |id: u64, may_cast: bool| -> Vec<MailReader> {
        (1..=3).for_each(|seq| assert!(!mailboxes.poll_waiting(call(seq), 1)));
        (7..=8).for_each(|space| assert_eq!(mailboxes.poll_announced(space), None));
        mailboxes.tell_readers_of(node(id), may_cast);
        std::iter::from_fn(|| mailboxes.poll_ready()).collect()
    };
    let [first, second, third] = [1, 2, 3].map(|seq| MailReader::Mailbox(call(seq)));
    assert_eq!(told(2, true), [first, third, MailReader::Space(7)]);
    assert_eq!(told(3, true), [second, third, MailReader::Space(8)]);
    assert_eq!(told(4, true), [third], "it named nobody");
    assert_eq!(told(2, false), [first], "whoever has named it watches it, member or not");
    assert_eq!(told(4, false), []);
    mailboxes.tell_readers();
    assert_eq!([1, 2, 3].map(|seq| mailboxes.changes(call(seq))), [3, 2, 4]);
}

#[test]
fn a_closed_call_is_remembered_until_it_is_over_however_many_casts_come_late() {
    let mut mailboxes = mailboxes(&Limits::default());
    for seq in [1, 2] {
        mailboxes.join(call(seq)).unwrap();
        post(&mut mailboxes, 1, call(seq), cast(0, 10));
        mailboxes.close(NOW, call(seq), seq == 1);
        assert_eq!(mailboxes.join(call(seq)), Err(JoinRefusal::Closed));
    }
    (0..100).for_each(|_| post(&mut mailboxes, 2, call(1), cast(0, 10)));
    assert_eq!((mailboxes.count(), mailboxes.held_bytes(), mailboxes.dropped().late), (0, 0, 100));
    let at = mailboxes.poll_timeout().unwrap();
    assert!(!mailboxes.is_sweep_due(NOW) && mailboxes.is_sweep_due(at));
    mailboxes.sweep_calls(at, |name| name.seq == 1);
    assert_eq!(
        (mailboxes.join(call(1)), mailboxes.join(call(2))),
        (Ok(()), Err(JoinRefusal::Closed))
    );
    mailboxes.sweep_calls(at, |_| true);
    assert_eq!((mailboxes.closed_count(), mailboxes.poll_timeout()), (0, None));
}

#[test]
fn closed_calls_are_looked_at_once_there_are_twice_as_many() {
    let mut mailboxes = mailboxes(&Limits::default());
    let (mut sweeps, mut most) = (0, 0);
    for seq in 0..10_000 {
        mailboxes.join(call(seq)).unwrap();
        mailboxes.close(NOW, call(seq), true);
        if mailboxes.is_sweep_due(NOW) {
            // The last hundred are not settled yet.
            mailboxes.sweep_calls(NOW, |name| name.seq + 100 < seq);
            sweeps += 1;
        }
        most = most.max(mailboxes.closed_count());
    }
    assert!(sweeps < 100 && most < 300, "{sweeps} {most}");
}

#[test]
fn two_nodes_that_say_the_same_life_have_two_calls() {
    let mut mailboxes = mailboxes(&Limits::default());
    let MailKey::Call(name) = call(1) else { unreachable!("it is one") };
    let origin = NodeLife { node: node(8), ..name.origin };
    let other = MailKey::Call(CallName { origin, ..name });
    mailboxes.join(other).unwrap();
    post(&mut mailboxes, 1, other, cast(0, 0));
    assert_eq!(mailboxes.join(call(1)), Ok(()));
    assert!(take(&mut mailboxes, call(1)).is_empty());
}

#[test]
fn a_flood_of_one_member_leaves_room_for_the_others() {
    let limits = Limits { casts_max: 10, cast_bytes_total_max: 1 << 20, ..Limits::default() };
    let mut mailboxes = mailboxes(&limits);
    for seq in 0..10_000 {
        (0..20).for_each(|_| post(&mut mailboxes, 1, call(seq), cast(0, 0)));
    }
    let half = limits.cast_bytes_total_max / 2;
    assert!((half * 9 / 10..=half).contains(&mailboxes.held_bytes()), "half of it is its share");
    for other in 2..=4 {
        post(&mut mailboxes, other, call(5), cast(0, 0));
        post(&mut mailboxes, other, call(50_000), cast(0, 0));
    }
    mailboxes.join(call(5)).unwrap();
    mailboxes.join(call(50_000)).unwrap();
    assert_eq!(take(&mut mailboxes, call(5)).iter().filter(|from| **from > 1).count(), 3);
    assert_eq!(take(&mut mailboxes, call(50_000)), [2, 3, 4]);
    for _ in 0..50 {
        post(&mut mailboxes, 2, call(5), cast(0, 0));
        take(&mut mailboxes, call(5));
    }
    assert_eq!(take(&mut mailboxes, call(5)), [0; 0], "read ones count, too");
}

/// I41: whatever `n` greedy members did before, another gets its part.
#[test]
fn the_next_member_finds_room_beside_any_number_of_greedy_ones() {
    let limits = Limits { cast_bytes_total_max: 1 << 20, ..Limits::default() };
    let mut mailboxes = mailboxes(&limits);
    let mut free = limits.cast_bytes_total_max;
    for member in 1..=8 {
        let before = mailboxes.held_bytes();
        (0..20_000).for_each(|seq| post(&mut mailboxes, member, call(seq), cast(0, 0)));
        let taken = mailboxes.held_bytes() - before;
        assert!(taken * 2 + 2_000 > free, "{member}: {taken} of {free}");
        free -= taken;
    }
}

#[test]
fn each_cast_has_an_expiry_of_its_own() {
    let mut mailboxes = mailboxes(&Limits::default());
    let lasting = |seconds: u64| Cast { budget_us: seconds * 1_000_000, ..cast(0, 10) };
    for (from, seconds) in [(1, 1_u64), (2, 10), (3, 3), (4, 10), (5, 2)] {
        post(&mut mailboxes, from, tag(0, 1), lasting(seconds));
    }
    let at = |seconds| NOW + Duration::from_secs(seconds);
    for (seconds, expired) in [(1, 1), (2, 2), (3, 3)] {
        assert_eq!(mailboxes.poll_timeout(), Some(at(seconds)));
        mailboxes.handle_timeout(at(seconds));
        assert_eq!(mailboxes.dropped().expired, expired);
    }
    mailboxes.join(tag(0, 1)).unwrap();
    assert_eq!(take(&mut mailboxes, tag(0, 1)), [2, 4], "the short lives of others are theirs");
    assert_eq!((mailboxes.held_bytes(), mailboxes.poll_timeout()), (0, None));
}

/// Each look is at all that wait.
#[test]
fn casts_that_each_have_a_time_of_their_own_expire_together() {
    let mut mailboxes = mailboxes(&Limits::default());
    let lasting = |micros| Cast { budget_us: micros, ..cast(0, 0) };
    (0..1_000).for_each(|at| post(&mut mailboxes, 1, call(1), lasting(1_000_000 + at * 1_000)));
    let mut now = NOW;
    // One shortens it after each look.
    let mut looks = 0;
    while mailboxes.dropped().expired < 1_000 {
        now = mailboxes.poll_timeout().unwrap();
        mailboxes.handle_timeout(now);
        looks += 1;
        mailboxes.handle_cast(now, (node(2), true), call(1), lasting(1), 0);
    }
    assert_eq!((now, looks), (NOW + Duration::from_secs(2), 5));
}

/// A program that names ever others goes on to be heard of by those that it named last.
#[test]
fn of_more_members_than_are_remembered_the_last_are_heard() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.know((1..=65_536).map(node));
    mailboxes.know([node(1)]);
    mailboxes.know([node(70_000)]);
    let known = [1, 2, 3, 65_536, 70_000].map(|id| mailboxes.knows(node(id)));
    assert_eq!(known, [true, false, true, true, true]);
}

#[test]
fn strangers_leave_nothing_behind() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, Some([node(1), node(2)].into())).unwrap();
    let elsewhere = MailKey::Tag(Tag { space: 8, view: 0, sequence: 0 });
    for key in [call(1), tag(0, 1), elsewhere] {
        mailboxes.handle_cast(NOW, (node(3), false), key, cast(0, 1_000), 0);
    }
    assert_eq!((mailboxes.count(), mailboxes.held_bytes()), (0, 0));
    // One that is known may speak of calls and of spaces that are not open yet.
    for key in [call(1), tag(0, 1), elsewhere] {
        mailboxes.handle_cast(NOW, (node(3), true), key, cast(0, 0), 0);
    }
    assert_eq!((mailboxes.count(), mailboxes.dropped().strangers), (2, 4));
    assert!(mailboxes.knows(node(1)) && !mailboxes.knows(node(3)));
}

#[test]
fn a_value_is_worth_bringing_if_its_cast_would_be_kept() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, Some([node(1), node(2)].into())).unwrap();
    mailboxes.join(call(2)).unwrap();
    mailboxes.close(NOW, call(2), true);
    let mut is_worth = |from, is_known, key, epoch| {
        let cast = Cast { epoch, ..cast(0, 0) };
        mailboxes.would_keep((node(from), is_known), key, &cast, 5)
    };
    assert!(is_worth(1, false, tag(0, 1), 0) && is_worth(3, true, call(1), 5));
    assert!(!is_worth(3, true, tag(0, 1), 0) && !is_worth(3, false, call(1), 0));
    assert!(!is_worth(1, true, call(2), 0) && !is_worth(1, true, call(1), 4));
    let dropped = mailboxes.dropped();
    assert_eq!((dropped.strangers, dropped.late, dropped.stale_epoch), (2, 1, 1));
    assert_eq!((mailboxes.count(), mailboxes.held_bytes()), (0, 0));
}

/// The space and the window say so without the value.
#[test]
fn a_value_is_not_worth_bringing_if_its_cast_may_not_begin_its_mailbox() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 1, TWO, None).unwrap();
    mailboxes.join(tag(0, 9)).unwrap();
    mailboxes.close(NOW, tag(0, 9), true);
    post(&mut mailboxes, 1, tag(0, 1), cast(0, 0));
    let mut is_worth = |from, key, budget_us| {
        let cast = Cast { budget_us, ..cast(0, 0) };
        mailboxes.would_keep((node(from), true), key, &cast, 0)
    };
    assert!(is_worth(1, tag(0, 1), 0) && is_worth(2, tag(0, 2), 1));
    assert!(!is_worth(1, tag(0, 2), 1), "it has begun another");
    assert!(!is_worth(2, tag(0, 9), 1) && !is_worth(2, call(1), 0));
    let dropped = mailboxes.dropped();
    assert_eq!((dropped.over_limit, dropped.late, mailboxes.count()), (1, 2, 1));
}

#[test]
fn a_payload_does_not_keep_the_buffer_that_it_came_in() {
    let mut mailboxes = mailboxes(&Limits::default());
    let buffer = Bytes::from(vec![7; 64 << 10]);
    mailboxes.join(call(1)).unwrap();
    post(&mut mailboxes, 1, call(1), Cast { payload: buffer.slice(5..9), ..cast(0, 0) });
    assert!(buffer.is_unique());
    let mut casts = Vec::new();
    mailboxes.take(call(1), &mut casts);
    assert_eq!(&casts[0].1.payload[..], [7; 4]);
}

#[test]
fn casts_of_an_older_epoch_leave_nothing_behind() {
    let mut mailboxes = mailboxes(&Limits::default());
    for epoch in [0, 4, 5, 6] {
        mailboxes.handle_cast(NOW, (node(1), true), call(1), Cast { epoch, ..cast(0, 0) }, 5);
    }
    assert_eq!(mailboxes.dropped().stale_epoch, 1);
    mailboxes.join(call(1)).unwrap();
    assert_eq!(take(&mut mailboxes, call(1)).len(), 3, "none is no old one");
}

#[test]
fn a_cast_without_time_left_begins_nothing() {
    let mut mailboxes = mailboxes(&Limits::default());
    post(&mut mailboxes, 1, call(1), Cast { budget_us: 0, ..cast(0, 0) });
    assert_eq!((mailboxes.count(), mailboxes.dropped().late), (0, 1));
}

#[test]
fn the_number_of_senders_of_one_mailbox_is_bounded() {
    let mut mailboxes = mailboxes(&Limits::default());
    (1..=2_000).for_each(|from| post(&mut mailboxes, from, call(1), cast(0, 0)));
    mailboxes.join(call(1)).unwrap();
    assert_eq!(take(&mut mailboxes, call(1)).len(), SENDERS_MAX);
    assert_eq!(mailboxes.dropped().over_limit, 2_000 - SENDERS_MAX as u64);
}

/// A member that says all again whenever something of it was lost.
#[test]
fn copies_of_what_a_member_has_cast_leave_room_for_its_next_phase() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.join(call(1)).unwrap();
    let mut read = 0;
    for _ in 0..1_100 {
        post(&mut mailboxes, 1, call(1), cast(0, 0));
        read += take(&mut mailboxes, call(1)).len();
    }
    assert_eq!(read, 1_024);
    for phase in [1, 63, 63, 64, u16::MAX] {
        post(&mut mailboxes, 1, call(1), cast(phase, 0));
    }
    assert_eq!(take(&mut mailboxes, call(1)).len(), 2, "the first of each phase a plan may have");
    // One that has expired was never heard.
    for _ in 0..1_024 {
        post(&mut mailboxes, 1, call(2), cast(1, 0));
    }
    post(&mut mailboxes, 1, call(2), Cast { budget_us: 1, ..cast(0, 0) });
    mailboxes.handle_timeout(NOW + EXPIRY_PAUSE);
    for _ in 0..2 {
        post(&mut mailboxes, 1, call(2), cast(0, 0));
    }
    mailboxes.join(call(2)).unwrap();
    assert_eq!(take(&mut mailboxes, call(2)).len(), 1_025);
}

#[test]
fn the_largest_payload_is_kept_whatever_waits_of_others() {
    let limits = Limits { cast_bytes_total_max: 1 << 30, ..Limits::default() };
    let (max, mut mailboxes) = (limits.cast_payload_bytes_max(), mailboxes(&limits));
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    mailboxes.stream_space(7);
    for from in 1..=20 {
        post(&mut mailboxes, from, call(1), cast(0, max));
        post(&mut mailboxes, from, tag(0, 1), cast(0, max));
    }
    assert_eq!(mailboxes.dropped(), CastsDropped::default());
    mailboxes.join(call(1)).unwrap();
    assert_eq!(take(&mut mailboxes, call(1)).len(), 20);
    post(&mut mailboxes, 1, call(1), cast(0, limits.cast_bytes_max));
    assert_eq!(mailboxes.dropped().over_limit, 1);
}

#[test]
fn closed_tags_are_remembered_or_refused() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    let use_up = |mailboxes: &mut Mailboxes, sequence| -> Result<(), JoinRefusal> {
        mailboxes.join(tag(0, sequence))?;
        mailboxes.close(NOW, tag(0, sequence), true);
        Ok(())
    };
    // One after the other they take one place, however many.
    for sequence in 0..70_000 {
        assert_eq!(use_up(&mut mailboxes, sequence), Ok(()));
    }
    assert_eq!(mailboxes.closed_count(), 1);
    // With gaps they take one each, and then no more are opened.
    let most = (1..100_000).find(|at| use_up(&mut mailboxes, 70_000 + 2 * at).is_err()).unwrap();
    assert_eq!(mailboxes.closed_count() as u64, most);
    assert_eq!(mailboxes.join(tag(0, 1_000_000)), Err(JoinRefusal::Full));
    assert_eq!(mailboxes.join(tag(0, u64::MAX)), Err(JoinRefusal::Full));
    for sequence in [0, 65_537, 69_999, 70_002, 70_000 + 2 * (most - 1)] {
        assert_eq!(mailboxes.join(tag(0, sequence)), Err(JoinRefusal::Closed), "{sequence}");
    }
    // Who closes all below one may go on.
    mailboxes.raise_floor(7, (0, 70_005));
    assert_eq!(mailboxes.join(tag(0, 1_000_000)), Ok(()));
    assert_eq!(mailboxes.join(tag(0, 70_005)), Ok(()));
}

#[test]
fn a_tag_that_was_not_voted_on_is_not_used_up_and_one_that_was_may_only_be_restored() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    for has_voted in [false, true] {
        mailboxes.join(tag(0, 1)).unwrap();
        mailboxes.close(NOW, tag(0, 1), has_voted);
    }
    assert_eq!(mailboxes.join(tag(0, 1)), Err(JoinRefusal::Closed));
    assert_eq!(mailboxes.join_again(tag(0, 1)), Ok(()));
    post(&mut mailboxes, 1, tag(0, 1), cast(0, 0));
    assert_eq!(take(&mut mailboxes, tag(0, 1)), [1], "it is read as others are");
    mailboxes.close(NOW, tag(0, 1), false);
    mailboxes.close_space(7);
    assert_eq!(mailboxes.join(tag(0, 1)), Err(JoinRefusal::Closed), "nor without its space");
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    assert_eq!(mailboxes.join(tag(0, 1)), Err(JoinRefusal::Closed), "nor when that is back");
    post(&mut mailboxes, 1, tag(0, 1), cast(0, 0));
    assert_eq!((mailboxes.count(), mailboxes.dropped().late), (0, 1));
    mailboxes.raise_floor(7, (0, 2));
    assert_eq!(mailboxes.join_again(tag(0, 1)), Err(JoinRefusal::Closed));
}

#[test]
fn a_reader_is_told_to_whom_its_casts_did_not_go() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    mailboxes.join(tag(0, 1)).unwrap();
    assert!(!mailboxes.poll_waiting(tag(0, 1), 1) && mailboxes.poll_announced(7).is_none());
    for to in [2, 3, 2] {
        mailboxes.note_unsent(tag(0, 1), node(to));
    }
    let told: Vec<MailReader> = std::iter::from_fn(|| mailboxes.poll_ready()).collect();
    assert_eq!(told, [MailReader::Mailbox(tag(0, 1)), MailReader::Space(7)]);
    assert_eq!(mailboxes.take_missed(tag(0, 1))[..], [node(2), node(3)]);
    assert_eq!(mailboxes.take_missed_of_space(7), [node(2), node(3)].into());
    assert!(mailboxes.take_missed(tag(0, 1)).is_empty() && mailboxes.dropped().unsent == 3);
}

fn stream(mailboxes: &mut Mailboxes) -> Vec<(u64, u64)> {
    let next = || mailboxes.poll_cast(7);
    std::iter::from_fn(next).map(|(from, tag, _)| (from.get(), tag.sequence)).collect()
}

#[test]
fn a_stream_gives_what_members_cast_in_turn() {
    let mut mailboxes = mailboxes(&Limits { casts_max: 100, ..Limits::default() });
    post(&mut mailboxes, 3, tag(0, 9), cast(0, 0));
    mailboxes.open_space(7, 10, TWO, Some((1..=3).map(node).collect())).unwrap();
    mailboxes.stream_space(7);
    (0..1_000).for_each(|sequence| post(&mut mailboxes, 1, tag(0, sequence), cast(0, 0)));
    post(&mut mailboxes, 2, tag(0, 5), cast(0, 0));
    post(&mut mailboxes, 2, tag(0, 6), cast(0, 0));
    post(&mut mailboxes, 4, tag(0, 5), cast(0, 0));
    let dropped = mailboxes.dropped();
    assert_eq!((dropped.over_limit, dropped.strangers), (900, 1));
    let all = stream(&mut mailboxes);
    assert_eq!(all[..5], [(3, 9), (1, 0), (2, 5), (1, 1), (2, 6)]);
    assert_eq!((all.len(), mailboxes.held_bytes()), (103, 0));
    // The reader waits, and is told.
    post(&mut mailboxes, 2, tag(0, 7), cast(0, 0));
    assert_eq!(mailboxes.poll_ready(), Some(MailReader::Space(7)));
    post(&mut mailboxes, 1, tag(1, 0), cast(0, 0));
    mailboxes.raise_floor(7, (1, 0));
    assert_eq!(stream(&mut mailboxes), [(1, 0)]);
    post(&mut mailboxes, 2, tag(0, 8), cast(0, 0));
    post(&mut mailboxes, 2, tag(1, 8), cast(0, 9));
    assert!(mailboxes.held_bytes() > 0);
    mailboxes.close_space(7);
    assert_eq!((mailboxes.held_bytes(), mailboxes.count()), (0, 0));
}

const TWO: Announce = Announce { senders_min: 2, source: None };

#[test]
fn a_tag_is_announced_once_when_enough_have_cast_about_it() {
    let mut mailboxes = mailboxes(&Limits::default());
    post(&mut mailboxes, 1, tag(0, 5), cast(0, 0));
    post(&mut mailboxes, 2, tag(0, 5), cast(0, 0));
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    assert_eq!(mailboxes.open_space(7, 10, TWO, None), Err(SpaceRefusal::Taken));
    let announced = |mailboxes: &mut Mailboxes| mailboxes.poll_announced(7).map(|tag| tag.sequence);
    assert_eq!(announced(&mut mailboxes), Some(5), "it was there before");
    (0..5).for_each(|_| post(&mut mailboxes, 1, tag(0, 6), cast(0, 0)));
    assert_eq!(announced(&mut mailboxes), None, "one member is not two");
    post(&mut mailboxes, 3, tag(0, 6), cast(0, 0));
    assert_eq!(mailboxes.poll_ready(), Some(MailReader::Space(7)));
    post(&mut mailboxes, 4, tag(0, 6), cast(0, 0));
    assert_eq!(announced(&mut mailboxes), Some(6));
    assert_eq!(announced(&mut mailboxes), None);
}

#[test]
fn a_tag_is_announced_at_the_first_word_of_its_source() {
    let mut mailboxes = mailboxes(&Limits::default());
    let announce = Announce { senders_min: 9, source: Some(node(4)) };
    mailboxes.open_space(7, 10, announce, None).unwrap();
    (1..=4).for_each(|from| post(&mut mailboxes, from, tag(0, 5), cast(0, 0)));
    assert!(mailboxes.poll_announced(7).is_some());
}

/// Casts of those who are to be members next are kept, and count with the change.
#[test]
fn a_tag_that_new_members_have_cast_about_is_announced_when_they_are_members() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, Some([node(1)].into())).unwrap();
    mailboxes.hear_next(7, [node(2), node(3)].into());
    (1..=3).for_each(|from| post(&mut mailboxes, from, tag(0, 5), cast(0, 0)));
    (1..=2).for_each(|from| post(&mut mailboxes, from, tag(0, 6), cast(0, 0)));
    let announced = |mailboxes: &mut Mailboxes| mailboxes.poll_announced(7).map(|tag| tag.sequence);
    assert_eq!(announced(&mut mailboxes), None, "one member is not two");
    mailboxes.change_members(7, [node(2), node(3)].into());
    assert_eq!(mailboxes.poll_ready(), Some(MailReader::Space(7)));
    assert_eq!((announced(&mut mailboxes), announced(&mut mailboxes)), (Some(5), None));
}

#[test]
fn a_member_begins_no_more_tags_than_its_window_and_opening_makes_room() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 3, TWO, None).unwrap();
    (0..50).for_each(|sequence| post(&mut mailboxes, 1, tag(0, sequence), cast(0, 0)));
    assert_eq!(mailboxes.count(), 3);
    post(&mut mailboxes, 2, tag(0, 40), cast(0, 0));
    post(&mut mailboxes, 1, tag(0, 40), cast(0, 0));
    assert_eq!(mailboxes.count(), 4, "what another has begun it may speak of");
    mailboxes.join(tag(0, 0)).unwrap();
    post(&mut mailboxes, 1, tag(0, 41), cast(0, 0));
    post(&mut mailboxes, 1, tag(0, 42), cast(0, 0));
    assert_eq!(mailboxes.count(), 5);
}

#[test]
fn a_window_of_none_is_none() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 0, TWO, None).unwrap();
    post(&mut mailboxes, 1, tag(0, 1), cast(0, 0));
    assert_eq!(mailboxes.count(), 0);
    mailboxes.join(tag(0, 1)).unwrap();
    post(&mut mailboxes, 1, tag(0, 1), cast(0, 0));
    assert_eq!(take(&mut mailboxes, tag(0, 1)), [1], "a tag that is joined has a reader");
}

#[test]
fn below_the_floor_nothing_is_kept_and_nothing_opens_again() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    mailboxes.join(tag(0, 1)).unwrap();
    mailboxes.close(NOW, tag(0, 1), true);
    assert_eq!(mailboxes.join(tag(0, 1)), Err(JoinRefusal::Closed));
    mailboxes.join(tag(0, 2)).unwrap();
    (1..=2).for_each(|from| post(&mut mailboxes, from, tag(0, 3), cast(0, 9)));
    mailboxes.raise_floor(7, (1, 0));
    assert_eq!((mailboxes.floor(7), mailboxes.count()), ((1, 0), 1), "the open one stays");
    assert_eq!(mailboxes.poll_announced(7), None);
    let bring = |mailboxes: &mut Mailboxes| {
        mailboxes.would_keep((node(1), true), tag(0, 2), &cast(0, 9), 0)
    };
    assert!(bring(&mut mailboxes));
    (1..=2).for_each(|from| post(&mut mailboxes, from, tag(0, 2), cast(0, 9)));
    assert_eq!(take(&mut mailboxes, tag(0, 2)), [1, 2], "who reads it goes on");
    mailboxes.close(NOW, tag(0, 2), true);
    assert!(!bring(&mut mailboxes));
    post(&mut mailboxes, 1, tag(0, 3), cast(0, 9));
    assert_eq!((mailboxes.count(), mailboxes.held_bytes()), (0, 0));
    assert_eq!(mailboxes.join(tag(0, 3)), Err(JoinRefusal::Closed));
    mailboxes.raise_floor(7, (0, 0));
    assert_eq!(mailboxes.floor(7), (1, 0), "floors do not fall");
    post(&mut mailboxes, 1, tag(1, 0), cast(0, 9));
    mailboxes.close_space(7);
    assert_eq!((mailboxes.count(), mailboxes.held_bytes()), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Cast(u64, MailKey, usize, u64),
    Join(MailKey),
    Take(MailKey),
    Close(MailKey, bool),
    Floor(u64),
    Pass(u64),
    /// Of the space that is read as a stream.
    Next,
}

fn streamed(sequence: u64) -> MailKey {
    MailKey::Tag(Tag { space: 8, view: 0, sequence })
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop_oneof![(0..4_u64).prop_map(call), (0..4_u64).prop_map(|at| tag(0, at))];
    let whole = prop_oneof![4 => key(), 1 => (0..4_u64).prop_map(streamed)];
    prop_oneof![
        6 => (1..5_u64, whole, 0..200_usize, 0..4_u64)
            .prop_map(|(from, key, len, seconds)| Step::Cast(from, key, len, seconds)),
        2 => key().prop_map(Step::Join),
        2 => key().prop_map(Step::Take),
        1 => (key(), any::<bool>()).prop_map(|(key, has_voted)| Step::Close(key, has_voted)),
        1 => (0..5_u64).prop_map(Step::Floor),
        1 => (0..3_u64).prop_map(Step::Pass),
        1 => Just(Step::Next),
    ]
}

proptest! {
    /// Bytes are what waits, within the bounds, whatever happens; what was voted on is not opened
    /// again; and when all is closed and time has passed, nothing is left.
    #[test]
    fn the_books_balance(steps in prop::collection::vec(step(), 0..200)) {
        let max = 8_000;
        let limits = Limits {
            casts_max: 5,
            cast_bytes_max: 1_000,
            cast_bytes_total_max: max,
            ..Limits::default()
        };
        let (mut mailboxes, mut now) = (mailboxes(&limits), NOW);
        mailboxes.open_space(7, 2, TWO, None).unwrap();
        mailboxes.open_space(8, 2, TWO, None).unwrap();
        mailboxes.stream_space(8);
        let (mut voted, mut floor) = (BTreeSet::new(), 0);
        for step in steps {
            match step {
                Step::Cast(from, key, len, seconds) => {
                    let cast = Cast { budget_us: seconds * 1_000_000, ..cast(0, len) };
                    mailboxes.handle_cast(now, (node(from), true), key, cast, 0);
                }
                Step::Join(key) => {
                    let is_open = mailboxes.is_open(key);
                    let is_over = key >= tag(0, 0) && key < tag(0, floor) || voted.contains(&key);
                    prop_assert_eq!(mailboxes.join(key).is_ok(), !is_open && !is_over);
                }
                Step::Take(key) => drop(take(&mut mailboxes, key)),
                Step::Close(key, has_voted) => {
                    let is_open = mailboxes.is_open(key);
                    if is_open && (has_voted || matches!(key, MailKey::Call(_))) {
                        voted.insert(key);
                    }
                    mailboxes.close(now, key, has_voted);
                }
                Step::Floor(at) => {
                    mailboxes.raise_floor(7, (0, at));
                    floor = floor.max(at);
                }
                Step::Pass(seconds) => {
                    now = now + Duration::from_secs(seconds);
                    mailboxes.handle_timeout(now);
                }
                Step::Next => drop(mailboxes.poll_cast(8)),
            }
            let (mut bytes, mut early) = (0, 0);
            for state in mailboxes.boxes.values() {
                let (State::Early { mail, .. } | State::Open { mail, .. }) = state;
                prop_assert!(mail.bytes() >= mail.posts().map(Post::cost).sum());
                bytes += mail.bytes();
                if matches!(state, State::Early { .. }) {
                    (bytes, early) = (bytes + Mail::BYTES, early + 1);
                }
            }
            let of_stream = mailboxes.spaces.get_mut(8).and_then(|space| space.stream.as_ref());
            bytes += of_stream.map_or(0, |stream| stream.bytes());
            prop_assert_eq!(mailboxes.held_bytes(), bytes);
            prop_assert_eq!(mailboxes.books.of().sum::<usize>(), bytes);
            prop_assert_eq!(mailboxes.expiries.len(), early);
            prop_assert!(mailboxes.books.of().all(|of| of > 0 && of <= max / 2));
        }
        for key in (0..4).flat_map(|at| [call(at), tag(0, at)]) {
            mailboxes.close(now, key, true);
        }
        mailboxes.raise_floor(7, (1, 0));
        mailboxes.raise_floor(8, (1, 0));
        mailboxes.handle_timeout(now + Duration::from_secs(700));
        mailboxes.sweep_calls(now, |_| true);
        prop_assert_eq!((mailboxes.count(), mailboxes.held_bytes()), (0, 0));
        prop_assert!(mailboxes.books.of().next().is_none() && mailboxes.expiries.is_empty());
        prop_assert_eq!(mailboxes.closed_count(), 0);
        mailboxes.raise_floor(7, (2, 0));
        prop_assert_eq!(mailboxes.poll_announced(7), None);
    }
}
