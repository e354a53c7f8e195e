//! Links against each other; `pair` is the wire and the queue pairs.

mod pair;

use bytes::Bytes;
use convoke_transport::{Address, Appended, CloseReason, Lane, NotWritable};
use proptest::prelude::*;

use super::*;
use crate::framing::{Header, Kind};
use pair::{Pair, Told, terms};

const CONTROL: usize = 0;
const DATA: usize = 1;

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 7 + number * 31) % 251).try_into().unwrap()).collect()
}

#[test]
fn the_introduction_comes_before_frames_and_holds_them_back() {
    let mut pair = Pair::silent(terms(4, 2), terms(1, 1));
    assert!(pair.ends[0].append(Lane::Data, b"early"));
    pair.settle();
    assert!(pair.ends[1].told.is_empty() && pair.ends[1].received[DATA].is_empty());

    let addresses: Vec<Address> =
        (0..16).map(|at| format!("rdma://{at:0200}").parse().unwrap()).collect();
    pair.ends[0].link.introduce(&addresses);
    pair.settle();
    assert_eq!(pair.ends[1].told, [Told::Introduced(16)]);
    assert_eq!(pair.ends[1].received[DATA], ["early"]);
}

#[test]
fn an_end_that_refuses_says_why_and_nothing_else() {
    let mut pair = Pair::silent(terms(2, 1), terms(2, 1));
    pair.ends[0].link.introduce(&[]);
    pair.settle();
    pair.ends[1].append(Lane::Data, b"never sent");
    pair.ends[1].link.close(CloseReason::Fault("not wanted here".into()));
    pair.settle();
    assert_eq!(pair.ends[0].told, [Told::Goodbye("not wanted here".into())]);
    let reason = CloseReason::Peer("not wanted here".into());
    assert_eq!(pair.ends[0].link.closing(), Some(&reason));
    assert!(pair.ends.iter().all(|end| end.link.is_finished()));
}

#[test]
fn small_frames_share_a_message() {
    let mut pair = Pair::new(terms(8, 2), terms(8, 2));
    for at in 0..20 {
        pair.ends[0].append(Lane::Data, &frame(at, 40));
    }
    pair.progress(0);
    assert_eq!(pair.wire(1).len(), 1);
}

#[test]
fn control_frames_pass_a_large_frame_and_a_full_data_window() {
    let mut pair = Pair::new(terms(4, 2), terms(4, 2));
    assert!(pair.ends[0].append(Lane::Data, &frame(0, 50_000)));
    pair.progress(0);
    assert_eq!(pair.wire(1).len(), 3, "the window but for the reserve");
    assert!(pair.ends[0].append(Lane::Control, b"now"));
    pair.progress(0);
    assert_eq!(pair.wire(1).len(), 4);
    assert_eq!(pair.wire(1)[3].len(), 1024, "data rides in the room that is left");
    (0..4).for_each(|_| assert!(pair.deliver(1)));
    pair.ends[1].progress();
    assert_eq!(pair.ends[1].received[CONTROL], ["now"]);
    assert!(pair.ends[1].received[DATA].is_empty());
}

#[test]
fn control_frames_do_not_starve_data() {
    let mut pair = Pair::new(terms(8, 2), terms(8, 2));
    pair.ends[0].append(Lane::Data, &frame(0, 100));
    for at in 0..15 {
        assert!(pair.ends[0].append(Lane::Control, &frame(at, 1000)));
    }
    pair.progress(0);
    (0..6).for_each(|_| assert!(pair.deliver(1)));
    pair.ends[1].progress();
    assert_eq!(pair.ends[1].received[DATA], [frame(0, 100)]);
    assert!(pair.ends[1].received[CONTROL].len() < 15);
}

