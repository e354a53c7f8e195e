mod liars;
mod room;

use super::*;
use crate::event::{BroadcastError, Fault, LinkEvent, Transmit, TransmitKind};
use crate::plan::Tree;
use crate::wire::{
    Ack, ChunkDigest, Data, Fetch, Flaw, Floor, Forward, Frame, Missed, Notice, Passed, SEQ_MAX,
    WINDOW,
};
use bytes::Bytes;
use proptest::prelude::*;
use std::ops::Range;
use std::time::Duration;

const ME: Site = Site(0);

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn incarnation(site: Site) -> Incarnation {
    Incarnation(100 + u64::from(site.0))
}

fn life(site: Site) -> Life {
    Life::of(incarnation(site))
}

/// A node of four, with links to all.
fn node() -> OverlayNode {
    started(NodeConfig::new(ME, 4, incarnation(ME)))
}

fn started(mut config: NodeConfig) -> OverlayNode {
    // Those who say nothing in these tests are there all the same.
    config.limits.quiet_after = Duration::from_secs(1_000);
    config.limits.ping_period = Duration::from_secs(999);
    linked(config)
}

fn linked(config: NodeConfig) -> OverlayNode {
    let mut node = OverlayNode::new(at(0), config).expect("it is right");
    for site in 1..4 {
        let event = LinkEvent::Up { incarnation: incarnation(Site(site)) };
        node.handle_link(at(0), Site(site), event);
    }
    node
}

fn data(source: Site, seq: u64, forward: Forward, len: usize) -> Data {
    let op = OpId { source, life: life(source), seq };
    let payload = Bytes::from(vec![3; len]);
    Data { op, index: 0, count: 1, epoch: 0, forward, is_repair: false, is_body: false, payload }
}

fn drain(node: &mut OverlayNode, now: Timestamp) -> Vec<Transmit> {
    std::iter::from_fn(|| node.poll_transmit(now)).collect()
}

fn sent_data(node: &mut OverlayNode, now: Timestamp) -> Vec<(Site, Data)> {
    let data = |transmit: Transmit| match transmit.frame {
        Frame::Data(data) => Some((transmit.to, data)),
        _ => None,
    };
    drain(node, now).into_iter().filter_map(data).collect()
}

fn through_first() -> Plan {
    let forward = SiteSet::first(4).without(ME).without(Site(1));
    let tree = Tree { relay: Some(Site(1)), forward, rate: 8_000 };
    Plan::fixed(2, vec![vec![tree], vec![], vec![], vec![]]).expect("it is right")
}

#[test]
fn a_node_of_no_sites_or_too_many_or_another_is_refused_by_name() {
    let refused = |me: u16, sites| {
        let config = NodeConfig::new(Site(me), sites, Incarnation(1));
        OverlayNode::new(at(0), config).expect_err("it is wrong").to_string()
    };
    assert_eq!(refused(0, 0), "an overlay has 1 to 128 sites, not 0");
    assert_eq!(refused(0, 129), "an overlay has 1 to 128 sites, not 129");
    assert_eq!(refused(4, 4), "site s4 is not one of the 4 sites");
}

#[test]
fn a_plan_of_others_or_of_before_is_refused_and_the_one_in_use_stays() {
    let mut node = node();
    assert_eq!(node.set_plan(at(0), through_first()), Ok(()));
    let wrong = node.set_plan(at(0), Plan::direct(3, 9));
    assert_eq!(wrong, Err(PlanRefused::Sites { plan: 3, sites: 4 }));
    let stale = node.set_plan(at(0), Plan::direct(4, 1));
    assert_eq!(stale, Err(PlanRefused::Stale { epoch: 1, in_use: 2 }));
    let other = node.set_contingency(at(0), SiteSet::EMPTY.with(Site(1)), Plan::direct(4, 3));
    assert_eq!(other, Err(PlanRefused::Epoch { epoch: 3, in_use: 2 }));
    assert_eq!(node.epoch(), 2);
}

#[test]
fn a_site_that_takes_a_helper_though_it_is_heard_is_told_so() {
    let mut node = node();
    drain(&mut node, at(0));
    let floor = Frame::Floor(Floor { life: life(Site(1)), seq: 0, others: vec![] });
    let passed = Passed { from: Site(1), to: ME, frame: floor.to_bytes() };
    node.handle_frame(at(1), Site(2), Frame::Passed(passed)).expect("it is right");
    let sent: Vec<_> = drain(&mut node, at(1)).into_iter().map(|it| (it.to, it.frame)).collect();
    assert_eq!(sent, [(Site(1), Frame::View(node.view))]);
}

