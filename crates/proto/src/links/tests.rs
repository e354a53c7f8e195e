use super::*;
use crate::call::LinkView;
use crate::link::Hello;

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn links(me: u64) -> Links {
    let me = NodeLife { node: node(me), life: Incarnation::of_random(me << 8) };
    Links::new(me, &Limits::default(), 1, 7)
}

fn link(peer: u64, nonce: u64, is_dialler: bool) -> Link {
    let peer = Hello {
        node: node(peer),
        incarnation: Incarnation::of_random(peer << 8),
        advertised: vec!["tcp://127.0.0.1:1".parse().unwrap()],
        frame_bytes_max: 1 << 20,
    };
    let (nonce, scheme) = (LinkNonce(nonce), "tcp");
    Link { peer, nonce, is_dialler, scheme, principal: None, remote: None }
}

#[test]
fn both_ends_prefer_the_connection_dialled_by_the_lower_node() {
    let (mut low, mut high) = (links(1), links(2));
    low.handle_up(Timestamp::ZERO, &link(2, 10, false));
    low.handle_up(Timestamp::ZERO, &link(2, 11, true));
    high.handle_up(Timestamp::ZERO, &link(1, 11, false));
    high.handle_up(Timestamp::ZERO, &link(1, 10, true));
    let preferred = |links: &Links, peer| links.nonce(links.current(node(peer)).unwrap());
    assert_eq!(preferred(&low, 2), Some(LinkNonce(11)));
    assert_eq!(preferred(&high, 1), Some(LinkNonce(11)));
}

#[test]
fn a_failed_dial_is_followed_by_a_pause_that_grows_and_ends() {
    let mut links = links(1);
    links.configure(node(2), vec!["tcp://127.0.0.1:1".parse().unwrap()]);
    let mut now = Timestamp::ZERO;
    for failures in 0..12_u32 {
        assert_eq!(links.way(now, node(2)), Way::Dialable);
        links.dial(node(2));
        assert_eq!(links.poll_dial(), Some(node(2)));
        links.handle_dial_failed(now, node(2));
        assert_eq!(links.way(now, node(2)), Way::Dead);
        let ceiling = Duration::from_millis(50) * 2_u32.pow(failures);
        now = now + ceiling.min(Duration::from_secs(5));
    }
    let (id, _) = links.handle_up(Timestamp::ZERO, &link(2, 5, true));
    assert_eq!(links.way(now, node(2)), Way::Up(id));
    links.handle_down(Timestamp::ZERO, id);
    assert_eq!(links.way(now, node(2)), Way::Dialable);
    assert!(links.is_dead(node(2), LinkNonce(5)));
}

/// Frames that came by another connection, or left by it before it ended, may be on their way.
#[test]
fn a_connection_is_the_only_one_since_the_last_other_one_ended() {
    let mut links = links(1);
    let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
    let (first, _) = links.handle_up(at(1), &link(2, 10, true));
    assert_eq!(links.sole_since(first), Some(at(1)));
    let (second, _) = links.handle_up(at(2), &link(2, 11, true));
    assert_eq!([first, second].map(|link| links.sole_since(link)), [None; 2]);
    links.handle_down(at(3), second);
    assert_eq!([first, second].map(|link| links.sole_since(link)), [Some(at(3)), None]);
    links.handle_down(at(4), first);
    let (third, _) = links.handle_up(at(5), &link(2, 12, true));
    assert_eq!(links.sole_since(third), Some(at(5)), "it came after all others had ended");
}

/// The node always had a connection: what shows that one was lost is not that it has none.
#[test]
fn what_went_by_a_connection_may_be_lost_once_that_has_ended_though_there_is_another() {
    let (mut links, now) = (links(2), Timestamp::ZERO);
    let (first, _) = links.handle_up(now, &link(1, 10, true));
    let before = links.turn();
    let (second, _) = links.handle_up(now, &link(1, 11, false));
    let after = links.turn();
    assert!(links.lost_before(node(1)) <= before, "both are up");
    assert_eq!(links.current(node(1)), Some(second), "the lower node has dialled it");
    links.handle_down(now, first);
    let lost_before = links.lost_before(node(1));
    assert!(before < lost_before && lost_before <= after, "what took the second is not lost");
    links.handle_down(now, second);
    assert!(links.lost_before(node(1)) > after);
    let now_sent = links.turn();
    links.handle_up(now, &link(1, 12, true));
    assert!(links.lost_before(node(1)) <= now_sent, "it has waited for the next one");
}

