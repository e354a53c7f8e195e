//! Room: for operations at their source, and for what comes at its receivers.

use super::*;

/// One site reads nothing, and whoever wanted the room that it takes does not want it any more.
#[test]
fn what_is_not_to_be_broadcast_any_more_has_nobody_given_up() {
    for (is_withdrawn, is_brought) in [(false, false), (true, false), (false, true)] {
        let mut config = NodeConfig::new(ME, 4, incarnation(ME));
        (config.limits.payload_bytes_max, config.limits.unacked_bytes_max) = (6_000, 6_000);
        let mut node = started(config);
        let payload = || Bytes::from(vec![0; 5_000]);
        node.broadcast(at(0), payload()).expect("there is room");
        drain(&mut node, at(0));
        for site in [1, 2] {
            let ack = Ack { life: life(ME), next: 1, beyond: Bytes::new() };
            node.handle_frame(at(1), Site(site), Frame::Ack(ack)).expect("it is right");
        }
        let refused = match is_brought {
            true => node.bring(at(2), payload(), SiteSet::first(4)),
            false => node.broadcast(at(2), payload()),
        };
        assert_eq!(refused, Err(BroadcastError::NotReady));
        if is_withdrawn {
            node.withdraw(at(3));
        }
        while let Some(now) = node.poll_timeout().filter(|now| *now < at(20_000)) {
            node.handle_timeout(now);
            drain(&mut node, now);
        }
        let is_owed = node.load().unacked_chunks > 0;
        assert_eq!(is_owed, is_withdrawn || is_brought, "{is_withdrawn} {is_brought}");
    }
}

#[test]
fn a_source_that_floods_a_reader_leaves_room_for_others() {
    let mut config = NodeConfig::new(ME, 4, incarnation(ME));
    let max = 100_000;
    config.limits.undelivered_bytes_max = max;
    config.limits.payload_bytes_max = max;
    let mut node = started(config);
    let mut next = [0; 4];
    let mut send = |node: &mut OverlayNode, source: u16, count: u64| {
        let before = node.counters().no_room;
        for _ in 0..count {
            let seq = &mut next[usize::from(source)];
            let frame = data(Site(source), *seq, Forward::Nobody, 872);
            node.handle_frame(at(1), Site(source), Frame::Data(frame)).expect("it is right");
            *seq += 1;
        }
        count - (node.counters().no_room - before)
    };
    assert_eq!(send(&mut node, 1, 1_000), 89, "of 100 of 1000 bytes");
    // In the application it counts as before.
    while let Some(event) = node.poll_event() {
        if let Event::Delivered { payload, .. } = event {
            node.handle_unread(Site(1), payload.len() + DELIVERY_BYTES);
        }
    }
    assert_eq!(send(&mut node, 1, 1), 0);
    assert!(send(&mut node, 2, 4) == 4 && send(&mut node, 3, 4) == 4);
    // As some of it is read, others have what that leaves.
    node.handle_read(Site(1), 29_000);
    assert!(send(&mut node, 2, 20) == 20 && send(&mut node, 1, 1) == 1);
    assert!(send(&mut node, 2, 100) < 20 && node.load().undelivered_bytes < max);
}

/// It had much unread, and what was sent again meanwhile found no room each time.
#[test]
fn a_site_that_says_that_it_has_room_gets_what_it_had_none_for() {
    let mut node = node();
    let ack = |node: &mut OverlayNode, now, site, next, beyond: &[u64]| {
        let beyond = crate::wire::bits_beyond(next, beyond.iter().copied());
        let ack = Ack { life: life(ME), next, beyond };
        node.handle_frame(now, Site(site), Frame::Ack(ack)).expect("it is right");
    };
    let sends = |node: &mut OverlayNode, now| {
        let to_it = |(to, data): (Site, Data)| (to == Site(2)).then_some(data.op.seq);
        sent_data(node, now).into_iter().filter_map(to_it).collect::<Vec<_>>()
    };
    let asks = |node: &mut OverlayNode, now| {
        let missed = Missed { life: life(ME), relay: ME, flaw: Flaw::Full, seqs: vec![0] };
        node.handle_frame(now, Site(2), Frame::Missed(missed)).expect("it may be");
        sends(node, now)
    };
    node.broadcast(at(0), Bytes::from(vec![0; 5_000])).expect("there is room");
    assert!(asks(&mut node, at(0)).contains(&0), "it leaves for the first time");
    [1, 3].into_iter().for_each(|site| ack(&mut node, at(10), site, 1, &[]));
    assert!(asks(&mut node, at(20)).is_empty(), "it has taken nothing yet");
    let mut again = Vec::new();
    for millis in (0..15_000).step_by(100) {
        node.handle_timeout(at(millis));
        again.extend(sends(&mut node, at(millis)).iter().map(|_| millis));
    }
    assert_eq!(again, [2_000, 6_000, 14_000]);
    node.broadcast(at(15_000), Bytes::from(vec![0; 5_000])).expect("there is room");
    assert_eq!(sends(&mut node, at(15_000)), [1]);
    [1, 3].into_iter().for_each(|site| ack(&mut node, at(15_010), site, 2, &[]));
    ack(&mut node, at(15_020), 2, 0, &[1]);
    assert!(sends(&mut node, at(15_020)).is_empty(), "it may have no room yet");
    // And no more than twice what it takes.
    let asked = [15_030, 15_040, 15_050].map(|millis| asks(&mut node, at(millis)).len());
    assert_eq!(asked, [1, 1, 0]);
}

