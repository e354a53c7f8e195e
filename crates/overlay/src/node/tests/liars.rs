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
