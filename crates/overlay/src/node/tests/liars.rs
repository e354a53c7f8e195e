//! Peers that lie: each costs at most what it was trusted with.

use super::*;

fn repair(source: Site, seq: u64, byte: u8) -> Frame {
    let payload = Bytes::from(vec![byte; 100]);
    Frame::Data(Data { is_repair: true, payload, ..data(source, seq, Forward::Nobody, 0) })
}

fn delivered(node: &mut OverlayNode) -> Vec<(OpId, Payload)> {
    let events = std::iter::from_fn(|| node.poll_event());
    let of = |event| match event {
        Event::Delivered { op, payload } => Some((op, payload)),
        _ => None,
    };
    events.filter_map(of).collect()
}

#[test]
fn a_source_that_gives_up_more_than_there_can_be_breaks_nothing() {
    let mut node = node();
    for incarnation in (1..=6).map(Incarnation) {
        node.handle_link(at(1), Site(1), LinkEvent::Up { incarnation });
        let floor = Floor { life: Life::of(incarnation), seq: SEQ_MAX, others: vec![] };
        node.handle_frame(at(1), Site(1), Frame::Floor(floor)).expect("it may be");
    }
    assert_eq!(node.counters().gaps, u64::MAX);
}

/// Who misses much relays nothing until it has caught up.
#[test]
fn a_source_that_leaps_ahead_keeps_nobody_from_relaying() {
    let mut node = node();
    let ahead = data(Site(1), SEQ_MAX - 1, Forward::Nobody, 9);
    node.handle_frame(at(1), Site(1), Frame::Data(ahead)).expect("it may be");
    let floor = Floor { life: life(Site(1)), seq: 0, others: vec![] };
    node.handle_frame(at(1), Site(1), Frame::Floor(floor)).expect("it may be");
    assert_eq!(node.counters().no_room, 1);
    assert_eq!(node.distrusted(), SiteSet::EMPTY);
}

#[test]
fn a_source_that_gives_up_what_never_was_keeps_nobody_from_relaying() {
    let mut node = node();
    let link_again = |node: &mut OverlayNode, now, sites: std::ops::Range<u16>| {
        for site in sites.clone().map(Site) {
            node.handle_link(now, site, LinkEvent::Down);
        }
        for site in sites.map(Site) {
            node.handle_link(now, site, LinkEvent::Up { incarnation: incarnation(site) });
        }
    };
    let give_up = |node: &mut OverlayNode, now, seq| {
        let floor = Floor { life: life(Site(1)), seq, others: vec![] };
        node.handle_frame(now, Site(1), Frame::Floor(floor)).expect("it may be");
    };
    let now = at(100_000);
    give_up(&mut node, now, 20_000);
    assert_eq!(node.distrusted(), SiteSet::EMPTY);
    link_again(&mut node, now, 1..2);
    give_up(&mut node, now, 40_000);
    assert_eq!(node.distrusted(), SiteSet::EMPTY, "its own link says nothing");
    // A site that was away catches up with what it is told of, in some time.
    link_again(&mut node, now, 1..4);
    give_up(&mut node, now, 60_000);
    assert_eq!(node.distrusted(), SiteSet::EMPTY.with(ME));
    node.handle_timeout(at(159_999));
    assert_eq!(node.distrusted(), SiteSet::EMPTY.with(ME));
    node.handle_timeout(at(160_000));
    assert_eq!(node.distrusted(), SiteSet::EMPTY);
}

