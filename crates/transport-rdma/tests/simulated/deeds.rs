//! The deeds of the conformance suite, in messages of queue pairs.

use std::sync::Arc;

use convoke_transport::conformance::{
    self, Attacker, Deed, HARMFUL, SHORT, Setup, VICTIM_FRAME_BYTES_MAX, noise,
};
use convoke_transport::{Address, BoxFuture};
use convoke_transport_rdma::RdmaTransport;
use convoke_transport_rdma::provider::simulated::Fabric;

use crate::stranger::{
    CONTROL_FRAME, DATA_FRAME, FRAMES, GOODBYE, Stranger, first_part, hello, message, message_with,
};

/// Slots of the victim.
const SLOTS: u16 = 4;

struct OverVerbs(Fabric);

impl Attacker for OverVerbs {
    fn attack(&self, victim: Address, deed: Deed) -> BoxFuture<Option<String>> {
        let fabric = self.0.clone();
        let victim = victim.rest().parse().expect("it is a socket address");
        Box::pin(async move {
            if let Some(request) = instead_of_hello(deed) {
                return Some(match Stranger::connect(&fabric, victim, &request).await {
                    // Without the introduction that belongs to a hello.
                    Ok(stranger) => stranger.told().await,
                    Err(refusal) => refusal,
                });
            }
            let messages = after_hello(deed)?;
            let stranger = Stranger::introduced(&fabric, victim).await;
            stranger.say(&messages);
            let leaves = matches!(deed, Deed::HalfFrame | Deed::Noise(_));
            Some(if leaves { String::new() } else { stranger.told().await })
        })
    }
}

fn instead_of_hello(deed: Deed) -> Option<Vec<u8>> {
    match deed {
        Deed::Garbage => Some(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        Deed::Stalled => Some(hello(1, 66)),
        Deed::HalfHello | Deed::MalformedHello => {
            Some([&b"\x93cvk\x01\0\0\x14"[..], &hello(1, 66)[8..28]].concat())
        }
        Deed::AnotherVersion => Some(hello(9, 66)),
        Deed::Nobody => Some(hello(1, 0)),
        _ => None,
    }
}

fn after_hello(deed: Deed) -> Option<Vec<Vec<u8>>> {
    Some(match deed {
        Deed::Mute => vec![],
        Deed::UnknownKind => vec![message(0xff, b"")],
        Deed::OverLimit => vec![message(FRAMES, &first_part(VICTIM_FRAME_BYTES_MAX + 1, b"x"))],
        // The introduction took one of the slots.
        Deed::BeyondCredit => vec![message(CONTROL_FRAME, &[0; 30]); usize::from(SLOTS) + 1],
        Deed::UnusedCredit => vec![message_with(1_000, DATA_FRAME, b"")],
        Deed::HalfFrame => {
            vec![message(DATA_FRAME, b"whole"), message(FRAMES, &first_part(100, b"half a frame"))]
        }
        Deed::Goodbye => vec![message(GOODBYE, HARMFUL)],
        Deed::Noise(seed) => vec![noise(seed, 200)],
        // Who has not asked for a connection is not there, a request has so much room for a hello,
        // and a frame says how long it will be.
        Deed::Silence | Deed::LongHello | Deed::Endless => return None,
        other => panic!("a deed that is not done yet: {other:?}"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_deed_ends_the_connection_of_who_does_it_and_no_other() {
    let fabric = Fabric::new();
    let setup = || {
        let hasty = RdmaTransport::builder(fabric.device()).slots(SLOTS).handshake_timeout(SHORT);
        let hasty = hasty.keep_alive_interval(SHORT / 4).keep_alive_timeout(SHORT);
        Setup {
            listening: Arc::new(hasty.build().expect("the settings are legal")),
            dialling: Arc::new(RdmaTransport::simulated(&fabric)),
            listen: "rdma://127.0.0.1:0".parse().expect("it is an address"),
        }
    };
    let done = conformance::hostile(setup, &OverVerbs(fabric.clone())).await;
    assert_eq!(done, Deed::all().count() - 3);

    // Each simulated device has an address of its own.
    let few = RdmaTransport::builder(fabric.device()).handshake_timeout(SHORT).handshakes_max(3);
    let crowded = Setup { listening: Arc::new(few.build().expect("it is legal")), ..setup() };
    let attacker = Arc::new(OverVerbs(fabric.clone()));
    let refused =
        conformance::a_crowd_in_its_handshake_leaves_room_later(crowded, attacker, Deed::Stalled)
            .await;
    let text = refused.to_string();
    assert!(text.contains("in their handshake: 3 of 3 are taken, 0 of them"), "{text}");
}