#[test]
fn a_peer_that_takes_nothing_fills_the_lane_and_nothing_is_lost() {
    let mut pair = Pair::new(terms(4, 2), terms(4, 2));
    let (mut appended, mut is_full) = (0, false);
    loop {
        let bytes = frame(appended, 900);
        let result = pair.ends[0].link.append_copy(Lane::Data, &[], &bytes);
        pair.progress(0);
        match result {
            Ok(Appended::Writable) => assert!(!is_full),
            Ok(Appended::Full) => is_full = true,
            Err(error) => break assert_eq!(error, NotWritable::Full),
        }
        appended += 1;
    }
    assert!(is_full && !pair.ends[0].link.poll_writable(Lane::Data));
    assert!(pair.ends[0].link.poll_writable(Lane::Control));
    pair.settle();
    assert_eq!(pair.ends[0].told, [Told::Writable(Lane::Data)]);
    assert!(pair.ends[0].link.is_flushed());
    let received = &pair.ends[1].received[DATA];
    assert!(received.iter().eq(&(0..appended).map(|at| frame(at, 900)).collect::<Vec<_>>()));
}

#[test]
fn large_frames_are_lent_until_the_application_has_too_many() {
    let mut large = terms(8, 2);
    large.slot_bytes = 4096;
    let mut pair = Pair::new(large, large);
    for at in 0..40 {
        pair.ends[0].append(Lane::Data, &frame(at, 4000));
        pair.settle();
    }
    let end = &pair.ends[1];
    assert!(end.received[DATA].iter().eq(&(0..40).map(|at| frame(at, 4000)).collect::<Vec<_>>()));
    assert_eq!(end.link.counters().copies_under_pressure, 40 - 5, "a part is never lent");
    assert!(pair.ends[1].link.is_starved());
    pair.ends[1].received[DATA].clear();
    pair.progress(1);
    assert!(!pair.ends[1].link.is_starved());
    pair.ends[0].append(Lane::Data, &frame(0, 4000));
    pair.settle();
    assert_eq!(pair.ends[1].link.counters().copies_under_pressure, 40 - 5);
}

#[test]
fn a_frame_larger_than_the_peer_takes_is_not_taken() {
    let mut pair = Pair::new(terms(4, 2), terms(4, 2));
    let result = pair.ends[0].link.append_bytes(Lane::Data, b"x", vec![0; 100_000].into());
    assert_eq!(result, Err(NotWritable::TooLarge { size: 100_001, limit: 100_000 }));
    assert!(pair.ends[0].link.append_bytes(Lane::Data, b"", vec![0; 100_000].into()).is_ok());
    pair.settle();
    assert_eq!(pair.ends[1].received[DATA][0].len(), 100_000);
}

#[test]
fn a_gentle_close_sends_what_was_appended_first() {
    let mut pair = Pair::new(terms(1, 1), terms(2, 1));
    for at in 0..10 {
        pair.ends[0].append(Lane::Data, &frame(at, 3000));
    }
    pair.ends[0].link.close(CloseReason::Local);
    assert!(!pair.ends[0].append(Lane::Data, b"late"));
    pair.settle();
    assert_eq!(pair.ends[1].received[DATA].len(), 10);
    assert_eq!(pair.ends[1].told, [Told::Goodbye(CloseReason::Local.goodbye_text())]);
    assert!(pair.ends.iter().all(|end| end.link.is_finished()));
    assert_eq!(pair.ends[0].link.closing(), Some(&CloseReason::Local));
}

#[test]
fn another_close_drops_what_was_appended_and_what_comes() {
    let mut pair = Pair::new(terms(2, 1), terms(2, 1));
    pair.ends[0].append(Lane::Data, &frame(0, 30_000));
    pair.progress(0);
    for text in ["has come", "on its way"] {
        pair.ends[1].append(Lane::Data, text.as_bytes());
        pair.progress(1);
    }
    assert!(pair.deliver(0));
    pair.ends[0].link.close(CloseReason::Stale);
    pair.settle();
    assert!(pair.ends.iter().all(|end| end.received[DATA].is_empty()));
    assert!(pair.ends.iter().all(|end| end.link.is_finished()));
}

#[test]
fn both_may_close_at_once_and_both_deliver() {
    for n in [1, 2, 8] {
        let mut pair = Pair::new(terms(n, 1), terms(n, 1));
        for at in 0..2 {
            pair.ends[at].append(Lane::Data, &frame(at, 20_000));
            pair.ends[at].link.close(CloseReason::Local);
        }
        pair.settle();
        for at in 0..2 {
            assert_eq!(pair.ends[at].received[DATA], [frame(1 - at, 20_000)]);
            assert!(pair.ends[at].link.is_finished());
        }
    }
}

