//! The deeds of the conformance suite, in streams of gRPC.

use std::sync::Arc;

use convoke_transport::conformance::{
    self, Attacker, Deed, HARMFUL, SHORT, Setup, VICTIM_FRAME_BYTES_MAX, noise,
};
use convoke_transport::{Address, BoxFuture};
use convoke_transport_grpc::GrpcTransport;

use crate::attack::{Attack, GOODBYE, LAST, MORE, PATH, announced, chunk, hello, message};
use crate::http2::Raw;
use crate::over::{ATTACKER, Over, over_both};

over_both! {
    every_deed_ends_the_connection_of_who_does_it_and_no_other,
}

impl Attacker for Over {
    fn attack(&self, victim: Address, deed: Deed) -> BoxFuture<Option<String>> {
        let over = self.clone();
        let victim = victim.rest().parse().expect("it is a socket address");
        Box::pin(async move {
            if let Some(bytes) = instead_of_http2(deed) {
                let mut raw = Raw::connect(&over, victim).await;
                raw.send(bytes).await;
                raw.read_to_end().await;
                return Some(String::new());
            }
            if let Some(bytes) = instead_of_hello(deed) {
                let refused = Attack::begin(&over, victim, PATH, bytes).await;
                return Some(refused.err().expect("it is refused").message().to_owned());
            }
            let bytes = after_hello(deed)?;
            let mut attack = Attack::after_hello(&over, victim).await;
            attack.say(bytes).await;
            if matches!(deed, Deed::HalfFrame | Deed::Noise(_)) {
                drop(attack.send.take());
            }
            Some(attack.goodbye().await)
        })
    }
}

fn instead_of_http2(deed: Deed) -> Option<&'static [u8]> {
    match deed {
        Deed::Garbage => Some(b"\x16\x03\x01\x02\x00\x01"),
        Deed::Silence => Some(b""),
        _ => None,
    }
}

fn instead_of_hello(deed: Deed) -> Option<Vec<u8>> {
    match deed {
        Deed::Stalled | Deed::HalfHello => Some(hello(1, ATTACKER)[..20].to_vec()),
        Deed::MalformedHello => Some(message(b"\xff\xff")),
        Deed::LongHello => Some(message(&[0; 10_000])),
        Deed::AnotherVersion => Some(hello(9, ATTACKER)),
        Deed::Nobody => Some(hello(1, 0)),
        _ => None,
    }
}

fn after_hello(deed: Deed) -> Option<Vec<u8>> {
    Some(match deed {
        Deed::Mute => Vec::new(),
        Deed::UnknownKind => message(&chunk(5, 0, b"")),
        // A message, of which frames and their parts are made.
        Deed::OverLimit => announced((256 << 10) + 1).to_vec(),
        Deed::Endless => {
            let count = VICTIM_FRAME_BYTES_MAX as usize / 10_000 + 1;
            message(&chunk(MORE, 1, &[0; 10_000])).repeat(count)
        }
        Deed::HalfFrame => {
            message(&[chunk(LAST, 1, b"whole"), chunk(MORE, 1, b"half a frame")].concat())
        }
        Deed::Goodbye => message(&chunk(GOODBYE, 0, HARMFUL)),
        // As a message, and in its place.
        Deed::Noise(seed) if seed % 2 == 0 => message(&noise(seed, 5_000)),
        Deed::Noise(seed) => noise(seed, 5_000),
        // Credit is HTTP/2's own.
        _ => return None,
    })
}

async fn every_deed_ends_the_connection_of_who_does_it_and_no_other(over: Over) {
    let setup = |handshakes_max| {
        let hasty = GrpcTransport::builder().handshake_timeout(SHORT).keep_alive_timeout(SHORT);
        let hasty = hasty.keep_alive_interval(SHORT / 4).handshakes_max(handshakes_max);
        Setup {
            listening: Arc::new(over.transport(hasty, &[1])),
            dialling: Arc::new(over.transport(GrpcTransport::builder(), &[2, 3])),
            listen: over.any(),
        }
    };
    let done = conformance::hostile(|| setup(256), &over).await;
    assert_eq!(done, Deed::all().count() - 2);
    // Who has said that it speaks HTTP/2 has its place among the connections.
    let attacker = Arc::new(over.clone());
    conformance::a_crowd_in_its_handshake_leaves_room_later(setup(6), attacker, Deed::Silence)
        .await;
}