#[test]
fn a_relay_that_says_that_it_was_only_late_is_suspected_all_the_same() {
    let mut node = node();
    node.set_plan(at(0), through_first()).expect("it is right");
    let credit = Frame::RelayCredit { session: 1, limit_bytes: 1 << 20 };
    node.handle_frame(at(0), Site(1), credit).expect("it is right");
    for seq in 0..9 {
        let now = at(100 * seq);
        node.broadcast(now, vec![7; 5_000].into()).expect("there is room");
        sent_data(&mut node, now);
        let says =
            |flaw| Frame::Missed(Missed { life: life(ME), relay: Site(1), flaw, seqs: vec![seq] });
        node.handle_frame(at(100 * seq + 60), Site(2), says(Flaw::Absent)).expect("it may be");
        node.handle_frame(at(100 * seq + 61), Site(1), says(Flaw::Late)).expect("it may be");
        node.handle_frame(at(100 * seq + 61), Site(3), says(Flaw::Late)).expect("it may be");
    }
    assert_eq!(node.suspects(), SiteSet::EMPTY.with(Site(1)));
}

#[test]
fn who_was_not_asked_for_an_operation_is_not_believed_about_it() {
    let mut node = node();
    let (present, earlier) = (life(Site(1)), Life(77));
    for (seq, life) in [(0, present), (5, earlier)] {
        let op = OpId { source: Site(1), life, seq };
        assert!(matches!(node.fetch(at(1), op), Ok(crate::event::Fetched::Asked)));
        let asked: Vec<Site> = drain(&mut node, at(1))
            .into_iter()
            .filter(|it| matches!(it.frame, Frame::Fetch(_)))
            .map(|it| it.to)
            .collect();
        assert_eq!(asked, [Site(1)]);
        let have_not = Frame::HaveNot { op, until: op.seq + 1 };
        node.handle_frame(at(2), Site(2), have_not).expect("it may be");
        let Frame::Data(made_up) = repair(Site(1), seq, 9) else { unreachable!() };
        let made_up = Data { op, ..made_up };
        let _ = node.handle_frame(at(2), Site(2), Frame::Data(made_up.clone()));
        assert!(delivered(&mut node).is_empty(), "nobody had asked it");
        let right = Data { payload: Bytes::from_static(b"right"), ..made_up };
        node.handle_frame(at(3), Site(1), Frame::Data(right)).expect("it is right");
        let came = delivered(&mut node);
        assert_eq!(came.len(), 1);
        assert_eq!(came[0].1.clone().into_bytes(), "right");
    }
}

/// A chunk of 512 in an answer that a site makes up.
fn piece(first: OpId, index: u32) -> Frame {
    let payload = Bytes::from(vec![9; crate::CHUNK_BYTES]);
    let whole = data(first.source, first.seq, Forward::Nobody, 0);
    Frame::Data(Data { index, count: 512, is_repair: true, payload, ..whole })
}

fn is_asked(node: &mut OverlayNode, now: Timestamp) -> Vec<(Site, u64)> {
    let asks = |it: Transmit| match it.frame {
        Frame::Fetch(fetch) => Some((it.to, fetch.op.seq)),
        _ => None,
    };
    drain(node, now).into_iter().filter_map(asks).collect()
}

/// It answers late, as it has much to send before.
#[test]
fn no_other_site_has_a_word_about_what_a_source_that_is_reached_has_sent() {
    let mut node = node();
    let op = |seq| OpId { seq, ..data(Site(1), 0, Forward::Nobody, 0).op };
    assert!(matches!(node.fetch(at(1), op(0)), Ok(crate::event::Fetched::Asked)));
    let mut asked = is_asked(&mut node, at(1));
    for now in (1..29).map(|second| at(1 + 1_000 * second)) {
        node.handle_timeout(now);
        asked.extend(is_asked(&mut node, now));
        for liar in [2, 3].map(Site) {
            for index in [0, 1, 7] {
                let _ = node.handle_frame(now, liar, piece(op(0), index));
            }
            let _ = node.handle_frame(now, liar, repair(Site(1), 0, 9));
        }
    }
    let now = at(29_000);
    assert!(delivered(&mut node).is_empty());
    let ack = node.receiver.ack(Site(1)).expect("there is a stream");
    assert_eq!((ack.next, ack.beyond.len()), (0, 0), "nothing is acknowledged");
    assert_eq!(asked, vec![(Site(1), 0); asked.len()]);
    for seq in 0..9 {
        node.handle_frame(now, Site(1), repair(Site(1), seq, 5)).expect("it is right");
    }
    let came: Vec<_> = delivered(&mut node).into_iter().map(|(op, it)| (op.seq, it)).collect();
    assert!(came.iter().map(|(seq, _)| *seq).eq(0..9), "{came:?}");
    assert!(came.iter().all(|(_, payload)| payload.chunks()[0][0] == 5));
}