/// Sequence numbers that a node asks the first site for, as there is room for them.
fn asked_again(node: &mut OverlayNode) -> Vec<u64> {
    let said = drain(node, at(2)).into_iter();
    let asked = said.filter_map(|it| match it.frame {
        Frame::Missed(missed) if missed.relay == it.to && missed.flaw == Flaw::Full => {
            Some(missed.seqs)
        }
        _ => None,
    });
    asked.flatten().collect()
}

#[test]
fn what_waited_for_another_and_found_no_room_is_asked_for_as_that_comes() {
    let mut config = NodeConfig::new(ME, 4, incarnation(ME));
    config.order = Order::SourceFifo;
    config.limits.reorder_bytes_max = 12_000;
    let mut node = started(config);
    let take = |node: &mut OverlayNode, seq| {
        let frame = Frame::Data(data(Site(1), seq, Forward::Nobody, 5_000));
        node.handle_frame(at(1), Site(1), frame).expect("it is right");
        asked_again(node)
    };
    (1..6).for_each(|seq| assert!(take(&mut node, seq).is_empty()));
    assert_eq!(node.counters().no_room, 3, "two wait");
    assert_eq!(take(&mut node, 0), [3, 4]);
    assert_eq!(take(&mut node, 4), [5], "the one that all wait for needs none");
    assert!(take(&mut node, 3).is_empty());
    assert!(take(&mut node, 5).is_empty());
    assert_eq!(node.counters().delivered, 6);
}

/// Its stream waits for an earlier one, and is full of what comes after that.
#[test]
fn what_others_bring_whole_and_has_no_room_yet_is_not_unavailable() {
    let mut config = NodeConfig::new(ME, 4, incarnation(ME));
    config.order = Order::SourceFifo;
    config.limits.reorder_bytes_max = 12_000;
    config.limits.owed_for = Duration::from_secs(100);
    let mut node = started(config);
    let op = |seq| OpId { source: Site(1), life: life(Site(1)), seq };
    node.receiver.skip(op(1), 2);
    for seq in [2, 3] {
        let frame = Frame::Data(data(Site(1), seq, Forward::Nobody, 5_000));
        node.handle_frame(at(1), Site(1), frame).expect("it is right");
    }
    node.handle_link(at(2), Site(1), LinkEvent::Down);
    assert!(matches!(node.fetch(at(2), op(1)), Ok(crate::event::Fetched::Asked)));
    let mut answers = 0;
    for now in (2..30_000).step_by(100).map(at) {
        node.handle_timeout(now);
        for sent in drain(&mut node, now) {
            let Frame::Fetch(fetch) = sent.frame else { continue };
            if fetch.op.seq == 0 && now < at(20_000) {
                continue; // It is slow.
            }
            answers += u64::from(fetch.op == op(1));
            let answer = data(Site(1), fetch.op.seq, Forward::Nobody, 5_000);
            let frame = Frame::Data(Data { is_repair: true, ..answer });
            node.handle_frame(now, sent.to, frame).expect("it is right");
        }
    }
    let events = std::iter::from_fn(|| node.poll_event()).filter_map(|event| match event {
        Event::Delivered { op, .. } => Some((op.seq, true)),
        Event::Unavailable { op } => Some((op.seq, false)),
        _ => None,
    });
    let events: Vec<(u64, bool)> = events.collect();
    assert_eq!(events, [0, 2, 3, 1].map(|seq| (seq, true)));
    assert_eq!(node.counters().no_room, answers - 1);
}

#[test]
fn what_found_no_room_is_asked_for_as_the_application_reads() {
    let mut config = NodeConfig::new(ME, 4, incarnation(ME));
    (config.limits.payload_bytes_max, config.limits.undelivered_bytes_max) = (6_000, 6_000);
    let mut node = started(config);
    for seq in 0..9 {
        let frame = Frame::Data(data(Site(1), seq, Forward::Nobody, 5_000));
        node.handle_frame(at(1), Site(1), frame).expect("it is right");
    }
    let counters = node.counters();
    assert_eq!((counters.delivered, counters.no_room), (2, 7));
    assert!(asked_again(&mut node).is_empty());
    let mut asked = Vec::new();
    for _ in 0..2 {
        assert!(node.poll_event().is_some());
        asked.extend(asked_again(&mut node));
    }
    assert_eq!(asked, [2, 3, 4], "as there is room for them");
    // In the application it counts as before.
    node.handle_unread(Site(1), 6_000);
    assert!(asked_again(&mut node).is_empty());
    node.handle_read(Site(1), 6_000);
    assert_eq!(asked_again(&mut node), [5, 6]);
}