#[test]
fn a_connection_that_nothing_went_by_takes_nothing_with_it() {
    let (mut links, now) = (links(1), Timestamp::ZERO);
    let (first, _) = links.handle_up(now, &link(2, 10, true));
    let sent = links.turn();
    let (other, _) = links.handle_up(now, &link(2, 11, false));
    links.handle_down(now, other);
    assert!(links.lost_before(node(2)) <= sent);
    // It is the only one before the first goes, and takes what is sent then.
    let (other, _) = links.handle_up(now, &link(2, 12, false));
    links.handle_down(now, first);
    let sent = links.turn();
    assert!(links.lost_before(node(2)) <= sent);
    links.handle_down(now, other);
    assert!(links.lost_before(node(2)) > sent);
}

#[test]
fn what_was_lost_stays_so_where_the_node_was_forgotten() {
    let (mut links, now) = (links(1), Timestamp::ZERO);
    let (first, _) = links.handle_up(now, &link(2, 10, false));
    let sent = links.turn();
    links.handle_down(now, first);
    for id in 0..=2 * IDLE_MAX as u64 {
        let (up, _) = links.handle_up(now, &link(100 + id, 11, false));
        links.handle_down(now, up);
    }
    assert_eq!(links.incarnation(node(2)), None, "it is forgotten");
    assert!(links.lost_before(node(2)) > sent);
    links.handle_up(now, &link(2, 12, false));
    assert!(links.lost_before(node(2)) > sent);
}

#[test]
fn a_stranger_without_an_address_is_dead() {
    let links = links(1);
    assert_eq!(links.way(Timestamp::ZERO, node(9)), Way::Dead);
    assert_eq!(links.way(Timestamp::ZERO, node(1)), Way::Up(LinkId::LOCAL));
}

#[test]
fn a_node_is_dialled_by_its_name_where_that_is_enough_and_not_within_a_pause() {
    let mut links = links(1);
    assert!(!links.is_resolvable(Timestamp::ZERO, node(9)));
    links.resolve_by_name();
    assert!(links.is_resolvable(Timestamp::ZERO, node(9)));
    links.dial(node(9));
    links.handle_dial_failed(Timestamp::ZERO, node(9));
    assert!(links.is_resolvable(Timestamp::ZERO, node(9)), "nobody has asked by its name");
    links.dial(node(9));
    links.note_resolved(node(9));
    links.handle_dial_failed(Timestamp::ZERO, node(9));
    assert!(!links.is_resolvable(Timestamp::ZERO, node(9)));
    assert!(links.is_resolvable(Timestamp::ZERO + Duration::from_millis(100), node(9)));
}

#[test]
fn another_address_ends_a_pause_and_the_same_one_does_not() {
    let mut links = links(1);
    let at = |port: u16| vec![format!("tcp://127.0.0.1:{port}").parse().unwrap()];
    links.configure(node(2), at(1));
    links.handle_dial_failed(Timestamp::ZERO, node(2));
    links.configure(node(2), at(1));
    assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dead);
    links.configure(node(2), at(2));
    assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dialable);
}

#[test]
fn one_place_where_only_an_earlier_life_answered_is_kept_until_it_is_missed_there() {
    let mut links = links(1);
    let at = |port: u16| -> Address { format!("tcp://127.0.0.1:{port}").parse().unwrap() };
    let meet = |links: &mut Links, life: u64, nonce, port| {
        let mut link = link(2, nonce, true);
        link.peer.incarnation = Incarnation::of_random(life << 8);
        links.handle_up(Timestamp::ZERO, &link);
        links.note_met(node(2), link.peer.incarnation, &at(port));
        links.configure_also(node(2), at(port));
    };
    links.configure(node(2), vec![at(9)]);
    meet(&mut links, 5, 10, 1);
    meet(&mut links, 5, 11, 2);
    assert_eq!(links.configured(node(2)), [at(9), at(1), at(2)]);
    // It has moved, and one of its places is the same.
    meet(&mut links, 6, 12, 2);
    assert_eq!(links.configured(node(2)), [at(9), at(2), at(1)], "it may still be there");
    meet(&mut links, 7, 13, 3);
    assert_eq!(links.configured(node(2)), [at(9), at(3), at(2)], "what was given by name stays");
    for place in [9, 3, 2] {
        links.note_missed(node(2), &at(place));
    }
    assert_eq!(links.configured(node(2)), [at(9), at(3)], "it may have been away for a moment");
    // Another node is where it was.
    meet(&mut links, 8, 14, 4);
    assert_eq!(links.configured(node(2)), [at(9), at(4), at(3)]);
    links.configure_also(node(3), at(3));
    assert_eq!(links.configured(node(2)), [at(9), at(4)]);
}