/// A node that has heard of seven operations of a source that is gone, and asks for the first six.
fn pulling() -> OverlayNode {
    let mut node = node();
    let last = Frame::Data(data(Site(1), 6, Forward::Nobody, 9));
    node.handle_frame(at(1), Site(1), last).expect("it is right");
    node.handle_link(at(2), Site(1), LinkEvent::Down);
    delivered(&mut node);
    node.handle_timeout(at(400));
    let asked = is_asked(&mut node, at(400));
    assert!(asked.iter().copied().eq((0..6).map(|seq| (Site(2), seq))), "{asked:?}");
    node
}

#[test]
fn what_others_were_asked_of_a_source_is_its_own_to_say_once_it_is_back() {
    let mut node = pulling();
    let up = LinkEvent::Up { incarnation: incarnation(Site(1)) };
    node.handle_link(at(500), Site(1), up);
    let _ = node.handle_frame(at(501), Site(2), repair(Site(1), 0, 9));
    assert!(delivered(&mut node).is_empty());
    node.handle_frame(at(502), Site(1), repair(Site(1), 0, 5)).expect("it is right");
    let came = delivered(&mut node);
    assert_eq!((came.len(), came[0].1.chunks()[0][0]), (1, 5));
}

/// Of what one makes up nothing is taken before it is whole.
#[test]
fn half_an_answer_is_in_the_way_of_no_other() {
    let mut node = pulling();
    let first = data(Site(1), 0, Forward::Nobody, 0).op;
    for index in [3, 0, 9] {
        node.handle_frame(at(401), Site(2), piece(first, index)).expect("it was asked");
    }
    node.handle_timeout(at(1_500));
    let asked = is_asked(&mut node, at(1_500));
    assert!(asked.contains(&(Site(3), 0)), "{asked:?}");
    for seq in 0..2 {
        node.handle_frame(at(1_501), Site(3), repair(Site(1), seq, 5)).expect("it is right");
    }
    let up = LinkEvent::Up { incarnation: incarnation(Site(1)) };
    node.handle_link(at(1_600), Site(1), up);
    let ack = node.receiver.ack(Site(1)).expect("there is a stream");
    assert_eq!(ack.next, 2);
    for seq in 2..10 {
        let it = Frame::Data(data(Site(1), seq, Forward::Nobody, 9));
        node.handle_frame(at(1_601), Site(1), it).expect("it is right");
    }
    let came: Vec<u64> = delivered(&mut node).into_iter().map(|(op, _)| op.seq).collect();
    assert_eq!(came, [0, 1, 2, 3, 4, 5, 7, 8, 9]);
}

/// Who is gone had sent a part, another brings the rest, and a third has made it up.
#[test]
fn what_a_source_has_sent_itself_is_completed_by_who_has_the_same() {
    let mut node = node();
    let chunk = |index: u32, byte: u8| {
        let payload = Bytes::from(vec![byte; crate::CHUNK_BYTES]);
        Data { index, count: 3, payload, ..data(Site(1), 0, Forward::Nobody, 0) }
    };
    node.handle_frame(at(1), Site(1), Frame::Data(chunk(1, 5))).expect("it is right");
    node.handle_link(at(2), Site(1), LinkEvent::Down);
    node.handle_timeout(at(400));
    assert!(is_asked(&mut node, at(400)).contains(&(Site(2), 0)));
    node.handle_frame(at(401), Site(2), repair(Site(1), 0, 9)).expect("it was asked");
    assert!(delivered(&mut node).is_empty(), "it is not what the source has begun");
    node.handle_timeout(at(1_500));
    assert!(is_asked(&mut node, at(1_500)).contains(&(Site(3), 0)));
    for index in [0, 2] {
        let rest = Frame::Data(Data { is_repair: true, ..chunk(index, 5) });
        node.handle_frame(at(1_501), Site(3), rest).expect("it is right");
    }
    let came = delivered(&mut node);
    assert_eq!(came.len(), 1);
    assert!(came[0].1.chunks().iter().all(|chunk| chunk[0] == 5));
}

