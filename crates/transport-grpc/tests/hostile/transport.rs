//! At the port that carries frames.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_transport::CloseReason;
use convoke_transport_grpc::GrpcTransport;
use prost::Message;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::http2::{PREFACE, Raw, SETTINGS, frame};
use crate::in_time;
use crate::over::{ATTACKER, Over, over_both};
use crate::victim::Victim;

const PATH: &str = "/convoke.transport.v1.Transport/Frames";

/// A hello as it goes over the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(fixed64, tag = "2")]
    node: u64,
    #[prost(fixed64, tag = "3")]
    incarnation: u64,
    #[prost(fixed64, tag = "4")]
    random: u64,
    #[prost(uint32, tag = "5")]
    frame_bytes_max: u32,
    #[prost(uint32, tag = "6")]
    message_bytes_max: u32,
    #[prost(uint32, tag = "7")]
    keep_alive_timeout_ms: u32,
}

fn hello() -> Hello {
    Hello {
        version: 1,
        node: ATTACKER,
        incarnation: 1,
        random: 7,
        frame_bytes_max: 1 << 20,
        message_bytes_max: 64 << 10,
        keep_alive_timeout_ms: 10_000,
    }
}

over_both! {
    garbage_is_refused_at_its_first_byte,
    http_1_is_told_what_is_spoken_here,
    garbage_behind_the_preface_ends_the_connection,
    who_says_nothing_is_closed_after_the_handshake_timeout,
    another_method_is_unimplemented,
    a_hello_that_is_none_is_refused_with_the_reason,
    chunks_that_break_the_rules_are_faults_of_the_peer,
    a_message_above_the_limit_is_a_fault_and_never_buffered,
    a_stream_that_is_cut_is_an_end_by_the_network,
    a_peer_that_goes_silent_is_closed_after_the_keep_alive_timeout,
}

/// gRPC messages of any bytes: a message that is not decoded, with a codec that is tonic's own.
#[derive(Clone, Debug, Default, PartialEq)]
struct Any(Vec<u8>);

impl prost::Message for Any {
    fn encode_raw(&self, buf: &mut impl bytes::BufMut) {
        buf.put_slice(&self.0);
    }
    fn encoded_len(&self) -> usize {
        self.0.len()
    }
    fn clear(&mut self) {
        self.0.clear();
    }
    fn merge(&mut self, mut buf: impl bytes::Buf) -> Result<(), prost::DecodeError> {
        self.0.extend_from_slice(&buf.copy_to_bytes(buf.remaining()));
        Ok(())
    }
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: prost::encoding::WireType,
        buf: &mut impl bytes::Buf,
        context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        prost::encoding::skip_field(wire_type, tag, buf, context)
    }
}

/// A stream of messages to the victim.
struct Attack {
    send: Option<mpsc::Sender<Any>>,
    incoming: Streaming<Any>,
}

impl Attack {
    /// Opens a stream with this first message.
    async fn begin(victim: &Victim, path: &'static str, first: Vec<u8>) -> Result<Self, Status> {
        Self::over(victim.over.channel(victim.address(), |to| to).await, path, first).await
    }

    async fn over(channel: Channel, path: &'static str, first: Vec<u8>) -> Result<Self, Status> {
        let mut grpc = Grpc::new(channel);
        in_time(grpc.ready()).await.expect("the channel is open");
        let (send, receive) = mpsc::channel(16);
        send.try_send(Any(first)).expect("there is room");
        let codec = ProstCodec::<Any, Any>::default();
        let opened = grpc.streaming(
            Request::new(Outgoing(receive)),
            http::uri::PathAndQuery::from_static(path),
            codec,
        );
        Ok(Self { send: Some(send), incoming: in_time(opened).await?.into_inner() })
    }

    /// One that has said hello and was answered.
    async fn after_hello(victim: &Victim) -> Self {
        let mut this =
            Self::begin(victim, PATH, hello().encode_to_vec()).await.expect("the victim opens");
        let theirs = in_time(this.incoming.message()).await.expect("the victim says hello");
        let theirs = Hello::decode(&theirs.expect("a message").0[..]).expect("a hello");
        assert_eq!((theirs.version, theirs.node), (1, 1));
        this
    }

    async fn send(&self, message: Vec<u8>) {
        let send = self.send.as_ref().expect("it has not ended");
        // The victim may have ended the stream already.
        let _ = send.send(Any(message)).await;
    }

    /// The goodbye that must come.
    async fn goodbye(&mut self) -> String {
        let message = in_time(self.incoming.message()).await.expect("the victim says goodbye");
        let message = message.expect("the victim says goodbye").0;
        let word = u32::from_le_bytes(*message.first_chunk().expect("a word"));
        assert_eq!(word >> 29, 3, "it is a goodbye");
        String::from_utf8(message[4..].to_vec()).expect("it is a text")
    }
}

/// The refusal of a hello in which somebody claims to be `node`.
#[cfg(feature = "tls")]
pub(crate) async fn refused_claim(channel: Channel, node: u64) -> Status {
    let claim = Hello { node, ..hello() }.encode_to_vec();
    Attack::over(channel, PATH, claim).await.err().expect("it is refused")
}

/// The messages as the body of a request.
struct Outgoing(mpsc::Receiver<Any>);