/// P10.
#[test]
fn a_relay_forwards_a_source_s_frame_once_and_never_that_of_another() {
    let mut node = node();
    let frame = data(Site(1), 0, Forward::AllOthers, 5_000);
    node.handle_frame(at(1), Site(1), Frame::Data(frame.clone())).expect("it is right");
    let sent = sent_data(&mut node, at(1));
    let to: SiteSet = sent.iter().map(|(to, _)| *to).collect();
    assert_eq!((to, sent.len()), (SiteSet::EMPTY.with(Site(2)).with(Site(3)), 2));
    assert!(sent.iter().all(|(_, data)| data.forward == Forward::Nobody));
    let fault = node.handle_frame(at(2), Site(2), Frame::Data(frame));
    assert_eq!(fault, Err(Fault::SecondRelay { source_site: Site(1) }));
    assert!(sent_data(&mut node, at(2)).is_empty());
}

#[test]
fn what_is_to_be_forwarded_to_no_site_or_back_goes_nowhere() {
    let mut node = node();
    let all = Forward::To(SiteSet::from_bits(u128::MAX));
    node.handle_frame(at(1), Site(1), Frame::Data(data(Site(1), 0, all, 10))).expect("it is right");
    let to: Vec<Site> = sent_data(&mut node, at(1)).into_iter().map(|(to, _)| to).collect();
    assert_eq!(to, [Site(2), Site(3)]);
}

#[test]
fn frames_of_strangers_and_about_this_site_are_faults() {
    let mut node = node();
    for from in [ME, Site(4), Site(999)] {
        let fault = node.handle_frame(at(1), from, Frame::RelayOpen);
        assert_eq!(fault, Err(Fault::Site { site: from }));
    }
    let own = Frame::Data(data(ME, 0, Forward::Nobody, 1));
    assert_eq!(node.handle_frame(at(1), Site(1), own), Err(Fault::Site { site: ME }));
    let nobody = Frame::Data(data(Site(9), 0, Forward::Nobody, 1));
    assert_eq!(node.handle_frame(at(1), Site(1), nobody), Err(Fault::Site { site: Site(9) }));
    let view = View { suspects: SiteSet::EMPTY.with(Site(4)), ..View::default() };
    let fault = node.handle_frame(at(1), Site(1), Frame::View(view));
    assert_eq!(fault, Err(Fault::Site { site: Site(4) }));
    node.handle_link(at(1), Site(1), LinkEvent::Down);
    let ignored =
        node.handle_frame(at(1), Site(1), Frame::Data(data(Site(1), 0, Forward::Nobody, 1)));
    assert_eq!(ignored, Ok(()));
    assert!(node.poll_event().is_none());
}