#[test]
fn when_the_grace_is_over_only_the_goodbye_is_left() {
    let mut pair = Pair::new(terms(4, 1), terms(4, 1));
    pair.ends[0].append(Lane::Data, &frame(0, 50_000));
    pair.progress(0);
    pair.ends[0].link.close(CloseReason::Local);
    pair.ends[0].link.handle_grace_over();
    pair.settle();
    assert!(pair.ends[1].received[DATA].is_empty());
    assert!(pair.ends.iter().all(|end| end.link.is_finished()));
}

#[test]
fn an_abandoned_link_sends_nothing() {
    let mut pair = Pair::new(terms(4, 1), terms(4, 1));
    pair.ends[0].append(Lane::Data, b"queued");
    for _ in 0..4 {
        pair.ends[1].append(Lane::Data, &frame(0, 900));
    }
    pair.progress(1);
    while pair.deliver(0) {}
    pair.ends[0].link.abandon(CloseReason::Network("the cable".into()));
    pair.progress(0);
    assert!(pair.wire(1).is_empty(), "not even credit");
    assert!(!pair.ends[0].received[DATA].is_empty(), "what has come is given out");
    pair.settle();
    assert!(pair.ends[1].received[DATA].is_empty() && pair.ends[1].told.is_empty());
    assert!(pair.ends[0].link.is_flushed());
}

#[test]
fn an_abandoned_link_keeps_no_part_of_a_frame() {
    let mut pair = Pair::new(terms(4, 1), terms(4, 1));
    let frames = Header { window: 4, ctl_ack: 0, kind: Kind::Frames }.encode();
    pair.inject(1, [&frames[..], &[1, 0, 0, 0xc0, 9, 0, 0, 0, 7]].concat());
    let link = &mut pair.ends[1].link;
    assert!(link.reassembly.check_whole(Lane::Data, 1).is_err(), "a part has come");
    link.abandon(CloseReason::Network("the cable".into()));
    assert_eq!(link.reassembly.check_whole(Lane::Data, 1), Ok(()));
}

#[test]
fn a_driver_without_buffers_still_gives_credit() {
    let mut pair = Pair::new(terms(2, 1), terms(2, 1));
    pair.ends[1].room = 0;
    pair.ends[1].append(Lane::Data, b"waits for a buffer");
    for at in 0..10 {
        pair.ends[0].append(Lane::Data, &frame(at, 900));
    }
    pair.settle();
    assert_eq!(pair.ends[1].received[DATA].len(), 10);
    pair.ends[1].room = 1;
    pair.settle();
    assert_eq!(pair.ends[0].received[DATA], ["waits for a buffer"]);
}

#[test]
fn a_keep_alive_takes_a_data_slot_and_waits_for_credit() {
    let mut pair = Pair::new(terms(8, 1), terms(8, 1));
    pair.ends[0].link.keep_alive();
    pair.progress(0);
    assert_eq!(pair.wire(1).iter().map(|message| message[3]).collect::<Vec<_>>(), [0x09]);
    pair.settle();
    assert!(pair.ends[1].received.iter().all(Vec::is_empty), "nobody above hears of it");

    // Nobody takes what comes: what is kept for urgent messages is used up in the end.
    for _ in 0..20 {
        pair.ends[0].append(Lane::Data, &frame(0, 900));
        pair.ends[0].link.keep_alive();
        pair.progress(0);
    }
    assert!(pair.wire(1).len() <= 8, "no more than there are data slots");
    assert_eq!(pair.wire(1).back().map(|message| message[3]), Some(0x09));
    let left = pair.ends[0].link.counters().data_messages_sent;
    pair.settle();
    assert!(pair.ends[0].link.counters().data_messages_sent > left);
    assert_eq!(pair.ends[1].received[DATA].len(), 20);
}

