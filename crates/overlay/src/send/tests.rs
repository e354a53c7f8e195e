use super::late::Late;
use super::*;
use crate::wire::bits_beyond;
use std::time::Duration;

const ME: Site = Site(0);
const RELAY: Site = Site(1);
const UP: SiteSet = SiteSet::EMPTY;

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn others() -> SiteSet {
    SiteSet::first(4).without(ME)
}

fn sender() -> Sender {
    let (relay_timer_initial, relay_timer_margin) =
        (Duration::from_secs(1), Duration::from_millis(25));
    let limits = Limits { relay_timer_initial, relay_timer_margin, ..Limits::default() };
    Sender::new(ME, 4, Life(7), &limits)
}

fn push(sender: &mut Sender, len: usize) -> Range<u64> {
    sender.push(Payload::cut(Bytes::from(vec![1; len])), SiteSet::first(64), UP)
}

fn ack(next: u64, beyond: &[u64]) -> Ack {
    Ack { life: Life(7), next, beyond: bits_beyond(next, beyond.iter().copied()) }
}

fn relayed() -> Option<Relayed> {
    Some(Relayed { relay: RELAY, forward: others().without(RELAY) })
}

/// Sends a chunk by way of the relay.
fn relay(sender: &mut Sender, now: Timestamp, seq: u64) -> Data {
    let (to, is_relayed) = sender.route(now, seq, 3, others(), relayed(), None);
    assert!(is_relayed && to == SiteSet::EMPTY.with(RELAY));
    sender.transmit(now, seq, RELAY).expect("it is owed")
}

