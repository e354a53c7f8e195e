//! The deeds of the conformance suite, by peers with a good certificate.

use std::io::{Read, Write};
use std::sync::Arc;

use convoke_transport::conformance::{self, Attacker, Deed, SHORT, Setup};
use convoke_transport::{Address, BoxFuture};
use convoke_transport_tcp::TcpTransport;

use crate::certificates::{Authority, Issued};
use crate::raw::{attack, hello};
use crate::trust::{identity, identity_of};
use crate::wire::{HELLO_BYTES, Said};

/// With this certificate.
struct OverTls(Issued);

impl Attacker for OverTls {
    fn attack(&self, victim: Address, deed: Deed) -> BoxFuture<Option<String>> {
        let issued = self.0.clone();
        Box::pin(async move {
            let attacked = attack(&victim, Some(issued), move |raw| {
                let said = Said::of(deed);
                if said.is_after_hello {
                    raw.write_all(&hello(66)).expect("the victim reads");
                    raw.read_exact(&mut [0; HELLO_BYTES]).expect("the victim says hello");
                }
                // The victim may have closed already.
                let _ = raw.write_all(&said.bytes);
                let mut answer = Vec::new();
                if !said.leaves {
                    let _ = raw.read_to_end(&mut answer);
                }
                said.told(&answer)
            });
            Some(attacked.await)
        })
    }
}

#[tokio::test]
async fn every_deed_ends_the_connection_of_who_does_it_and_no_other() {
    let authority = Authority::new();
    let honest = identity(&authority.issue([2, 3]), &authority);
    let setup = || {
        let builder = TcpTransport::builder().control_window_bytes(4 << 10);
        let builder = builder.handshake_timeout(SHORT).keep_alive_timeout(SHORT);
        let builder = builder.keep_alive_interval(SHORT / 4);
        let listening = builder.tls(identity_of(&authority, 1)).build();
        Setup {
            listening: Arc::new(listening.expect("the settings are legal")),
            dialling: Arc::new(TcpTransport::tls(honest.clone())),
            listen: "tls://127.0.0.1:0".parse().expect("it is an address"),
        }
    };
    let attacker = Arc::new(OverTls(authority.issue([66])));
    let done = conformance::hostile(setup, &*attacker).await;
    assert_eq!(done, Deed::all().count(), "all of them can be done");

    let builder = TcpTransport::builder().handshake_timeout(SHORT).handshakes_max(6);
    let listening = builder.tls(identity_of(&authority, 1)).build().expect("it is legal");
    let crowded = Setup { listening: Arc::new(listening), ..setup() };
    let refused =
        conformance::a_crowd_in_its_handshake_leaves_room_later(crowded, attacker, Deed::Stalled)
            .await;
    let text = refused.to_string();
    assert!(text.contains("in their handshake: 3 of 6 are taken, 3 of them"), "{text}");
}