#[test]
fn small_frames_of_one_lane_go_from_where_they_were_encoded() {
    let mut pair = Pair::new(terms(4, 2), terms(4, 2));
    let end = &mut pair.ends[0];
    (end.inline_bytes_max, end.room) = (100, 0);
    for at in 0..3 {
        assert!(end.append(Lane::Data, &frame(at, 20)));
    }
    pair.progress(0);
    assert_eq!(pair.wire(1).iter().map(Vec::len).collect::<Vec<_>>(), [4 + 3 * 24]);
    pair.ends[0].append(Lane::Control, &frame(3, 50));
    pair.progress(0);
    assert_eq!(pair.wire(1).len(), 2, "of either lane");

    pair.ends[0].append(Lane::Control, &frame(4, 10));
    pair.ends[0].append(Lane::Data, &frame(5, 10));
    assert_eq!(pair.ends[0].link.poll_send_in_place(100), None, "of one lane only");
    pair.ends[0].room = 1;
    pair.settle();
    pair.ends[0].append(Lane::Data, &frame(6, 97));
    assert_eq!(pair.ends[0].link.poll_send_in_place(100), None, "one byte too many");
    pair.ends[0].room = usize::MAX;
    pair.settle();
    assert_eq!(pair.ends[1].received[CONTROL], [frame(3, 50), frame(4, 10)]);
    assert_eq!(pair.ends[1].received[DATA].len(), 5);
}

#[test]
fn a_frame_that_goes_alone_has_no_record() {
    let mut pair = Pair::new(terms(4, 2), terms(4, 2));
    pair.ends[0].inline_bytes_max = 100;
    let mut bytes_of = |lane, frame: &[u8]| {
        pair.ends[0].append(lane, frame);
        pair.progress(0);
        let message = pair.wire(1).back().cloned();
        pair.settle();
        message.expect("it was sent")
    };
    // Window and acknowledgement are before the kind.
    assert_eq!(bytes_of(Lane::Data, b"abc")[3..], *b"\x0fabc");
    assert_eq!(bytes_of(Lane::Control, b"now")[3..], *b"\x07now");
    assert_eq!(bytes_of(Lane::Data, b"")[3..], *b"\x0f");
    assert_eq!(bytes_of(Lane::Data, &frame(0, 96)).len(), 100, "as large as may go inline");
    let end = &pair.ends[1];
    assert_eq!(end.received[DATA], [b"abc".to_vec(), vec![], frame(0, 96)]);
    assert_eq!(end.received[CONTROL], ["now"]);
    assert_eq!(end.link.counters().transport.frames_received, 4);
}

#[test]
fn a_message_that_is_a_large_frame_is_lent() {
    let mut large = terms(8, 2);
    large.slot_bytes = 4096;
    let mut pair = Pair::new(large, large);
    let message = |at| {
        let header = Header { window: 9, ctl_ack: 0, kind: Kind::DataFrame };
        [&header.encode()[..], &frame(at, 4092)].concat()
    };
    for at in 0..7 {
        pair.inject(1, message(at));
        pair.progress(1);
    }
    let end = &pair.ends[1];
    assert_eq!(end.received[DATA], (0..7).map(|at| frame(at, 4092)).collect::<Vec<_>>());
    assert_eq!(end.link.counters().copies_under_pressure, 2, "a part is never lent");
}

#[test]
fn the_drivers_own_requests_take_places_in_the_send_queue() {
    let mut pair = Pair::new(terms(32, 2), terms(32, 2));
    let link = &mut pair.ends[0].link;
    (0..16).for_each(|_| assert!(link.take_send_slot()));
    assert!(!link.take_send_slot());
    link.handle_sent(16);
    assert!(link.take_send_slot());
}

/// Frames first, then a message that no honest link sends.
fn fault_of(message: &[u8]) -> CloseReason {
    let own = Terms { frame_bytes_max: 1000, ..terms(2, 2) };
    let mut pair = Pair::new(terms(2, 2), own);
    pair.inject(1, message.to_vec());
    pair.settle();
    let reason = pair.ends[1].link.closing().cloned().expect("it closes");
    assert!(matches!(pair.ends[0].told[..], [Told::Goodbye(_)]), "the peer hears why");
    assert!(pair.ends[1].link.is_finished());
    reason
}

