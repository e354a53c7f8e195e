//! The deeds of the conformance suite, over plain sockets.

use std::cell::RefCell;
use std::sync::Arc;

use convoke_transport::conformance::{self, Attacker, Deed, SHORT, Setup};
use convoke_transport::{Address, BoxFuture};
use convoke_transport_tcp::TcpTransport;

use crate::places::Kind;
use crate::raw::{Raw, hello};
use crate::wire::Said;

over_every_socket! {
    every_deed_ends_the_connection_of_who_does_it_and_no_other,
}

pub(crate) struct OverSockets;

impl Attacker for OverSockets {
    fn attack(&self, victim: Address, deed: Deed) -> BoxFuture<Option<String>> {
        Box::pin(async move {
            let said = Said::of(deed);
            let mut raw = Raw::connect(&victim).await;
            if said.is_after_hello {
                raw.send(&hello(66)).await;
                raw.envelope().await.expect("the victim says hello");
            }
            raw.send(&said.bytes).await;
            let answer = if said.leaves { Vec::new() } else { raw.heard().await };
            Some(said.told(&answer))
        })
    }
}

async fn every_deed_ends_the_connection_of_who_does_it_and_no_other(kind: Kind) {
    let places = RefCell::new(Vec::new());
    let setup = || {
        let place = kind.place();
        let listen = place.address.clone();
        places.borrow_mut().push(place);
        let builder = TcpTransport::builder().control_window_bytes(4 << 10);
        let builder = builder.handshake_timeout(SHORT).keep_alive_timeout(SHORT);
        let builder = builder.keep_alive_interval(SHORT / 4);
        let transport = Arc::new(builder.build().expect("the settings are legal"));
        Setup { listening: Arc::clone(&transport) as _, dialling: transport, listen }
    };
    let done = conformance::hostile(setup, &OverSockets).await;
    assert_eq!(done, Deed::all().count(), "all of them can be done");
}
