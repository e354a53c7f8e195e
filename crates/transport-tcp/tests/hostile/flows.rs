//! Connections of several flows: who may join one, and what one flow can do to the others.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use convoke_transport::conformance::{PATIENCE, Recorder};
use convoke_transport::{CloseReason, Connection, Lane, NotWritable, Order, Transport};
use convoke_transport_tcp::{TcpTransport, TcpTransportBuilder};

use crate::places::Kind;
use crate::raw::{
    CREDIT, LAST, Raw, RawListener, Victim, dial, envelope, frame, hasty, hello_with,
};

/// The part of a hello that says which flow it opens.
#[derive(Clone, Copy)]
struct FlowHello {
    count: u8,
    index: u8,
    connection: u64,
    secret: u128,
}

const FIRST: FlowHello = FlowHello { count: 4, index: 0, connection: 0, secret: 0 };

impl FlowHello {
    /// The hello of a node that opens it.
    fn of(self, node: u64) -> Vec<u8> {
        let mut bytes = vec![self.count, self.index];
        bytes.put_u64_le(self.connection);
        bytes.put_u128_le(self.secret);
        hello_with(node, &bytes)
    }
}

fn of_three() -> TcpTransportBuilder {
    TcpTransport::builder().flows(3)
}

/// The first flow, with what the victim answered.
async fn begin(victim: &Victim) -> (Raw, FlowHello) {
    let mut raw = victim.attack().await;
    raw.send(&FIRST.of(66)).await;
    let (kind, body) = raw.envelope().await.expect("the victim says hello");
    assert_eq!(kind, 0, "the victim says hello");
    let mut rest = &body[body.len() - 26..];
    let (count, index) = (rest.get_u8(), rest.get_u8());
    (raw, FlowHello { count, index, connection: rest.get_u64_le(), secret: rest.get_u128_le() })
}

async fn join(victim: &Victim, hello: &[u8]) -> Raw {
    let mut raw = victim.attack().await;
    raw.send(hello).await;
    raw
}