/// It is sent again by its source; the relay has done its part.
#[test]
fn what_finds_no_room_at_its_receiver_is_not_held_against_its_relay() {
    for is_notice_first in [true, false] {
        let mut config = NodeConfig::new(ME, 4, incarnation(ME));
        (config.limits.payload_bytes_max, config.limits.undelivered_bytes_max) = (6_000, 6_000);
        let mut node = started(config);
        for seq in 0..9 {
            if is_notice_first {
                notice(&mut node, seq, seq).expect("it is right");
            }
            node.handle_frame(at(seq), Site(2), Frame::Data(relayed(seq))).expect("it is right");
            if !is_notice_first {
                notice(&mut node, seq, seq).expect("it is right");
            }
        }
        let dropped = node.counters().no_room;
        assert!(dropped > 0, "nobody reads");
        assert!(node.load().undelivered_bytes < 12_000 && node.load().unproven_bytes == 0);
        node.handle_timeout(at(5_000));
        let said = drain(&mut node, at(5_000));
        let told = said.iter().filter_map(|it| match &it.frame {
            Frame::Missed(missed) => Some((missed.relay, missed.flaw, missed.seqs.len() as u64)),
            _ => None,
        });
        assert_eq!(told.collect::<Vec<_>>(), [(Site(2), Flaw::Full, dropped)]);
    }
}

/// Its application hangs, and the relay has brought what was to come by it.
#[test]
fn a_receiver_without_room_does_not_keep_a_suspect_from_proving_itself() {
    for is_full_first in [true, false] {
        let mut node = node();
        let send = |node: &mut OverlayNode, now, session| {
            let credit = Frame::RelayCredit { session, limit_bytes: 1 << 20 };
            node.handle_frame(now, Site(1), credit).expect("it is right");
            node.broadcast(now, Bytes::from(vec![0; 5_000])).expect("there is room");
            sent_data(node, now)
        };
        node.set_plan(at(0), through_first()).expect("it is right");
        send(&mut node, at(0), 1);
        node.handle_timeout(at(4_500)); // Nobody has acknowledged.
        assert_eq!(node.suspects(), SiteSet::EMPTY.with(Site(1)));
        drain(&mut node, at(4_500));
        send(&mut node, at(5_600), 2);
        let ack = |node: &mut OverlayNode| {
            for site in [1, 3] {
                let ack = Ack { life: life(ME), next: 2, beyond: Bytes::new() };
                node.handle_frame(at(5_700), Site(site), Frame::Ack(ack)).expect("it is right");
            }
        };
        let full = Missed { life: life(ME), relay: Site(1), flaw: Flaw::Full, seqs: vec![1] };
        if !is_full_first {
            ack(&mut node);
        }
        node.handle_frame(at(5_700), Site(2), Frame::Missed(full)).expect("it may be");
        if is_full_first {
            ack(&mut node);
        }
        assert_eq!(node.suspects(), SiteSet::EMPTY);
        let again = sent_data(&mut node, at(5_700));
        assert!(again.iter().any(|(to, data)| *to == Site(2) && data.op.seq == 1), "{again:?}");
    }
}

#[test]
fn a_receiver_that_is_full_gets_it_again_and_makes_no_relay_a_suspect() {
    for (flaw, suspicions) in [(Flaw::Full, 0), (Flaw::Absent, 1)] {
        let mut node = node();
        node.set_plan(at(0), through_first()).expect("it is right");
        let credit = Frame::RelayCredit { session: 1, limit_bytes: 1 << 20 };
        node.handle_frame(at(0), Site(1), credit).expect("it is right");
        for _ in 0..4 {
            node.broadcast(at(0), vec![7; 5_000].into()).expect("there is room");
        }
        assert_eq!(sent_data(&mut node, at(0)).len(), 4, "to the relay");
        let seqs = (0..4).collect();
        let missed = Missed { life: life(ME), relay: Site(1), flaw, seqs };
        node.handle_frame(at(600), Site(2), Frame::Missed(missed)).expect("it may be");
        let again = sent_data(&mut node, at(600));
        assert_eq!(again.iter().filter(|(to, _)| *to == Site(2)).count(), 4, "{again:?}");
        assert_eq!(node.counters().suspicions, suspicions, "{flaw:?}");
    }
}