/// One site sends requests whose messages never come.
#[test]
fn what_is_asked_in_vain_of_one_source_keeps_nobody_from_asking_for_what_others_sent() {
    let mut node = node();
    let made_up = |seq| OpId { seq, ..data(Site(1), 0, Forward::Nobody, 0).op };
    let asked = (0..300).filter(|seq| node.fetch(at(1), made_up(*seq)).is_ok()).count();
    assert!(asked > 0);
    let other = OpId { seq: 9, ..data(Site(3), 0, Forward::Nobody, 0).op };
    assert!(node.fetch(at(1), other).is_ok(), "there is room for other sources");
    let second = Frame::Data(data(Site(2), 1, Forward::Nobody, 9));
    node.handle_frame(at(1), Site(2), second).expect("it is right");
    node.handle_link(at(2), Site(2), LinkEvent::Down);
    node.handle_timeout(at(400));
    let asks = |it: &Transmit| match &it.frame {
        Frame::Fetch(fetch) => fetch.op.source == Site(2) && fetch.op.seq == 0,
        _ => false,
    };
    assert!(drain(&mut node, at(400)).iter().any(asks), "the hole is asked for");
}

/// One signs of life that takes an hour would take all of the memory there is for credit.
#[test]
fn an_absurd_round_trip_takes_the_room_of_nobody() {
    let mut node = node();
    node.set_plan(at(0), through_first()).expect("it is right");
    let hour = 3_600_000;
    node.handle_frame(at(hour), Site(1), Frame::Pong { at: 0 }).expect("it may be");
    assert_eq!(node.counters().short_of_credit, 0);
    assert!(!node.is_ready(256 << 20), "8 Mbit/s need 2 MB for each second");
}

#[test]
fn what_others_say_of_the_lives_of_a_source_brings_nothing_a_second_time() {
    let mut node = node();
    let frame = |seq| Frame::Data(data(Site(1), seq, Forward::Nobody, 9));
    node.handle_frame(at(1), Site(1), frame(0)).expect("it is right");
    assert_eq!(delivered(&mut node).len(), 1);
    node.handle_link(at(2), Site(1), LinkEvent::Down);
    for life in 0..20 {
        let floor = Frame::Floor(Floor { life: Life(life), seq: 0, others: vec![] });
        let passed = Passed { from: Site(1), to: ME, frame: floor.to_bytes() };
        node.handle_frame(at(3), Site(2), Frame::Passed(passed)).expect("it may be");
    }
    node.handle_link(at(4), Site(1), LinkEvent::Up { incarnation: incarnation(Site(1)) });
    for seq in 0..2 {
        node.handle_frame(at(5), Site(1), frame(seq)).expect("it is right");
    }
    let came: Vec<u64> = delivered(&mut node).into_iter().map(|(op, _)| op.seq).collect();
    assert_eq!(came, [1]);
}

/// A site passes on that a source without a link is in another life.
fn pass_life(node: &mut OverlayNode, now: Timestamp, life: Life) {
    let floor = Frame::Floor(Floor { life, seq: 0, others: vec![] });
    let passed = Passed { from: Site(1), to: ME, frame: floor.to_bytes() };
    node.handle_frame(now, Site(2), Frame::Passed(passed)).expect("it may be");
}

