use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::id::Incarnation;
use crate::wire::Digest;

const NOW: Timestamp = Timestamp::ZERO;
const LATER: Timestamp = Timestamp::MAX;

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn cast(phase: u16, len: usize) -> Cast {
    let payload = Bytes::from(vec![0; len]);
    let (epoch, digest) = (0, Digest::ZERO);
    Cast {
        view: None,
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
    MailKey::Call(CallId { origin: Incarnation(1), seq })
}

fn tag(view: u64, sequence: u64) -> MailKey {
    MailKey::Tag(Tag { space: 7, view, sequence })
}

fn mailboxes(limits: &Limits) -> Mailboxes {
    Mailboxes::new(limits)
}

fn post(mailboxes: &mut Mailboxes, from: u64, key: MailKey, cast: Cast) {
    mailboxes.handle_cast(NOW, node(from), key, cast, 0);
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
fn a_closed_mailbox_is_forgotten_with_the_last_late_cast_or_with_time() {
    let mut mailboxes = mailboxes(&Limits::default());
    let end = NOW + Duration::from_secs(1);
    for seq in [1, 2] {
        mailboxes.join(call(seq)).unwrap();
        post(&mut mailboxes, 1, call(seq), cast(0, 10));
        assert_eq!(mailboxes.close(call(seq), 2, end).len(), 1);
        assert_eq!(mailboxes.join(call(seq)), Err(JoinRefusal::Closed));
    }
    assert_eq!((mailboxes.count(), mailboxes.held_bytes()), (2, 0));
    post(&mut mailboxes, 2, call(1), cast(0, 10));
    post(&mut mailboxes, 3, call(1), cast(0, 10));
    assert_eq!((mailboxes.count(), mailboxes.dropped().late), (1, 2));
    assert_eq!(mailboxes.poll_timeout(), Some(end));
    mailboxes.handle_timeout(end);
    assert_eq!((mailboxes.count(), mailboxes.poll_timeout()), (0, None));
    mailboxes.join(call(3)).unwrap();
    mailboxes.close(call(3), 0, end);
    assert_eq!(mailboxes.count(), 0, "all had come");
}

#[test]
fn a_flood_of_one_member_leaves_room_for_the_others() {
    let limits = Limits {
        casts_max: 10,
        cast_bytes_sender_max: 100 * 128,
        cast_bytes_total_max: 300 * 128,
        ..Limits::default()
    };
    let mut mailboxes = mailboxes(&limits);
    for seq in 0..1_000 {
        (0..50).for_each(|_| post(&mut mailboxes, 1, call(seq), cast(0, 0)));
    }
    assert_eq!(mailboxes.held_bytes(), 100 * 128);
    assert_eq!(mailboxes.count(), 10);
    for other in 2..=4 {
        post(&mut mailboxes, other, call(5), cast(0, 0));
        post(&mut mailboxes, other, call(5_000), cast(0, 0));
    }
    mailboxes.join(call(5)).unwrap();
    mailboxes.join(call(5_000)).unwrap();
    assert_eq!(take(&mut mailboxes, call(5)).iter().filter(|from| **from > 1).count(), 3);
    assert_eq!(take(&mut mailboxes, call(5_000)), [2, 3, 4]);
    for _ in 0..50 {
        post(&mut mailboxes, 2, call(5), cast(0, 0));
        take(&mut mailboxes, call(5));
    }
    assert_eq!(take(&mut mailboxes, call(5)), [0; 0], "read ones count, too");
}

#[test]
fn casts_of_an_older_epoch_leave_nothing_behind() {
    let mut mailboxes = mailboxes(&Limits::default());
    for epoch in [0, 4, 5, 6] {
        mailboxes.handle_cast(NOW, node(1), call(1), Cast { epoch, ..cast(0, 0) }, 5);
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

#[test]
fn closed_mailboxes_are_bounded() {
    let mut mailboxes = mailboxes(&Limits::default());
    for seq in 0..CLOSED_MAX as u64 + 100 {
        mailboxes.join(call(seq)).unwrap();
        mailboxes.close(call(seq), 1, NOW + Duration::from_micros(seq));
    }
    assert_eq!(mailboxes.count(), CLOSED_MAX);
}

const TWO: Announce = Announce { senders_min: 2, source: None };

#[test]
fn a_tag_is_announced_once_when_enough_have_cast_about_it() {
    let mut mailboxes = mailboxes(&Limits::default());
    post(&mut mailboxes, 1, tag(0, 5), cast(0, 0));
    post(&mut mailboxes, 2, tag(0, 5), cast(0, 0));
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    assert_eq!(mailboxes.open_space(7, 10, TWO, None), Err(SpaceTaken));
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
fn below_the_floor_nothing_is_kept_and_nothing_opens_again() {
    let mut mailboxes = mailboxes(&Limits::default());
    mailboxes.open_space(7, 10, TWO, None).unwrap();
    mailboxes.join(tag(0, 1)).unwrap();
    mailboxes.close(tag(0, 1), u32::MAX, LATER);
    assert_eq!(mailboxes.join(tag(0, 1)), Err(JoinRefusal::Closed));
    mailboxes.join(tag(0, 2)).unwrap();
    (1..=2).for_each(|from| post(&mut mailboxes, from, tag(0, 3), cast(0, 9)));
    mailboxes.raise_floor(7, (1, 0));
    assert_eq!((mailboxes.floor(7), mailboxes.count()), ((1, 0), 1), "the open one stays");
    assert_eq!(mailboxes.poll_announced(7), None);
    mailboxes.close(tag(0, 2), u32::MAX, LATER);
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
    Cast(u64, MailKey, usize),
    Join(MailKey),
    Take(MailKey),
    Close(MailKey, u32),
    Floor(u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop_oneof![(0..4_u64).prop_map(call), (0..4_u64).prop_map(|at| tag(0, at))];
    prop_oneof![
        6 => (1..5_u64, key(), 0..200_usize).prop_map(|(from, key, len)| Step::Cast(from, key, len)),
        2 => key().prop_map(Step::Join),
        2 => key().prop_map(Step::Take),
        1 => (key(), 0..3_u32).prop_map(|(key, left)| Step::Close(key, left)),
        1 => (0..5_u64).prop_map(Step::Floor),
        1 => (0..3_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Bytes are what waits, within the bounds, whatever happens; and when all is closed and time
    /// has passed, nothing is left.
    #[test]
    fn the_books_balance(steps in prop::collection::vec(step(), 0..200)) {
        let limits = Limits {
            casts_max: 5,
            cast_bytes_max: 600,
            cast_bytes_sender_max: 900,
            cast_bytes_total_max: 2_000,
            ..Limits::default()
        };
        let (mut mailboxes, mut now) = (mailboxes(&limits), NOW);
        mailboxes.open_space(7, 2, TWO, None).unwrap();
        for step in steps {
            match step {
                Step::Cast(from, key, len) => {
                    mailboxes.handle_cast(now, node(from), key, cast(0, len), 0);
                }
                Step::Join(key) => drop(mailboxes.join(key)),
                Step::Take(key) => drop(take(&mut mailboxes, key)),
                Step::Close(key, left) => {
                    mailboxes.close(key, left, now + Duration::from_secs(2));
                }
                Step::Floor(at) => mailboxes.raise_floor(7, (0, at)),
                Step::Pass(seconds) => {
                    now = now + Duration::from_secs(seconds);
                    mailboxes.handle_timeout(now);
                }
            }
            let waiting = mailboxes.boxes.values().flat_map(|state| match state {
                State::Early(mail, _) | State::Open(mail, _) => mail.casts.as_slice(),
                State::Closed { .. } => &[],
            });
            let bytes: usize = waiting.map(|(_, cast)| cost(cast)).sum();
            prop_assert_eq!(mailboxes.held_bytes(), bytes);
            prop_assert_eq!(mailboxes.bytes_of.values().sum::<usize>(), bytes);
            prop_assert!(bytes <= 2_000);
            prop_assert!(mailboxes.bytes_of.values().all(|bytes| (1..=900).contains(bytes)));
        }
        for key in (0..4).flat_map(|at| [call(at), tag(0, at)]) {
            mailboxes.close(key, 0, now);
        }
        mailboxes.raise_floor(7, (1, 0));
        mailboxes.handle_timeout(now + Duration::from_secs(700));
        prop_assert_eq!((mailboxes.count(), mailboxes.held_bytes()), (0, 0));
        prop_assert!(mailboxes.bytes_of.is_empty() && mailboxes.early.is_empty());
        prop_assert!(mailboxes.closed.is_empty());
        mailboxes.raise_floor(7, (2, 0));
        prop_assert_eq!(mailboxes.poll_announced(7), None);
    }
}