#[test]
fn a_forgotten_node_is_a_stranger_and_has_no_pause_once_it_is_known_again() {
    let mut links = links(1);
    let address: Address = "tcp://127.0.0.1:1".parse().unwrap();
    links.configure(node(2), vec![address.clone()]);
    links.handle_dial_failed(Timestamp::ZERO, node(2));
    links.forget(node(2));
    assert!(links.addresses(node(2)).is_empty() && !links.is_configured(node(2)));
    assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dead);
    links.configure(node(2), vec![address]);
    assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dialable);
    links.forget(node(7)); // of whom nothing is known
    assert_eq!(links.known_count(), 1);
}

/// Whatever a peer says: what is dialled at a private address was named here.
#[test]
fn a_private_address_is_neither_taken_from_another_node_nor_told_to_one() {
    let mut links = links(1);
    let texts = ["unix:///run/a.sock", "unix://@a", "tcp://10.0.0.1:1"];
    let told: [Address; 3] = texts.map(|text| text.parse().unwrap());
    let mut up = link(2, 10, true);
    up.peer.advertised = told[..2].to_vec();
    links.handle_up(Timestamp::ZERO, &up);
    assert_eq!(links.addresses(node(2)), []);
    up.peer.advertised = told.to_vec();
    links.handle_up(Timestamp::ZERO, &Link { nonce: LinkNonce(11), ..up });
    links.hear_of(node(3), &told);
    for node in [node(2), node(3)] {
        assert_eq!(links.addresses(node), told[2..]);
    }
    links.configure(node(4), told.to_vec());
    assert_eq!(links.addresses(node(4)), told);
    assert_eq!(links.addresses_for_others(node(4)), told[2..]);
}

#[test]
fn an_id_is_never_given_twice() {
    let mut links = links(1);
    let mut seen = std::collections::BTreeSet::new();
    for nonce in 0..100 {
        let (id, _) = links.handle_up(Timestamp::ZERO, &link(2, nonce, true));
        assert!(seen.insert(id), "{id:?}");
        assert!(links.is_up(id) && links.find(node(2), LinkNonce(nonce)) == Some(id));
        assert_eq!(links.handle_down(Timestamp::ZERO, id), Some(node(2)));
        assert!(!links.is_up(id) && links.arrival(id).is_none());
        assert_eq!(links.handle_down(Timestamp::ZERO, id), None, "it has ended already");
    }
    assert_eq!(links.handle_down(Timestamp::ZERO, LinkId::LOCAL), None, "this one never ends");
    assert!(links.is_up(LinkId::LOCAL));
}

/// A question is asked again, and a request is not.
#[test]
fn questions_take_an_eighth_of_what_may_wait_for_a_dial() {
    use crate::wire::{Frame, Header, Message, Probe};
    let limits = Limits { dial_queue_bytes_max: 16_000, ..Limits::default() };
    let me = NodeLife { node: node(1), life: Incarnation::of_random(1 << 8) };
    let mut links = Links::new(me, &limits, 1, 7);
    links.configure(node(2), vec!["tcp://127.0.0.1:1".parse().unwrap()]);
    let question = || {
        let probe = Probe { fence: false, budget_us: 1, tasks: Vec::new() };
        let frame = Frame::new(Header::without_call(), Message::Probe(probe));
        Outbound { to: node(2), link: None, frame }
    };
    let size = question().frame.waiting_len();
    let kept = (0..1_000).filter(|_| links.wait(Timestamp::ZERO, question()).is_none()).count();
    assert_eq!(kept, 2_000 / size);
    let cast = || {
        let cast = crate::wire::Cast {
            about: crate::wire::About::Call { initiator: node(1) },
            phase: 1,
            sender: 0,
            epoch: 0,
            budget_us: 1,
            digest: crate::wire::Digest::ZERO,
            is_carried: false,
            payload: bytes::Bytes::from_static(&[0; 10_000]),
        };
        let frame = Frame::new(Header::without_call(), Message::Cast(cast));
        Outbound { to: node(2), link: None, frame }
    };
    assert!(links.wait(Timestamp::ZERO, cast()).is_none(), "the rest is for what is not");
    assert!(links.wait(Timestamp::ZERO, question()).is_some());
    let left = links.handle_dial_failed(Timestamp::ZERO, node(2));
    assert_eq!(left.len(), kept + 1);
}