#[test]
fn a_blocked_link_takes_control_frames_only() {
    let mut node = node();
    drain(&mut node, at(0));
    node.handle_link(at(0), Site(2), LinkEvent::Blocked);
    node.broadcast(at(1), Bytes::from(vec![0; 5_000])).expect("there is room");
    let frame = Frame::Data(data(Site(2), 0, Forward::Nobody, 1));
    node.handle_frame(at(1), Site(2), frame).expect("it is right");
    let sent = drain(&mut node, at(1));
    let kinds = |site| {
        let to = sent.iter().filter(move |transmit| transmit.to == Site(site));
        to.map(|transmit| transmit.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(1), [TransmitKind::Data]);
    assert_eq!(kinds(2), [TransmitKind::Control]);
    node.handle_link(at(2), Site(2), LinkEvent::Writable);
    assert_eq!(sent_data(&mut node, at(2)).len(), 1);
}

#[test]
fn without_credit_nothing_goes_by_way_of_a_relay() {
    let mut node = node();
    node.set_plan(at(0), through_first()).expect("it is right");
    let asked = drain(&mut node, at(0));
    assert!(asked.iter().any(|it| it.to == Site(1) && it.frame == Frame::RelayOpen));
    let send = |node: &mut OverlayNode, now| {
        node.broadcast(now, Bytes::from(vec![0; 5_000])).expect("there is room");
        let relayed = |(_, data): &(Site, Data)| data.forward != Forward::Nobody;
        sent_data(node, now).iter().filter(|it| relayed(it)).count()
    };
    assert_eq!(send(&mut node, at(10)), 0);
    assert!(sent_data(&mut node, at(259)).is_empty(), "it waits for the relay's answer");
    assert_eq!(sent_data(&mut node, at(260)).len(), 3, "but not for ever");
    let grant = |session, limit_bytes| Frame::RelayCredit { session, limit_bytes };
    node.handle_frame(at(270), Site(1), grant(1, 11_000)).expect("it is right");
    assert_eq!([send(&mut node, at(280)), send(&mut node, at(290))], [1, 1]);
    assert_eq!(send(&mut node, at(300)), 0);
    assert_eq!(sent_data(&mut node, at(550)).len(), 3, "the credit is used up");
    assert_eq!(send(&mut node, at(560)), 0);
    // A grant may have been lost: it asks again.
    node.broadcast(at(1_300), Bytes::from(vec![0; 5_000])).expect("there is room");
    let asked = drain(&mut node, at(1_300));
    assert!(asked.iter().any(|it| it.to == Site(1) && it.frame == Frame::RelayOpen));
    node.handle_frame(at(1_310), Site(1), grant(2, 9_000)).expect("it is right");
    assert_eq!(send(&mut node, at(1_400)), 1);
}

/// Plans leave suspects out, so that none says how to find out whether one works again.
#[test]
fn a_suspect_proves_itself_though_the_plan_does_without_it() {
    let mut node = node();
    let grant = |node: &mut OverlayNode, now, session| {
        let credit = Frame::RelayCredit { session, limit_bytes: 1 << 20 };
        node.handle_frame(now, Site(1), credit).expect("it is right");
    };
    let relayed = |node: &mut OverlayNode, now| {
        node.broadcast(now, Bytes::from(vec![0; 5_000])).expect("there is room");
        let sent = sent_data(node, now);
        sent.iter().any(|(to, data)| *to == Site(1) && data.forward != Forward::Nobody)
    };
    node.set_plan(at(0), through_first()).expect("it is right");
    grant(&mut node, at(0), 1);
    assert!(relayed(&mut node, at(0)));
    node.handle_timeout(at(4_500)); // Nobody has acknowledged.
    assert_eq!(node.suspects(), SiteSet::EMPTY.with(Site(1)));
    node.set_plan(at(4_500), Plan::direct(4, 3)).expect("it is right");
    assert!(!relayed(&mut node, at(4_600)), "too early");
    grant(&mut node, at(5_600), 2);
    assert!(relayed(&mut node, at(5_600)));
    assert!(!relayed(&mut node, at(5_700)), "one frame at a time");
}

/// Nothing was given to the relay that it could be blamed for: others have filled its link.
#[test]
fn a_relay_whose_link_is_stuck_does_not_hold_up_what_has_no_way_yet() {
    let mut node = node();
    node.set_plan(at(0), through_first()).expect("it is right");
    let credit = Frame::RelayCredit { session: 1, limit_bytes: 1 << 20 };
    node.handle_frame(at(0), Site(1), credit).expect("it is right");
    node.handle_link(at(0), Site(1), LinkEvent::Blocked);
    node.broadcast(at(0), Bytes::from(vec![0; 5_000])).expect("there is room");
    assert_eq!(sent_data(&mut node, at(0)), []);
    let sent = loop {
        let now = node.poll_timeout().expect("the link is looked at again");
        assert!(now < at(6_000), "it waits for the link for ever");
        node.handle_timeout(now);
        let sent = sent_data(&mut node, now);
        if !sent.is_empty() {
            break sent;
        }
    };
    let to: SiteSet = sent.iter().map(|(to, _)| *to).collect();
    assert_eq!(to, SiteSet::EMPTY.with(Site(2)).with(Site(3)));
    assert!(sent.iter().all(|(_, data)| data.forward == Forward::Nobody));
}

/// It reads nothing, and its link alone has something to send for as long as that lasts.
#[test]
fn a_receiver_that_does_not_read_says_nothing_of_the_uplink() {
    let mut node = node();
    let send = |node: &mut OverlayNode, now| {
        node.broadcast(now, Bytes::from(vec![0; 5_000])).expect("there is room");
        sent_data(node, now).len()
    };
    assert_eq!(send(&mut node, at(0)), 3);
    node.handle_link(at(1), Site(3), LinkEvent::Blocked);
    assert_eq!((send(&mut node, at(2)), node.load().queued), (2, 1));
    assert_eq!(node.backlog(), Backlog::Nothing, "the others have room");
    for site in [1, 2] {
        let ack = Ack { life: life(ME), next: 2, beyond: Bytes::new() };
        node.handle_frame(at(3), Site(site), Frame::Ack(ack)).expect("it is right");
    }
    let lag_max = node.limits.lag_max;
    while node.load().unacked_chunks > 0 {
        let now = node.poll_timeout().expect("it is given up");
        assert!(now <= at(2) + lag_max, "it is owed for ever");
        node.handle_timeout(now);
        drain(&mut node, now);
        assert_eq!(node.backlog(), Backlog::Nothing);
    }
    assert_eq!(node.load().queued, 0, "what it is not owed any more");
}

#[test]
fn an_uplink_that_is_full_blocks_most_of_the_links_that_have_something_to_send() {
    let mut node = node();
    let backlog = |node: &mut OverlayNode, now| {
        drain(node, now);
        node.backlog()
    };
    assert_eq!(backlog(&mut node, at(0)), Backlog::Nothing);
    for site in [1, 2] {
        node.handle_link(at(1), Site(site), LinkEvent::Blocked);
    }
    node.broadcast(at(2), Bytes::from(vec![0; 5_000])).expect("there is room");
    assert_eq!(backlog(&mut node, at(2)), Backlog::Blocked);
    // All that is left to send is over one link.
    node.handle_link(at(3), Site(1), LinkEvent::Writable);
    assert_eq!(backlog(&mut node, at(3)), Backlog::Nothing);
    let late = at(5_500);
    node.handle_link(at(4), Site(1), LinkEvent::Blocked);
    node.handle_timeout(late);
    node.broadcast(late, Bytes::from(vec![0; 5_000])).expect("there is room");
    assert_eq!(backlog(&mut node, late), Backlog::Blocked, "most links are stuck");
}

#[test]
fn answers_to_fetches_take_a_tenth_of_the_uplink() {
    let mut node = node();
    let tree = Tree { relay: None, forward: SiteSet::EMPTY, rate: 40_000 };
    let plan = Plan::fixed(1, vec![vec![tree], vec![], vec![], vec![]]).expect("it is right");
    node.set_plan(at(0), plan).expect("it is right");
    // Held of another source: 12 MB.
    for seq in 0..400 {
        let frame = Frame::Data(data(Site(3), seq, Forward::Nobody, 30_000));
        node.handle_frame(at(0), Site(3), frame).expect("it is right");
    }
    while node.poll_event().is_some() {}
    for seq in 0..400 {
        let op = OpId { source: Site(3), life: life(Site(3)), seq };
        let fetch = Fetch { op, present: Bytes::new() };
        node.handle_frame(at(0), Site(1), Frame::Fetch(fetch)).expect("it is right");
    }
    let mut sent = 0;
    let mut now = at(0);
    while now < at(5_000) {
        node.handle_timeout(now);
        for (to, data) in sent_data(&mut node, now) {
            assert_eq!((to, data.is_repair, data.forward), (Site(1), true, Forward::Nobody));
            sent += data.payload.len();
        }
        now = node.poll_timeout().expect("there is more").max(now);
    }
    // 12 Mbit/s of 120, for five seconds: 7.5 MB, and what the bucket holds at first.
    assert!((7_300_000..7_700_000).contains(&sent), "{sent}");
}

/// A frame as it comes, in a buffer that others have come in.
fn in_a_buffer(frame: &Frame) -> (Bytes, Frame) {
    let mut bytes = frame.to_bytes().to_vec();
    let len = bytes.len();
    bytes.resize(64 << 10, 0);
    let buffer = Bytes::from(bytes);
    let decoded = Frame::decode(&buffer.slice(..len)).expect("it is one");
    assert_eq!(&decoded, frame);
    (buffer, decoded)
}

#[test]
fn a_small_payload_keeps_nothing_of_what_it_came_with() {
    let mut node = node();
    let passed = Passed { from: Site(1), to: Site(3), frame: Bytes::from(vec![1; 100]) };
    let frames = [
        (Site(1), Frame::Data(data(Site(1), 0, Forward::AllOthers, 5_000))),
        (Site(1), Frame::Data(data(Site(1), 4, Forward::Nobody, 1))),
        (Site(2), Frame::Data(data(Site(1), 7, Forward::Nobody, crate::CHUNK_BYTES - 1))),
        (Site(1), Frame::Passed(passed)),
    ];
    let buffers = frames.map(|(from, frame)| {
        let (buffer, frame) = in_a_buffer(&frame);
        node.handle_frame(at(1), from, frame).expect("it is right");
        buffer
    });
    let load = node.load();
    assert!(load.forward_bytes > 0 && load.unproven_bytes > 0 && load.held_bytes > 0);
    assert_eq!(node.passes.len(), 1);
    assert_eq!(buffers.map(|buffer| buffer.is_unique()), [true; 4]);
    let large = Frame::Data(data(Site(1), 9, Forward::Nobody, crate::CHUNK_BYTES));
    let (buffer, frame) = in_a_buffer(&large);
    node.handle_frame(at(2), Site(1), frame).expect("it is right");
    assert!(!buffer.is_unique(), "what is large is not copied");
}

/// The first word of it may be lost, such as with a helper.
#[test]
fn a_site_that_was_given_up_is_told_where_to_go_on_until_it_says_so() {
    let mut config = NodeConfig::new(ME, 4, incarnation(ME));
    (config.limits.payload_bytes_max, config.limits.unacked_bytes_max) = (6_000, 6_000);
    config.limits.memory_bytes_max = 0;
    let mut node = linked(config);
    let ack = |node: &mut OverlayNode, now, site, next| {
        let ack = Ack { life: life(ME), next, beyond: Bytes::new() };
        node.handle_frame(now, Site(site), Frame::Ack(ack)).expect("it is right");
    };
    let floors_of_a_second = |node: &mut OverlayNode, second: u64| {
        let tenths = (0..10).map(|tenth| at(second * 1_000 + tenth * 100));
        let told = tenths.map(|now| {
            for site in [1, 2, 3].map(Site) {
                node.handle_frame(now, site, Frame::Ping { at: 0 }).expect("it lives");
            }
            node.handle_timeout(now);
            let is_floor = |it: &Transmit| it.to == Site(2) && matches!(it.frame, Frame::Floor(_));
            drain(node, now).iter().filter(|it| is_floor(it)).count()
        });
        told.sum::<usize>()
    };
    node.broadcast(at(0), vec![0; 5_000].into()).expect("there is room");
    assert_eq!(floors_of_a_second(&mut node, 0), 0);
    [1, 3].into_iter().for_each(|site| ack(&mut node, at(1_000), site, 1));
    assert_eq!(node.broadcast(at(1_000), vec![0; 5_000].into()), Err(BroadcastError::NotReady));
    let told: Vec<usize> = (1..10).map(|second| floors_of_a_second(&mut node, second)).collect();
    assert!(node.gone.contains(Site(2)) && told.ends_with(&[1, 1, 1]), "{told:?}");
    ack(&mut node, at(10_000), 2, 1);
    assert_eq!(floors_of_a_second(&mut node, 11), 0);
    node.broadcast(at(12_000), vec![0; 5_000].into()).expect("there is room");
    assert!(sent_data(&mut node, at(12_000)).iter().any(|(to, _)| *to == Site(2)));
}

/// It has acknowledged all that it holds, and waits for an earlier one in silence.
#[test]
fn a_site_that_waits_for_what_was_given_up_is_told_again_until_it_goes_on() {
    let mut config = NodeConfig::new(ME, 4, incarnation(ME));
    config.limits.quiet_after = Duration::from_secs(1_000);
    let mut node = linked(config);
    for _ in 0..2 {
        node.broadcast(at(0), vec![0; 5_000].into()).expect("there is room");
    }
    let ack = |node: &mut OverlayNode, site, next, beyond: Vec<u64>| {
        let beyond = crate::wire::bits_beyond(next, beyond.into_iter());
        let ack = Ack { life: life(ME), next, beyond };
        node.handle_frame(at(1), Site(site), Frame::Ack(ack)).expect("it is right");
    };
    [1, 3].into_iter().for_each(|site| ack(&mut node, site, 2, vec![]));
    ack(&mut node, 2, 0, vec![1]);
    node.release(ME, life(ME), 1);
    drain(&mut node, at(1)); // It is lost.
    let floors = |node: &mut OverlayNode, seconds: Range<u64>| {
        let tenths = (seconds.start * 10..seconds.end * 10).map(|tenth| at(tenth * 100));
        let told = tenths.flat_map(|now| {
            node.handle_timeout(now);
            drain(node, now).into_iter().filter_map(|it| match it.frame {
                Frame::Floor(floor) => Some((it.to, floor.seq)),
                _ => None,
            })
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(floors(&mut node, 1..4), [(Site(2), 2); 3]);
    ack(&mut node, 2, 2, vec![]);
    assert_eq!(floors(&mut node, 4..8), []);
}

/// Its floor may have been lost.
#[test]
fn a_source_that_does_not_have_what_it_seems_to_owe_is_told_what_is_here() {
    let mut node = node();
    let frame = Frame::Data(data(Site(1), 3, Forward::Nobody, 9));
    node.handle_frame(at(1), Site(1), frame).expect("it is right");
    let acks = |node: &mut OverlayNode, now| {
        let said = drain(node, now).into_iter();
        said.filter(|it| it.to == Site(1) && matches!(it.frame, Frame::Ack(_))).count()
    };
    assert_eq!(acks(&mut node, at(1)), 1);
    let op = OpId { source: Site(1), life: life(Site(1)), seq: 0 };
    for (from, expected) in [(Site(2), 0), (Site(1), 1)] {
        let have_not = Frame::HaveNot { op, until: 2 };
        node.handle_frame(at(100), from, have_not).expect("it may be");
        assert_eq!(acks(&mut node, at(100)), expected, "{from:?}");
    }
}

#[test]
fn what_others_suspect_is_told_and_nothing_else() {
    let mut node = node();
    node.set_plan(at(0), through_first()).expect("it is right");
    let view = View { version: 1, suspects: SiteSet::EMPTY.with(Site(1)), ..View::default() };
    node.handle_frame(at(1), Site(2), Frame::View(view)).expect("it is right");
    let event = node.poll_event();
    assert!(matches!(event, Some(Event::Suspect { relay: Site(1), by: Site(2), .. })), "{event:?}");
    assert_eq!(node.suspects(), SiteSet::EMPTY);
}

/// The first of four is the source, the second its relay, and this node is the last of them.
fn relayed(seq: u64) -> Data {
    Data { forward: Forward::Nobody, ..data(Site(1), seq, Forward::Nobody, 5_000) }
}

fn notice(node: &mut OverlayNode, now: u64, seq: u64) -> Result<(), Fault> {
    let chunks = vec![(seq, ChunkDigest::of(&relayed(seq)))];
    let notice = Notice { life: life(Site(1)), relay: Site(2), chunks };
    node.handle_frame(at(now), Site(1), Frame::Notice(notice))
}

#[test]
fn what_a_relay_brings_is_delivered_once_its_source_has_said_what_it_is() {
    let mut node = node();
    node.handle_frame(at(1), Site(2), Frame::Data(relayed(0))).expect("it may come first");
    assert!(node.poll_event().is_none());
    notice(&mut node, 2, 0).expect("it is right");
    assert!(matches!(node.poll_event(), Some(Event::Delivered { .. })));
    notice(&mut node, 3, 1).expect("it is right");
    node.handle_frame(at(4), Site(2), Frame::Data(relayed(1))).expect("it is right");
    assert!(matches!(node.poll_event(), Some(Event::Delivered { .. })));
    // From its source it is what it is.
    node.handle_frame(at(5), Site(1), Frame::Data(relayed(2))).expect("it is right");
    assert!(matches!(node.poll_event(), Some(Event::Delivered { .. })));
}

#[test]
fn what_a_relay_has_changed_is_not_taken_and_its_source_is_told_by_whom() {
    let mut node = node();
    notice(&mut node, 1, 0).expect("it is right");
    drain(&mut node, at(1));
    let changed = Data { payload: Bytes::from(vec![4; 5_000]), ..relayed(0) };
    let fault = node.handle_frame(at(2), Site(2), Frame::Data(changed));
    assert_eq!(fault, Err(Fault::Changed { relay: Site(2), op: relayed(0).op }));
    let said: Vec<Transmit> = drain(&mut node, at(2));
    let missed = Missed { life: life(Site(1)), relay: Site(2), flaw: Flaw::Changed, seqs: vec![0] };
    assert!(said.iter().any(|it| it.to == Site(1) && it.frame == Frame::Missed(missed.clone())));
    node.handle_frame(at(3), Site(1), Frame::Data(relayed(0))).expect("it is right");
    assert!(matches!(node.poll_event(), Some(Event::Delivered { .. })));
}

/// Made up before its source has spoken: nobody else's chunks are the worse for it.
#[test]
fn what_a_site_makes_up_before_its_notice_is_in_the_way_of_nothing() {
    let mut node = node();
    let made_up = Data { payload: Bytes::from(vec![4; 5_000]), ..relayed(0) };
    node.handle_frame(at(1), Site(3), Frame::Data(made_up)).expect("nobody knows yet");
    node.handle_frame(at(1), Site(2), Frame::Data(relayed(0))).expect("it may come first");
    let chunks = [0, 1].map(|seq| (seq, ChunkDigest::of(&relayed(seq)))).into();
    let notice = Notice { life: life(Site(1)), relay: Site(2), chunks };
    node.handle_frame(at(2), Site(1), Frame::Notice(notice)).expect("it is right");
    node.handle_frame(at(3), Site(2), Frame::Data(relayed(1))).expect("it is right");
    for seq in 0..2 {
        let event = node.poll_event();
        assert!(matches!(event, Some(Event::Delivered { op, .. }) if op.seq == seq), "{event:?}");
    }
    let said = drain(&mut node, at(3));
    let blames = |it: &Transmit| match &it.frame {
        Frame::Missed(missed) => Some((missed.relay, missed.flaw)),
        _ => None,
    };
    let blamed: Vec<_> = said.iter().filter_map(blames).collect();
    assert!(blamed.iter().all(|(relay, _)| *relay == Site(3)), "{blamed:?}");
}

/// The link to the source takes nothing meanwhile, so what is told there waits.
#[test]
fn a_flood_of_changed_chunks_is_told_once_each() {
    let mut node = node();
    (0..300).for_each(|seq| notice(&mut node, 1, seq).expect("it is right"));
    drain(&mut node, at(1));
    node.handle_link(at(1), Site(1), LinkEvent::Blocked);
    for round in 0..100 {
        let changed = Bytes::from(vec![4; 100 + round]);
        for seq in 0..300 {
            let changed = Data { payload: changed.clone(), ..relayed(seq) };
            let fault = node.handle_frame(at(2), Site(2), Frame::Data(changed));
            assert!(matches!(fault, Err(Fault::Changed { .. })), "{fault:?}");
        }
    }
    node.handle_link(at(3), Site(1), LinkEvent::Writable);
    let said = drain(&mut node, at(3));
    let told = said.iter().filter_map(|it| match &it.frame {
        Frame::Missed(missed) if missed.flaw == Flaw::Changed => Some(missed.seqs.clone()),
        _ => None,
    });
    assert_eq!(told.flatten().collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
}

#[test]
fn released_operations_are_neither_kept_nor_sent() {
    let mut node = node();
    node.handle_link(at(0), Site(2), LinkEvent::Blocked);
    let op = node.broadcast(at(1), Bytes::from(vec![0; 5_000])).expect("there is room");
    drain(&mut node, at(1));
    node.release(ME, life(ME), op.seq + 1);
    assert_eq!(node.load().unacked_bytes, 0);
    node.handle_link(at(2), Site(2), LinkEvent::Writable);
    let sent = drain(&mut node, at(2));
    assert!(
        sent.iter().all(|it| matches!(it.frame, Frame::Floor(Floor { seq: 1, .. }))),
        "{sent:?}"
    );
    assert_eq!(sent.len(), 3);
    let fetch = Fetch { op, present: Bytes::new() };
    node.handle_frame(at(3), Site(2), Frame::Fetch(fetch)).expect("it is right");
    let sent = drain(&mut node, at(3));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].frame, Frame::HaveNot { op, until: 2 * SEQ_MAX });
}

/// Any frame that decodes, of anybody.
fn frames() -> impl Strategy<Value = Frame> {
    let site = || (0..6u16).prop_map(Site);
    let lives =
        || prop_oneof![Just(Life(1)), Just(life(Site(1))), Just(life(Site(2))), Just(life(ME))];
    let seqs = || prop_oneof![0..40u64, Just(WINDOW), Just(1 << 62)];
    let ops = move || {
        (site(), lives(), seqs()).prop_map(|(source, life, seq)| OpId { source, life, seq })
    };
    let bytes = || {
        proptest::collection::vec(any::<u8>(), 0..9).prop_map(|mut bytes| {
            bytes.push(1);
            Bytes::from(bytes)
        })
    };
    let forward = prop_oneof![
        Just(Forward::Nobody),
        Just(Forward::AllOthers),
        any::<u128>().prop_map(|bits| Forward::To(SiteSet::from_bits(bits))),
    ];
    let data = (ops(), 0..3u32, 1..4u32, forward, any::<[bool; 2]>());
    let data = data.prop_map(|(op, index, count, forward, [is_repair, is_body])| {
        let index = index.min(count - 1);
        let len = if index + 1 < count { crate::CHUNK_BYTES } else { 3 };
        let payload = Bytes::from(vec![0; len]);
        Frame::Data(Data { op, index, count, epoch: 0, forward, is_repair, is_body, payload })
    });
    let digests = any::<u8>().prop_map(|byte| ChunkDigest([byte; 16]));
    let notices = (lives(), site(), proptest::collection::vec((seqs(), digests), 0..5));
    let notices =
        notices.prop_map(|(life, relay, chunks)| Frame::Notice(Notice { life, relay, chunks }));
    let flaws = [Flaw::Absent, Flaw::Changed, Flaw::Late, Flaw::Full];
    let flaw = proptest::sample::select(flaws.to_vec());
    let missed = (lives(), site(), flaw, proptest::collection::vec(seqs(), 0..5));
    let missed = missed
        .prop_map(|(life, relay, flaw, seqs)| Frame::Missed(Missed { life, relay, flaw, seqs }));
    let range = (seqs(), 1..=WINDOW).prop_map(|(from, len)| (from, from + len));
    let floors = (lives(), seqs(), proptest::collection::vec(range, 0..4));
    let floors = floors.prop_map(|(life, seq, others)| Frame::Floor(Floor { life, seq, others }));
    prop_oneof![
        4 => data,
        2 => (lives(), seqs(), bytes())
            .prop_map(|(life, next, beyond)| Frame::Ack(Ack { life, next, beyond })),
        1 => floors,
        1 => Just(Frame::RelayOpen),
        1 => (any::<u32>(), any::<u64>())
            .prop_map(|(session, limit_bytes)| Frame::RelayCredit { session, limit_bytes }),
        1 => (ops(), bytes()).prop_map(|(op, present)| Frame::Fetch(Fetch { op, present })),
        1 => (ops(), seqs()).prop_map(|(op, until)| Frame::HaveNot { op, until }),
        1 => (0..9u32, 0..64u128, 0..64u128).prop_map(|(version, suspects, unreached)| Frame::View(View {
            version,
            suspects: SiteSet::from_bits(suspects),
            unreached: SiteSet::from_bits(unreached),
        })),
        2 => notices,
        2 => missed,
        1 => (site(), site(), bytes())
            .prop_map(|(from, to, frame)| Frame::Passed(Passed { from, to, frame })),
        1 => any::<u64>().prop_map(|at| Frame::Ping { at }),
        1 => any::<u64>().prop_map(|at| Frame::Pong { at }),
    ]
}

/// Takes all that a node sends, each a frame that decodes as it was, and what it keeps then, which
/// is bounded.
fn send_all(node: &mut OverlayNode, now: Timestamp) -> Result<Load, TestCaseError> {
    for transmit in drain(node, now) {
        prop_assert!(transmit.to != ME && transmit.to.index() < 4);
        let bytes = transmit.frame.to_bytes();
        prop_assert_eq!(Frame::decode(&bytes), Ok(transmit.frame));
    }
    let load = node.load();
    prop_assert!(load.reorder_bytes <= 32 << 20 && load.forward_bytes_root <= 8 << 20);
    prop_assert!(load.fetches <= 256 && load.control == 0);
    Ok(load)
}

proptest! {
    /// Hostile peers: whatever they send, in whatever order, nothing breaks and nothing grows.
    #[test]
    fn no_frames_of_peers_break_a_node_or_make_it_grow(
        frames in proptest::collection::vec((1..6u16, frames(), 0..200u64), 1..300),
    ) {
        let mut node = node();
        node.set_plan(at(0), through_first()).expect("it is right");
        let mut now = at(0);
        for (index, (from, frame, pause)) in frames.into_iter().enumerate() {
            now = now + Duration::from_millis(pause);
            let _ = node.handle_frame(now, Site(from), frame);
            if index % 7 == 0 {
                let _ = node.broadcast(now, Bytes::from(vec![0; 2_000 * (index % 40)]));
            }
            node.handle_timeout(now);
            let load = send_all(&mut node, now)?;
            prop_assert!(load.unproven_bytes <= (8 << 20) + (64 << 10));
            while node.poll_event().is_some() {}
        }
    }
}