impl Stream for Outgoing {
    type Item = Any;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Any>> {
        self.0.poll_recv(cx)
    }
}

async fn garbage_is_refused_at_its_first_byte(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    for garbage in [&b"\x16\x03\x01\x02\x00\x01"[..], b"hello?", &[0xff; 4_096]] {
        let mut raw = Raw::connect(&victim.over, victim.address()).await;
        raw.send(garbage).await;
        raw.read_to_end().await;
    }
    victim.lives_on().await;
}

async fn http_1_is_told_what_is_spoken_here(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let mut raw = Raw::connect(&victim.over, victim.address()).await;
    raw.send(b"GET / HTTP/1.1\r\nHost: victim\r\n\r\n").await;
    let answer = String::from_utf8(raw.read_to_end().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    assert!(answer.contains("this port speaks gRPC"), "{answer}");
    victim.lives_on().await;
}

async fn garbage_behind_the_preface_ends_the_connection(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let mut raw = Raw::connect(&victim.over, victim.address()).await;
    raw.send(&[PREFACE, &[0xff; 1_000]].concat()).await;
    raw.read_to_end().await;
    victim.lives_on().await;
}

async fn who_says_nothing_is_closed_after_the_handshake_timeout(over: Over) {
    let hasty = GrpcTransport::builder().handshake_timeout(Duration::from_millis(100));
    let victim = Victim::new(over, hasty).await;
    let preface = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    for said in [&b""[..], &PREFACE[..10], &preface] {
        let mut raw = Raw::connect(&victim.over, victim.address()).await;
        raw.send(said).await;
        raw.read_to_end().await;
    }
    victim.lives_on().await;
}

async fn another_method_is_unimplemented(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let refused = Attack::begin(&victim, "/shop.Stock/Reserve", Vec::new()).await;
    let status = refused.err().expect("it is refused");
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains(PATH), "{status}");
    victim.lives_on().await;
}

async fn a_hello_that_is_none_is_refused_with_the_reason(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let later = Hello { version: 2, ..hello() };
    let nobody = Hello { node: 0, ..hello() };
    let cases = [
        (b"\xff\xff".to_vec(), "not a protobuf message"),
        (vec![0; 10_000], "too long"),
        (later.encode_to_vec(), "not version 2"),
        (nobody.encode_to_vec(), "node id is zero"),
    ];
    for (first, reason) in cases {
        let status = Attack::begin(&victim, PATH, first).await.err().expect("it is refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(reason), "{status}");
    }
    victim.lives_on().await;
}

async fn chunks_that_break_the_rules_are_faults_of_the_peer(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let oversized = [&0x3000_0001_u32.to_le_bytes()[..], &[0; 8]].concat();
    let cases = [
        (vec![0xff; 4], "chunk kind 7 does not exist"),
        (vec![1, 2, 3], "in the middle of a chunk"),
        (oversized, "in the middle of a chunk"),
    ];
    for (message, reason) in cases {
        let index = victim.sink.opened_count();
        let mut attack = Attack::after_hello(&victim).await;
        let nonce = victim.sink.opened(index).await.link().nonce;
        attack.send(message).await;
        assert!(attack.goodbye().await.contains(reason));
        drop(attack.send.take());
        match victim.sink.closed(nonce).await {
            CloseReason::Fault(text) => assert!(text.contains(reason), "{text}"),
            other => panic!("expected a fault, not {other:?}"),
        }
    }
    victim.lives_on().await;
}

async fn a_message_above_the_limit_is_a_fault_and_never_buffered(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder().message_bytes_max(4 << 10)).await;
    let index = victim.sink.opened_count();
    let mut attack = Attack::after_hello(&victim).await;
    let nonce = victim.sink.opened(index).await.link().nonce;
    attack.send(vec![0; 5_000]).await;
    match victim.sink.closed(nonce).await {
        CloseReason::Fault(text) => assert!(text.contains("limit"), "{text}"),
        other => panic!("expected a fault, not {other:?}"),
    }
    assert!(attack.goodbye().await.contains("limit"));
    victim.lives_on().await;
}

async fn a_stream_that_is_cut_is_an_end_by_the_network(over: Over) {
    let victim = Victim::new(over, GrpcTransport::builder()).await;
    let index = victim.sink.opened_count();
    let attack = Attack::after_hello(&victim).await;
    let nonce = victim.sink.opened(index).await.link().nonce;
    drop(attack);
    let reason = victim.sink.closed(nonce).await;
    assert!(matches!(reason, CloseReason::Network(_)), "{reason:?}");
    victim.lives_on().await;
}

async fn a_peer_that_goes_silent_is_closed_after_the_keep_alive_timeout(over: Over) {
    let builder = GrpcTransport::builder()
        .keep_alive_interval(Duration::from_millis(50))
        .keep_alive_timeout(Duration::from_millis(200));
    let victim = Victim::new(over, builder).await;
    let index = victim.sink.opened_count();
    let attack = Attack::after_hello(&victim).await;
    let nonce = victim.sink.opened(index).await.link().nonce;
    assert_eq!(victim.sink.closed(nonce).await, CloseReason::KeepAlive);
    drop(attack);
    victim.lives_on().await;
}