/// A first flow, as soon as there is a seat for it.
async fn seated(victim: &Victim) -> Raw {
    let seated = async {
        loop {
            let mut first = join(victim, &FIRST.of(66)).await;
            if first.envelope().await.is_some_and(|(kind, _)| kind == 0) {
                return first;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, seated).await.expect("a seat becomes free")
}

async fn is_refused(mut raw: Raw, expected: &str) {
    let text = raw.refusal().await;
    assert!(text.contains(expected), "{text}");
}

/// All flows, open, and what the victim has of the connection.
pub(crate) async fn open(victim: &Victim) -> (Vec<Raw>, Arc<dyn Connection>) {
    let at = victim.sink.opened_count();
    let (first, flow) = begin(victim).await;
    let mut raws = vec![first];
    for index in 1..flow.count {
        raws.push(join(victim, &FlowHello { index, ..flow }.of(66)).await);
    }
    for raw in &mut raws[1..] {
        assert_eq!(raw.envelope().await.expect("the victim says hello").0, 0);
    }
    (raws, victim.sink.opened(at).await)
}

/// A data frame after so many frames of the others.
fn data(after: [u8; 2], body: &[u8]) -> Vec<u8> {
    frame(LAST, 1, &[&after[..], body].concat())
}

#[tokio::test]
async fn a_stranger_cannot_join() {
    let victim = Victim::new(Kind::Tcp, of_three()).await;
    let (_first, flow) = begin(&victim).await;
    assert_eq!((flow.count, flow.index), (3, 0), "the smaller of 4 and 3");
    let of_connection = FlowHello { index: 1, ..flow };
    let unknown = "no connection waits for it, or its secret is another";
    for guess in [
        FlowHello { secret: flow.secret ^ 1, ..of_connection },
        FlowHello { secret: 0, ..of_connection },
        FlowHello { connection: flow.connection ^ 1, ..of_connection },
        FlowHello { count: 4, ..of_connection },
    ] {
        is_refused(join(&victim, &guess.of(66)).await, unknown).await;
    }
    let another = join(&victim, &of_connection.of(67)).await;
    is_refused(another, "another node, or another life of it").await;
    let mut another_life = of_connection.of(66);
    another_life[22] ^= 2;
    is_refused(join(&victim, &another_life).await, "another life").await;
    let beyond = FlowHello { index: 3, ..flow };
    is_refused(join(&victim, &beyond.of(66)).await, "malformed").await;
    assert_eq!(victim.sink.opened_count(), 1, "none of them opened anything");

    let first = join(&victim, &of_connection.of(66)).await;
    is_refused(join(&victim, &of_connection.of(66)).await, "it is there already").await;
    let last = FlowHello { index: 2, ..flow };
    let second = join(&victim, &last.of(66)).await;
    victim.sink.opened(1).await;
    is_refused(join(&victim, &last.of(66)).await, unknown).await;
    drop((first, second));
    victim.lives_on().await;
}

#[tokio::test]
async fn flows_that_are_refused_have_places_among_the_handshakes_until_they_are_gone() {
    // One address may have four of eight.
    let builder = of_three().handshakes_max(8).close_grace(PATIENCE);
    let victim = Victim::new(Kind::Tcp, builder).await;
    let (_first, flow) = begin(&victim).await;
    let second = FlowHello { index: 1, ..flow }.of(66);
    let mut lingering = vec![join(&victim, &second).await];
    for _ in 0..4 {
        let mut again = join(&victim, &second).await;
        assert!(again.refusal().await.contains("it is there already"));
        lingering.push(again);
    }
    let text = join(&victim, &second).await.envelope().await.map_or(Vec::new(), |found| found.1);
    let text = String::from_utf8(text).expect("it is a text");
    assert!(!text.contains("it is there already"), "four have all the places of an address");
}

#[tokio::test]
async fn flows_that_never_come_open_nothing_and_leave_their_room() {
    let victim = Victim::new(Kind::Tcp, hasty().flows(3).connections_max(6)).await;
    for _ in 0..6 {
        let (mut first, flow) = begin(&victim).await;
        let mut second = join(&victim, &FlowHello { index: 1, ..flow }.of(66)).await;
        assert_eq!(first.envelope().await, None);
        assert_eq!(second.envelope().await, None);
        let late = join(&victim, &FlowHello { index: 2, ..flow }.of(66)).await;
        is_refused(late, "no connection waits for it").await;
    }
    assert_eq!(victim.sink.opened_count(), 1);
    victim.lives_on().await;
}

#[tokio::test]
async fn a_first_flow_that_dies_while_it_waits_leaves_its_seat_at_once() {
    // One address may have two of four, and the honest one has the first.
    let patient = of_three().connections_max(4).handshake_timeout(PATIENCE * 10);
    let victim = Victim::new(Kind::Tcp, patient).await;
    let (mut first, _) = begin(&victim).await;
    for early in [&b""[..], b"more"] {
        is_refused(join(&victim, &FIRST.of(66)).await, "2 of 4 are taken").await;
        first.send(early).await;
        drop(first);
        first = seated(&victim).await;
    }
    drop(first);
    seated(&victim).await;
}

#[tokio::test]
async fn a_frame_that_counts_wrongly_closes() {
    let victim = Victim::new(Kind::Tcp, of_three()).await;
    for body in [&b""[..], b"\x01", &[0xff; 20]] {
        let (mut raws, connection) = open(&victim).await;
        raws[1].send(&frame(LAST, 1, body)).await;
        let goodbye = raws.remove(1).goodbye().await;
        assert!(goodbye.contains("how many were sent over other flows"), "{goodbye}");
        let reason = victim.sink.closed(connection.link().nonce).await;
        assert_eq!(reason, CloseReason::Fault(goodbye));
    }
    victim.lives_on().await;
}

#[tokio::test]
async fn a_frame_that_waits_for_ever_costs_a_window_and_nobody_else() {
    let victim = Victim::new(Kind::Tcp, of_three().data_window_bytes(8 << 10)).await;
    let (mut raws, connection) = open(&victim).await;
    let nonce = connection.link().nonce;
    // It waits for a frame of flow 0 that never comes, those behind it for this one.
    let waiting = data([1, 0], &[7; 100]);
    let behind = data([0, 0], &[8; 100]);
    let in_window = (8 << 10) / behind.len() - 1;
    raws[1].send(&[waiting, behind.repeat(in_window)].concat()).await;
    raws[2].send(&data([0, 0], b"passes")).await;
    raws[0].send(&frame(LAST, 0, b"control")).await;
    let frames = victim.sink.frames(nonce, 2).await;
    assert!(frames.contains(&(Lane::Data, "passes".into())), "{frames:?}");
    assert!(frames.contains(&(Lane::Control, "control".into())), "{frames:?}");
    raws[1].send(&behind.repeat(2)).await;
    let goodbye = raws.remove(1).goodbye().await;
    assert!(goodbye.contains("more was sent than there was credit"), "{goodbye}");
    assert_eq!(victim.sink.closed(nonce).await, CloseReason::Fault(goodbye));
    assert_eq!(victim.sink.frame_count(nonce), 2);
    victim.lives_on().await;
}

#[tokio::test]
async fn frames_wait_for_those_before_them_and_others_do_not() {
    let order = |head: &[u8]| if head[0] == b'L' { Order::Lane } else { Order::Group(1) };
    let sink = Recorder::new(1).ordering(order);
    let victim = Victim::with(Kind::Tcp, of_three(), sink).await;
    let (mut raws, connection) = open(&victim).await;
    let nonce = connection.link().nonce;
    raws[2].send(&[data([1, 1], b"L 3"), data([0, 0], b"behind")].concat()).await;
    raws[1].send(&[data([1, 0], b"group")].concat()).await;
    let of = |text: &'static str| (Lane::Data, Bytes::from_static(text.as_bytes()));
    assert_eq!(victim.sink.frames(nonce, 1).await, [of("group")]);
    raws[0].send(&data([0, 0], b"L 1")).await;
    let all = [of("group"), of("L 1"), of("L 3"), of("behind")];
    assert_eq!(victim.sink.frames(nonce, 4).await, all);
    // What waits is delivered although its flow says goodbye first.
    raws[2].send(&[data([1, 0], b"L 5"), frame(4, 0, b"bye")].concat()).await;
    raws[1].send(&[data([1, 0], b"group"), frame(4, 0, b"bye")].concat()).await;
    raws[0].send(&[data([0, 0], b"L 4"), frame(4, 0, b"bye")].concat()).await;
    assert_eq!(victim.sink.closed(nonce).await, CloseReason::Peer("bye".into()));
    let frames = victim.sink.seen(nonce).expect("it was open").frames;
    let at = |text| frames.iter().position(|frame| *frame == of(text));
    assert!(at("L 4").is_some() && at("L 4") < at("L 5"), "{frames:?}");
    victim.lives_on().await;
}

#[tokio::test]
async fn frames_that_wait_leave_the_read_that_they_came_in() {
    let order = |head: &[u8]| if head[0] == b'L' { Order::Lane } else { Order::Group(1) };
    let sink = Recorder::new(1).ordering(order);
    let victim = Victim::with(Kind::Tcp, of_three(), sink).await;
    let (mut raws, connection) = open(&victim).await;
    let nonce = connection.link().nonce;
    let pair = |after, first: &[u8; 100], second: &[u8; 100]| {
        [data(after, first), data([0, 0], second)].concat()
    };
    let [passing, waiting] = [[b'g'; 100], [b'L'; 100]];
    let passes = pair([0, 0], &passing, &passing);
    raws[1].send(&[passes, pair([1, 0], &waiting, &waiting)].concat()).await;
    victim.sink.frames(nonce, 2).await;
    raws[0].send(&data([0, 0], b"L")).await;
    let frames = victim.sink.frames(nonce, 5).await;
    let distance_of = |body: &[u8]| {
        let frames = frames.iter().filter(|(_, frame)| frame == body);
        let at: Vec<_> = frames.map(|(_, frame)| frame.as_ptr() as usize).collect();
        at[1].wrapping_sub(at[0])
    };
    let in_read = data([0, 0], &passing).len();
    assert_eq!(distance_of(&passing), in_read, "what passes is not copied");
    assert_ne!(distance_of(&waiting), in_read, "what waits is");
    victim.lives_on().await;
}

#[tokio::test]
async fn while_data_waits_the_control_lane_has_its_credit_back() {
    let victim = Victim::new(Kind::Tcp, of_three().control_window_bytes(8 << 10)).await;
    let (mut raws, connection) = open(&victim).await;
    // It waits for a frame of flow 1, and the control lane is that of its flow.
    raws[0].send(&data([1, 0], b"waits")).await;
    let half_window = frame(LAST, 0, &[7; 1_020]).repeat(4);
    for _ in 0..4 {
        raws[0].send(&half_window).await;
        let credit = (4_u32 << 10).to_le_bytes().to_vec();
        assert_eq!(raws[0].frame().await, (CREDIT, credit));
    }
    raws[1].send(&data([0, 0], b"goes before it")).await;
    victim.sink.frames(connection.link().nonce, 4 * 4 + 2).await;
    victim.lives_on().await;
}

#[tokio::test]
async fn a_flow_that_is_lost_ends_the_connection_and_no_other() {
    let victim = Victim::new(Kind::Tcp, of_three()).await;
    for lost in 0..3 {
        let (mut raws, connection) = open(&victim).await;
        let nonce = connection.link().nonce;
        for raw in &mut raws {
            raw.send(&data([0, 0], &[1; 1_000]).repeat(50)).await;
        }
        victim.sink.frames(nonce, 50).await;
        drop(raws.remove(lost));
        let reason = victim.sink.closed(nonce).await;
        assert!(matches!(reason, CloseReason::Network(_)), "{reason:?}");
        for raw in raws {
            raw.goodbye().await;
        }
    }
    victim.lives_on().await;
}

#[tokio::test]
async fn a_goodbye_over_one_flow_ends_the_others_after_the_grace() {
    // It outlasts the test, unless what is waited for is the grace.
    let patient = of_three().keep_alive_timeout(PATIENCE * 10);
    let grace = Duration::from_millis(10);
    let victim = Victim::new(Kind::Tcp, patient.clone().close_grace(grace)).await;
    for first in 0..3 {
        let (mut raws, connection) = open(&victim).await;
        raws[first].send(&frame(4, 0, b"bye")).await;
        let reason = victim.sink.closed(connection.link().nonce).await;
        assert_eq!(reason, CloseReason::Peer("bye".into()));
        for raw in raws {
            raw.heard().await;
        }
    }
    victim.lives_on().await;

    let victim = Victim::new(Kind::Tcp, patient.close_grace(PATIENCE * 10)).await;
    let (mut raws, connection) = open(&victim).await;
    raws[1].send(&frame(4, 0, b"bye")).await;
    raws.remove(1).heard().await;
    for group in 0..16 {
        let refused = connection.append_bytes(Lane::Data, &[], Bytes::from(vec![group; 9]));
        assert_eq!(refused, Err(NotWritable::Closed));
    }
    for raw in &mut raws {
        raw.send(&[data([0, 0], b"before"), frame(4, 0, b"and bye")].concat()).await;
    }
    let nonce = connection.link().nonce;
    assert_eq!(victim.sink.closed(nonce).await, CloseReason::Peer("bye".into()));
    assert_eq!(victim.sink.frame_count(nonce), 2, "what was sent before its goodbye is there");
}

#[tokio::test]
async fn ends_agree_on_the_smaller_number() {
    for (listening, dialling, agreed) in [(4, 2, Some(2)), (2, 4, Some(2)), (4, 1, None)] {
        let victim = Victim::new(Kind::Tcp, TcpTransport::builder().flows(listening)).await;
        let transport = TcpTransport::builder().flows(dialling).build().expect("it is legal");
        let sink = Arc::new(Recorder::new(5));
        let address = victim.listener.local_address();
        let connection = transport.dial(&address, None, Arc::clone(&sink) as _).await;
        let connection = connection.expect("it is let in");
        let text = format!("{connection:?} {:?}", victim.sink.opened(1).await);
        let expected = agreed.map_or("TcpConnection".to_owned(), |count| format!("count: {count}"));
        assert_eq!(text.matches(&expected).count(), 2, "{text}");
        connection.close(CloseReason::Local);
        sink.closed(connection.link().nonce).await;
    }
}

#[tokio::test]
async fn one_flow_says_nothing_of_flows() {
    let listener = RawListener::bind(Kind::Tcp).await;
    let address = listener.address.clone();
    let heard = tokio::spawn(async move {
        let mut raw = listener.accept().await;
        let hello = raw.envelope().await.expect("the dialler speaks first");
        raw.send(&envelope(1, 1, b"enough")).await;
        hello
    });
    let dialled = TcpTransport::new().dial(&address, None, Arc::new(Recorder::new(1))).await;
    assert!(dialled.is_err());
    assert_eq!(heard.await.expect("it is dialled").1.len(), 45);
    // Nor does the other end of one that offers several.
    let victim = Victim::new(Kind::Tcp, TcpTransport::builder()).await;
    let mut raw = victim.attack().await;
    raw.send(&FIRST.of(66)).await;
    assert_eq!(raw.envelope().await.expect("the victim says hello").1.len(), 45);
    dial(&*victim.listener, &Arc::new(Recorder::new(5))).await.expect("it still accepts");
    drop(raw);
    victim.lives_on().await;
}
