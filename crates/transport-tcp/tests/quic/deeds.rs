//! The deeds of the conformance suite, over the streams of QUIC.

use std::sync::Arc;

use convoke_transport::conformance::{self, Attacker, Deed, HARMFUL, SHORT, Setup, noise};
use convoke_transport::{Address, BoxFuture};
use convoke_transport_tcp::QuicTransport;

use crate::Cluster;
use crate::any;
use crate::certificates::Issued;
use crate::raw::{Raw, hello, word};

/// With this certificate.
struct OverQuic(Issued);

impl Attacker for OverQuic {
    fn attack(&self, victim: Address, deed: Deed) -> BoxFuture<Option<String>> {
        let issued = self.0.clone();
        Box::pin(async move {
            let (mut another_version, mut long) = (hello(66), hello(66));
            another_version[8] = 9;
            long[12..14].fill(0xff);
            let mut malformed = hello(66)[..40].to_vec();
            malformed[12] = 40 - 14;
            let instead_of_hello = match deed {
                Deed::Garbage => Some(b"GET / HTTP/1.1\r\n\r\n".to_vec()),
                Deed::Silence => Some(Vec::new()),
                Deed::Stalled | Deed::HalfHello => Some(hello(66)[..30].to_vec()),
                Deed::MalformedHello => Some(malformed),
                Deed::LongHello => Some(long),
                Deed::AnotherVersion => Some(another_version),
                Deed::Nobody => Some(hello(0)),
                _ => None,
            };
            if let Some(bytes) = instead_of_hello {
                let mut raw = Raw::connect(&victim, &issued).await;
                raw.control.0.write_all(&bytes).await.expect("it is open");
                raw.send(&[0]).await;
                let leaves = deed == Deed::HalfHello;
                return Some(if leaves { String::new() } else { raw.told().await });
            }
            let bytes = match deed {
                Deed::UnknownKind => word(3, 0).to_vec(),
                Deed::OverLimit => word(1, 1 << 29).to_vec(),
                Deed::Goodbye => [&word(2, HARMFUL.len())[..], HARMFUL].concat(),
                Deed::Noise(seed) => noise(seed, 5_000),
                // Frames have no parts, credit is QUIC's own, who leaves takes back what it sent,
                // and whoever has a process answers.
                _ => return None,
            };
            let mut raw = Raw::hello(&victim, &issued, 66).await;
            // The victim may have closed already.
            let _ = raw.data.0.write_all(&bytes).await;
            let leaves = matches!(deed, Deed::Noise(_));
            Some(if leaves { String::new() } else { raw.told().await })
        })
    }
}

#[tokio::test]
async fn every_deed_ends_the_connection_of_who_does_it_and_no_other() {
    let cluster = Cluster::new();
    let honest = cluster.identity(&cluster.authority.issue([2, 3]));
    let hasty = cluster.builder(1).handshake_timeout(SHORT);
    let setup = || Setup {
        listening: Arc::new(hasty.clone().build().expect("the settings are legal")),
        dialling: Arc::new(QuicTransport::new(honest.clone())),
        listen: any(),
    };
    let attacker = Arc::new(OverQuic(cluster.issue(66)));
    let done = conformance::hostile(setup, &*attacker).await;
    assert_eq!(done, Deed::all().count() - 5);

    // Two of four are for addresses without proof, and one of the others for one with proof.
    let few = hasty.clone().handshakes_max(4).build().expect("the settings are legal");
    let crowded = Setup { listening: Arc::new(few), ..setup() };
    conformance::a_crowd_in_its_handshake_leaves_room_later(crowded, attacker, Deed::Stalled).await;
}