#[test]
fn a_peer_that_breaks_the_rules_is_told_and_not_heard_again() {
    let header = Header { window: 3, ctl_ack: 0, kind: Kind::Frames };
    let message =
        |kind, payload: &[u8]| [&Header { kind, ..header }.encode()[..], payload].concat();
    let fault = |message: Vec<u8>| fault_of(&message).to_string();
    assert!(fault(vec![1, 2, 3]).contains("shorter than its header"));
    assert!(fault(message(Kind::Frames, &[])).contains("without a frame"));
    assert!(fault(message(Kind::Frames, &[9, 0, 0, 0x60])).contains("record is malformed"));
    assert!(fault(message(Kind::Frames, &[1, 0, 0, 0xa0, 7])).contains("out of place"));
    let whole_within_another = [1, 0, 0, 0xc0, 10, 0, 0, 0, 7, 0, 0, 0, 0xe0];
    assert!(fault(message(Kind::Frames, &whole_within_another)).contains("out of place"));
    let too_large = message(Kind::DataFrame, &[0; 1001]);
    assert!(fault(too_large).contains("a frame of 1001 bytes is over the limit of 1000"));
    assert!(fault(message(Kind::Introduction, &[0])).contains("introduction"));
    assert!(fault(message(Kind::Goodbye, &[b'x'; 513])).contains("goodbye of 513 bytes"));
    assert!(fault(message(Kind::Credit, &[])).contains("no credit"));
    assert!(fault(message(Kind::KeepAlive, &[7])).contains("1 bytes too many"));
}

#[test]
fn a_frame_without_a_record_keeps_the_rules_of_records() {
    let header = |kind| Header { window: 4, ctl_ack: 0, kind }.encode();
    let alone = |kind| [&header(kind)[..], b"alone"].concat();

    let mut pair = Pair::silent(terms(4, 1), terms(4, 1));
    pair.inject(1, alone(Kind::ControlFrame));
    let closing = |pair: &Pair| pair.ends[1].link.closing().map(ToString::to_string);
    assert!(closing(&pair).is_some_and(|text| text.contains("an introduction is out of place")));

    // It may come between the fragments of the other lane, and not between those of its own.
    let mut pair = Pair::new(terms(4, 1), terms(4, 1));
    let first_of_9 = [&header(Kind::Frames)[..], &[1, 0, 0, 0xc0, 9, 0, 0, 0, 7]].concat();
    pair.inject(1, first_of_9);
    pair.inject(1, alone(Kind::ControlFrame));
    assert_eq!(closing(&pair), None);
    pair.inject(1, alone(Kind::DataFrame));
    assert!(closing(&pair).is_some_and(|text| text.contains("Data lane is out of place")));
    pair.settle();
    assert_eq!(pair.ends[1].received, [vec![Bytes::from_static(b"alone")], vec![]]);

    // What comes after a close that is not gentle is taken and dropped.
    let mut pair = Pair::new(terms(4, 1), terms(4, 1));
    pair.ends[1].link.close(CloseReason::Stale);
    pair.inject(1, alone(Kind::DataFrame));
    pair.settle();
    assert_eq!(pair.ends[1].link.closing(), Some(&CloseReason::Stale));
    assert!(pair.ends[1].received[DATA].is_empty());
}

#[test]
fn data_after_the_goodbye_is_a_fault() {
    let mut pair = Pair::new(terms(4, 1), terms(4, 1));
    let goodbye = Header { window: 5, ctl_ack: 0, kind: Kind::Goodbye };
    pair.inject(1, goodbye.encode().to_vec());
    pair.inject(1, goodbye.encode().to_vec());
    assert!(matches!(pair.ends[1].link.closing(), Some(CloseReason::Peer(_))), "the first stands");
    pair.settle();
    assert_eq!(pair.ends[1].told, [Told::Goodbye(String::new())]);
    assert!(pair.ends[1].link.is_finished());
}