#[test]
fn what_others_say_of_the_lives_of_a_source_ends_none_that_had_a_link() {
    for now_lives in [incarnation(Site(1)), Incarnation(9)] {
        let mut node = node();
        let frame = |seq| Frame::Data(data(Site(1), seq, Forward::Nobody, 9));
        for seq in [0, 2] {
            node.handle_frame(at(1), Site(1), frame(seq)).expect("it is right");
        }
        node.handle_link(at(2), Site(1), LinkEvent::Down);
        [1, 2].into_iter().for_each(|life| pass_life(&mut node, at(3), Life(life)));
        assert_eq!(node.counters().gaps, 0);
        assert_eq!(delivered(&mut node).len(), 2);
        node.handle_link(at(4), Site(1), LinkEvent::Up { incarnation: now_lives });
        let is_same = now_lives == incarnation(Site(1));
        assert_eq!(node.counters().gaps, u64::from(!is_same), "now it has ended");
        let ack = node.receiver.ack(Site(1)).expect("there is a stream");
        assert_eq!((ack.life, ack.next), (Life::of(now_lives), u64::from(is_same)));
        let _ = node.handle_frame(at(5), Site(1), frame(1));
        let came: Vec<u64> = delivered(&mut node).into_iter().map(|(op, _)| op.seq).collect();
        assert_eq!(came, if is_same { vec![1] } else { vec![] });
    }
}

/// Chunks that others bring of a life that may go on count for it.
#[test]
fn a_life_that_is_said_to_be_over_is_still_completed() {
    let mut node = pulling();
    pass_life(&mut node, at(401), Life(1));
    for seq in 0..6 {
        node.handle_frame(at(402), Site(2), repair(Site(1), seq, 5)).expect("it was asked");
    }
    assert_eq!(delivered(&mut node).len(), 6);
    node.handle_link(at(500), Site(1), LinkEvent::Up { incarnation: incarnation(Site(1)) });
    assert_eq!(node.receiver.ack(Site(1)).expect("there is a stream").next, 7);
    assert_eq!(node.counters().gaps, 0);
}

#[test]
fn who_does_not_reach_a_source_is_not_believed_about_it() {
    let mut node = node();
    node.handle_link(at(2), Site(1), LinkEvent::Down);
    let unreached = SiteSet::EMPTY.with(Site(1));
    let view = View { version: 1, unreached, ..View::default() };
    node.handle_frame(at(3), Site(2), Frame::View(view)).expect("it is right");
    pass_life(&mut node, at(4), Life(1));
    assert_eq!(node.receiver.life_of(Site(1)), Some(life(Site(1))));
}

/// A site that has come back without its state asks for one operation of its earlier life.
#[test]
fn the_stream_of_an_earlier_life_of_this_site_is_not_taken_up_again() {
    let mut node = node();
    let op = OpId { source: ME, life: Life(77), seq: 30 };
    assert!(matches!(node.fetch(at(1), op), Ok(crate::event::Fetched::Asked)));
    drain(&mut node, at(1));
    let Frame::Data(answer) = repair(ME, 30, 9) else { unreachable!() };
    node.handle_frame(at(2), Site(1), Frame::Data(Data { op, ..answer })).expect("it is right");
    assert_eq!(delivered(&mut node).len(), 1);
    for millis in [2, 500, 1_000, 2_000] {
        node.handle_timeout(at(millis));
        let sent = drain(&mut node, at(millis));
        let asks = |it: &Transmit| matches!(it.frame, Frame::Fetch(_));
        assert!(!sent.iter().any(asks), "it is asked for more: {sent:?}");
    }
}

/// Who has the name of an operation from somebody else would ask others for what cannot be, and
/// they would close the link.
#[test]
fn what_no_source_counts_to_is_not_asked_for() {
    let mut node = node();
    for seq in [SEQ_MAX + 1, u64::MAX] {
        let op = OpId { source: Site(1), life: life(Site(1)), seq };
        assert!(node.fetch(at(1), op).is_err());
        node.handle_timeout(at(1));
        let sent = drain(&mut node, at(1));
        assert!(sent.iter().all(|it| Frame::decode(&it.frame.to_bytes()).is_ok()), "{sent:?}");
    }
}