#[test]
fn an_operation_ends_when_all_have_acknowledged_every_chunk() {
    let (mut sender, mut events) = (sender(), VecDeque::new());
    let seqs = push(&mut sender, 70_000);
    assert_eq!(seqs, 0..3);
    for seq in seqs {
        let (to, _) = sender.route(at(0), seq, 1, others(), None, None);
        assert_eq!(to, others());
        to.iter().for_each(|to| assert!(sender.transmit(at(1), seq, to).is_some()));
    }
    let mut hear = |from: u16, ack: Ack| {
        let progress = sender.on_ack(at(9), Site(from), &ack, &mut events).expect("it is right");
        (events.drain(..).count(), progress.finished.len())
    };
    assert_eq!(hear(1, ack(1, &[2])), (0, 0));
    assert_eq!(hear(1, ack(3, &[])), (1, 0));
    assert_eq!(hear(1, ack(3, &[])), (0, 0));
    assert_eq!(hear(2, ack(0, &[1, 2])), (0, 0));
    assert_eq!(hear(2, ack(3, &[])), (1, 0));
    assert_eq!(hear(3, ack(3, &[])), (2, 1));
    assert_eq!((sender.unacked_bytes(), sender.chunk_count(), sender.next_seq()), (0, 0, 3));
    assert_eq!(sender.poll_timeout(), None);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_a_fault_and_of_another_life_nothing() {
    let (mut sender, mut events) = (sender(), VecDeque::new());
    push(&mut sender, 10);
    for wrong in [ack(2, &[]), ack(0, &[1])] {
        let fault = sender.on_ack(at(1), RELAY, &wrong, &mut events).expect_err("it is wrong");
        assert_eq!(fault, Fault::AckBeyond { seq: 2, sent: 1 });
    }
    let other_life = Ack { life: Life(6), ..ack(99, &[]) };
    assert!(sender.on_ack(at(1), RELAY, &other_life, &mut events).is_ok());
    assert!(events.is_empty());
}

#[test]
fn only_those_behind_the_relay_that_have_not_acknowledged_are_sent_to_again() {
    let (mut sender, mut events) = (sender(), VecDeque::new());
    push(&mut sender, 10_000);
    let data = relay(&mut sender, at(5), 0);
    assert_eq!((data.forward, data.is_repair), (Forward::AllOthers, false));
    for site in [1, 3] {
        sender.on_ack(at(50), Site(site), &ack(1, &[]), &mut events).expect("it is right");
    }
    assert_eq!(sender.expire(at(1_004)), None);
    let late = sender.expire(at(1_005)).expect("a second after it left");
    let to = SiteSet::EMPTY.with(Site(2));
    assert_eq!(late, Late { seq: 0, to, blamed: None, missed: None });
    assert_eq!(sender.queue_again(0, late.to), late.to);
    assert_eq!(sender.queue_again(0, late.to), SiteSet::EMPTY, "it is queued");
    let again = sender.transmit(at(1_010), 0, Site(2)).expect("it is owed");
    assert_eq!((again.forward, again.is_repair), (Forward::Nobody, true));
}

#[test]
fn a_relay_is_blamed_by_its_source_if_it_says_nothing_itself() {
    let blamed = |acked: &[u16], later: Option<u16>| {
        let (mut sender, mut events) = (sender(), VecDeque::new());
        push(&mut sender, 10_000);
        push(&mut sender, 10_000);
        relay(&mut sender, at(5), 0);
        sender.route(Timestamp::ZERO, 1, 3, others(), None, None);
        others().iter().for_each(|to| assert!(sender.transmit(at(6), 1, to).is_some()));
        for site in acked {
            sender.on_ack(at(50), Site(*site), &ack(1, &[]), &mut events).expect("it is right");
        }
        if let Some(site) = later {
            sender.on_ack(at(50), Site(site), &ack(0, &[1]), &mut events).expect("it is right");
        }
        sender.expire(at(1_005)).expect("some are late").blamed
    };
    assert_eq!(blamed(&[2, 3], None), Some(RELAY));
    assert_eq!(blamed(&[], Some(3)), Some(RELAY));
    assert_eq!(blamed(&[1], None), None, "those behind it say what they miss");
    assert_eq!(blamed(&[2, 3], Some(1)), None, "it gets other things");
}

/// The uplink is slow: the relay has acknowledged the first chunk, and the second waits on the
/// link.
#[test]
fn what_is_on_its_way_to_a_relay_still_is_nobodys_fault_and_is_not_sent_again() {
    let (mut sender, mut events) = (sender(), VecDeque::new());
    sender.limits.relay_timer_initial = Duration::from_millis(300);
    for seq in 0..3 {
        push(&mut sender, 10_000);
        relay(&mut sender, at(5 + seq), seq);
    }
    let mut hear = |sender: &mut Sender, now, from: u16, ack| {
        sender.on_ack(now, Site(from), &ack, &mut events).expect("it is right");
    };
    hear(&mut sender, at(250), 1, ack(1, &[]));
    assert!(!sender.on_missed(at(260), 1, (RELAY, Site(2)), false), "it cannot have it");
    assert!(sender.on_missed(at(260), 0, (RELAY, Site(2)), false), "it has that one");
    assert!(sender.on_missed(at(260), 1, (RELAY, Site(3)), true), "nor have changed it");
    let overdue = |sender: &mut Sender, now| {
        let mut all: Vec<_> = std::iter::from_fn(|| sender.expire(now)).collect();
        all.retain(|late| !late.to.is_empty());
        all
    };
    let first = overdue(&mut sender, at(310));
    assert_eq!(first.iter().map(|late| late.seq).collect::<Vec<_>>(), [0]);
    // It acknowledges what left later: then it has had the second for long.
    hear(&mut sender, at(400), 1, ack(1, &[2]));
    let then = overdue(&mut sender, at(551));
    let second = then.iter().find(|late| late.seq == 1).expect("it is late now");
    assert_eq!(second.missed, Some((RELAY, SiteSet::EMPTY.with(Site(2)))));
}

#[test]
fn a_relay_is_slow_only_beside_the_other_relays() {
    let (mut sender, mut events) = (sender(), VecDeque::new());
    assert_eq!(sender.relay_patience(RELAY), Duration::from_secs(1));
    let way = Relayed { relay: Site(2), forward: others().without(Site(2)) };
    for seq in 0..8 {
        push(&mut sender, 1_000);
        sender.route(at(0), seq, 3, others(), Some(way), None);
        sender.transmit(at(0), seq, Site(2)).expect("it is owed");
    }
    for from in way.forward.iter() {
        sender.on_ack(at(900), from, &ack(8, &[]), &mut events).expect("it is right");
    }
    assert_eq!(sender.relay_patience(RELAY), Duration::from_millis(1_000 + 2 * 900));
    assert_eq!(sender.relay_patience(Site(2)), Duration::from_secs(1), "no other was measured");
}

/// One that says nothing more is not waited for, nor one that brings a little now and then for
/// ever.
#[test]
fn a_relay_that_stops_or_takes_for_ever_is_not_waited_for() {
    for (acks_until, given_up_at) in [(900, 1_900), (60_000, 2_001 + 5)] {
        let (mut sender, mut events) = (sender(), VecDeque::new());
        for seq in 0..200 {
            push(&mut sender, 1_000);
            relay(&mut sender, at(1 + seq / 200), seq);
        }
        let mut acked = 0;
        let late = (0..600).map(|step| at(step * 10)).find(|now| {
            let millis = u64::try_from(now.since(Timestamp::ZERO).as_millis()).unwrap();
            if millis % 100 == 0 && millis <= acks_until {
                acked += 1;
                sender.on_ack(*now, RELAY, &ack(acked, &[]), &mut events).expect("it is right");
            }
            std::iter::from_fn(|| sender.expire(*now))
                .any(|late| late.seq == 150 && !late.to.is_empty())
        });
        let late = late.expect("it is given up");
        assert!(late <= at(given_up_at) + Duration::from_millis(10), "{late:?} {acks_until}");
    }
}

#[test]
fn what_waits_for_a_relay_can_go_another_way_and_nobody_gets_it_twice() {
    let mut sender = sender();
    push(&mut sender, 10_000);
    let half = Some(Relayed { relay: RELAY, forward: SiteSet::EMPTY.with(Site(3)) });
    let (to, _) = sender.route(Timestamp::ZERO, 0, 1, others(), half, Some(4));
    assert_eq!(to, SiteSet::EMPTY.with(RELAY).with(Site(2)));
    assert!(sender.transmit(at(1), 0, Site(2)).is_some());
    assert_eq!(sender.waiting_for(RELAY), [0]);
    assert_eq!(sender.unroute(0), half.map(|half| (half, Some(4))));
    // The next relay is to serve all others; one of them has it.
    let next = Some(Relayed { relay: Site(3), forward: others().without(Site(3)) });
    let (to, is_relayed) = sender.route(Timestamp::ZERO, 0, 1, others(), next, None);
    assert!(is_relayed && to == SiteSet::EMPTY.with(Site(3)));
    let data = sender.transmit(at(2), 0, Site(3)).expect("it is owed");
    assert_eq!(data.forward, Forward::To(SiteSet::EMPTY.with(RELAY)));
    assert_eq!(sender.unroute(0), None, "it has left");
}

#[test]
fn a_site_that_is_given_up_is_told_where_it_can_go_on() {
    let (mut sender, mut events) = (sender(), VecDeque::new());
    push(&mut sender, 10);
    push(&mut sender, 70_000);
    sender.on_ack(at(1), Site(3), &ack(0, &[1]), &mut events).expect("it is right");
    assert_eq!(sender.floor(Site(3)), 0);
    let (owed, _) = sender.give_up_below(1, &mut events);
    assert_eq!(owed, others());
    assert_eq!(sender.floor(Site(3)), 1, "where an operation begins, not within");
    let progress = sender.on_ack(at(2), Site(3), &ack(0, &[1]), &mut events);
    assert!(progress.expect("it is right").needs_floor);
    sender.give_up_site(Site(3), &mut events);
    assert_eq!(sender.floor(Site(3)), 4);
}

#[test]
fn what_nobody_acknowledges_is_given_up_a_time_after_it_had_its_turn() {
    let (mut sender, mut events) = (sender(), VecDeque::new());
    push(&mut sender, 10);
    push(&mut sender, 10);
    assert_eq!(sender.poll_timeout(), None, "who waits for pacing is not late");
    sender.route(at(0), 0, 0, others(), None, None);
    assert_eq!(sender.poll_timeout(), Some(at(30_000)));
    assert_eq!(sender.give_up_lagging(at(29_999), &mut events).0, SiteSet::EMPTY);
    let (sites, finished) = sender.give_up_lagging(at(30_000), &mut events);
    assert_eq!((sites, finished.len()), (others(), 1));
    sender.route(at(30_000), 1, 0, others(), None, None);
    assert_eq!(sender.poll_timeout(), Some(at(60_000)));
}