#[test]
fn a_fault_without_credit_for_the_goodbye_ends_without_one() {
    let mut pair = Pair::new(terms(1, 1), terms(1, 1));
    pair.ends[1].append(Lane::Data, b"takes the only credit");
    pair.progress(1);
    pair.inject(1, vec![1, 2, 3]);
    pair.settle();
    assert!(pair.ends[1].link.is_finished() && pair.ends[0].told.is_empty());
}

#[test]
fn a_one_way_stream_costs_few_credit_messages() {
    for n in [1, 4, 8, 32] {
        let mut pair = Pair::new(terms(n, 2), terms(n, 2));
        for at in 0..2_000 {
            while !pair.ends[0].append(Lane::Data, &frame(at, 900)) {
                pair.settle();
                pair.ends[1].received[DATA].clear();
            }
        }
        pair.settle();
        let data = pair.ends[0].link.counters().data_messages_sent as f64;
        let credit = pair.ends[1].link.counters().credit_messages_sent as f64;
        assert!(data >= 2_000.0 && credit / data <= 2.5 / f64::from(n), "N = {n}: {credit}/{data}");
    }
}

#[test]
fn the_counters_of_both_ends_add_up() {
    let mut pair = Pair::new(terms(4, 1), terms(3, 1));
    for at in 0..50 {
        pair.ends[0].append(Lane::Data, &frame(at, at * 100));
        pair.ends[1].append(Lane::Control, &frame(at, at * 5));
    }
    pair.settle();
    let [one, two] = [0, 1].map(|at| pair.ends[at].link.counters().transport);
    for (sent, received) in [(one, two), (two, one)] {
        assert_eq!((sent.frames_sent, sent.bytes_sent), (50, received.bytes_received));
        assert_eq!(received.frames_received, 50);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Append {
        at: usize,
        lane: Lane,
        len: usize,
        is_bytes: bool,
    },
    Deliver(usize),
    Progress(usize),
    Step(usize),
    /// The application lets go of one of the frames it has.
    Drop(usize, prop::sample::Index),
    Room(usize, usize),
    Inline(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let end = 0..2_usize;
    let lane = prop_oneof![1 => Just(Lane::Control), 3 => Just(Lane::Data)];
    let len = prop_oneof![4 => 0..100_usize, 2 => 900..3_000_usize, 1 => 0..30_000_usize];
    prop_oneof![
        3 => (end.clone(), lane, len, any::<bool>())
            .prop_map(|(at, lane, len, is_bytes)| Op::Append { at, lane, len, is_bytes }),
        2 => end.clone().prop_map(Op::Deliver),
        2 => end.clone().prop_map(Op::Progress),
        4 => end.clone().prop_map(Op::Step),
        1 => (end.clone(), any::<prop::sample::Index>())
            .prop_map(|(at, index)| Op::Drop(at, index)),
        1 => (end.clone(), 0..4_usize).prop_map(|(at, room)| Op::Room(at, room)),
        1 => (end, 0..400_usize).prop_map(|(at, bytes)| Op::Inline(at, bytes)),
    ]
}

fn any_terms() -> impl Strategy<Value = Terms> {
    (1..12_u16, 1..4_u8, 1024..5_000_u32).prop_map(
        |(slot_count, control_slot_count, slot_bytes)| Terms {
            slot_bytes,
            ..terms(slot_count, control_slot_count)
        },
    )
}

/// Two links, what was appended, and what has come.
struct Run {
    pair: Pair,
    sent: [[Vec<Vec<u8>>; 2]; 2],
    came: [[Vec<Vec<u8>>; 2]; 2],
    /// Frames that the applications have, and copies of them.
    held: [Vec<(Bytes, Vec<u8>)>; 2],
}

impl Run {
    fn new(one: Terms, two: Terms) -> Self {
        let pair = Pair::new(one, two);
        Self { pair, sent: Default::default(), came: Default::default(), held: Default::default() }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Append { at, lane, len, is_bytes } => self.append(at, lane, len, is_bytes),
            Op::Deliver(at) => _ = self.pair.deliver(at),
            Op::Progress(at) => _ = self.pair.progress(at),
            Op::Step(at) => _ = self.pair.step(at),
            Op::Drop(at, _) if self.held[at].is_empty() => {}
            Op::Drop(at, which) => {
                let which = which.index(self.held[at].len());
                self.held[at].swap_remove(which);
            }
            Op::Room(at, room) => self.pair.ends[at].room = room,
            Op::Inline(at, bytes) => self.pair.ends[at].inline_bytes_max = bytes,
        }
        self.collect();
    }

    fn append(&mut self, at: usize, lane: Lane, len: usize, is_bytes: bool) {
        let bytes = frame(self.sent[at].iter().map(Vec::len).sum(), len);
        let end = &mut self.pair.ends[at];
        let is_taken = if is_bytes {
            let (head, body) = bytes.split_at(len / 4);
            end.link.append_bytes(lane, head, Bytes::copy_from_slice(body)).is_ok()
        } else {
            end.append(lane, &bytes)
        };
        if is_taken {
            self.sent[at][index(lane)].push(bytes);
        }
    }

    fn collect(&mut self) {
        for at in 0..2 {
            for lane in [CONTROL, DATA] {
                for bytes in self.pair.ends[at].received[lane].drain(..) {
                    self.came[at][lane].push(bytes.to_vec());
                    self.held[at].push((bytes.clone(), bytes.to_vec()));
                }
            }
        }
    }

    /// Lets both ends send what is left, and close or not, while the applications keep what they
    /// have.
    fn finish(&mut self, closes: [bool; 2]) {
        for (end, does_close) in self.pair.ends.iter_mut().zip(closes) {
            end.room = usize::MAX;
            if does_close {
                end.link.close(CloseReason::Local);
            }
        }
        self.pair.settle();
        self.collect();
    }
}

proptest! {
    #[test]
    fn every_frame_arrives_once_and_in_order_whatever_the_application_holds(
        one in any_terms(),
        two in any_terms(),
        ops in prop::collection::vec(op(), 0..150),
        closes in any::<[bool; 2]>(),
    ) {
        let mut run = Run::new(one, two);
        ops.into_iter().for_each(|op| run.apply(op));
        run.finish(closes);
        prop_assert!(run.held.iter().flatten().all(|(bytes, copy)| bytes == copy));
        for at in 0..2 {
            // An end that hears a goodbye and has not closed itself drops what it has to send.
            if closes[at] || !closes[1 - at] {
                prop_assert_eq!(&run.came[1 - at], &run.sent[at]);
            }
            let is_finished = run.pair.ends[at].link.is_finished();
            prop_assert_eq!(is_finished, closes[0] || closes[1]);
        }
    }

    #[test]
    fn any_messages_are_frames_or_a_fault(
        messages in prop::collection::vec(
            (0..4_u16, 0..2_u8, 0..16_u8, prop::collection::vec(any::<u8>(), 0..60), any::<bool>()),
            1..12),
    ) {
        let mut pair = Pair::silent(terms(6, 2), terms(6, 2));
        for (raise, ctl_ack, kind, payload, is_record) in messages {
            let mut message = (6 + raise).to_le_bytes().to_vec();
            message.extend([ctl_ack, kind]);
            if is_record {
                let len = u8::try_from(payload.len()).unwrap();
                message.extend([len, 0, 0, 0xe0]);
            }
            message.extend(&payload);
            if pair.ends[1].link.closing().is_some() {
                break;
            }
            pair.inject(1, message);
            pair.ends[1].progress();
        }
        let received: usize = pair.ends[1].received.iter().flatten().map(Bytes::len).sum();
        prop_assert!(received <= 12 * 64);
    }
}

#[test]
fn memory_of_few_frames_is_kept_and_of_very_many_is_not() {
    let mut pair = Pair::new(terms(1, 1), terms(1, 1));
    let link = &mut pair.ends[0].link;
    link.reuse(Vec::with_capacity(4_096));
    assert_eq!(link.received.capacity(), 0);
    link.reuse(Vec::with_capacity(16));
    assert!(link.received.capacity() >= 16);
}