/// The name of an operation that never was, of a source that is gone.
#[test]
fn a_name_far_ahead_makes_no_hole_in_the_stream_of_a_source() {
    let mut node = node();
    node.handle_link(at(1), Site(1), LinkEvent::Down);
    let op = OpId { source: Site(1), life: life(Site(1)), seq: 1 << 40 };
    let mut now = at(6_000);
    node.handle_timeout(now);
    drain(&mut node, now);
    assert!(matches!(node.fetch(now, op), Ok(crate::event::Fetched::Asked)));
    while now < at(60_000) {
        now = now + Duration::from_millis(200);
        node.handle_timeout(now);
        let asked = drain(&mut node, now).into_iter().filter_map(|it| match it.frame {
            Frame::Fetch(fetch) => Some((it.to, fetch.op)),
            _ => None,
        });
        for (to, op) in asked.collect::<Vec<_>>() {
            let frame = Frame::HaveNot { op, until: op.seq + 1 };
            node.handle_frame(now, to, frame).expect("it may be");
        }
    }
    assert_eq!((node.load().fetches, node.receiver.holes(Site(1))), (0, vec![]));
    assert_eq!(node.counters().gaps, 0);
}

/// A frame of somebody as it comes: right, spoilt, cut, longer, or by way of another.
fn spoilt(frame: &Frame, from: Site, how: u8, at: usize) -> Bytes {
    let mut bytes = frame.to_bytes().to_vec();
    let at = at % bytes.len();
    match how % 8 {
        0 => bytes[at] ^= 1 << (how / 8 % 8),
        1 => bytes[at] = how,
        2 => bytes.truncate(at),
        3 => bytes.extend_from_slice(&[how; 3]),
        4 => {
            let from = Site(1 + from.0 % 3);
            bytes = Frame::Passed(Passed { from, to: ME, frame: bytes.into() }).to_bytes().to_vec();
        }
        _ => {}
    }
    bytes.into()
}

proptest! {
    /// What decodes has one form, and neither it nor links that come and go break anything.
    #[test]
    fn spoilt_frames_and_restarts_break_nothing(
        steps in proptest::collection::vec(
            (1..4u16, frames(), any::<u8>(), any::<u16>(), 0..400u64), 1..200,
        ),
    ) {
        let mut node = node();
        node.set_plan(at(0), through_first()).expect("it is right");
        let mut now = at(0);
        for (from, frame, how, place, pause) in steps {
            now = now + Duration::from_millis(pause);
            let from = Site(from);
            match place % 16 {
                0 => node.handle_link(now, from, LinkEvent::Down),
                1 => {
                    let life = if how < 128 { incarnation(from) } else { Incarnation(how.into()) };
                    node.handle_link(now, from, LinkEvent::Up { incarnation: life });
                }
                2 => node.handle_link(now, from, LinkEvent::Blocked),
                3 => node.handle_link(now, from, LinkEvent::Writable),
                4 => drop(node.broadcast(now, Bytes::from(vec![how; 300 * usize::from(how)]))),
                5 => {
                    let op = OpId { source: from, life: life(from), seq: place.into() };
                    let _ = node.fetch(now, op);
                }
                _ => {
                    let bytes = spoilt(&frame, from, how, place.into());
                    if let Ok(frame) = Frame::decode(&bytes) {
                        prop_assert_eq!(&frame.to_bytes(), &bytes);
                        let _ = node.handle_frame(now, from, frame);
                    }
                }
            }
            node.handle_timeout(now);
            send_all(&mut node, now)?;
            prop_assert!(node.passes.is_empty());
            while node.poll_event().is_some() {}
        }
    }
}
