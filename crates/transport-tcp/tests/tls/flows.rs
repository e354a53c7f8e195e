//! Flows of one connection: all of the same principal.

use std::io::{Read, Write};
use std::sync::Arc;

use convoke_transport::conformance::{Setup, Victim};
use convoke_transport_tcp::TcpTransport;

use crate::certificates::Authority;
use crate::raw::{attack, connect, hello_with, say};
use crate::trust::{identity, identity_of};

#[tokio::test]
async fn who_knows_the_secret_must_also_prove_to_be_the_same_node() {
    let authority = Authority::new();
    let builder = TcpTransport::builder().flows(2).tls(identity_of(&authority, 1));
    let setup = Setup {
        listening: Arc::new(builder.build().expect("it is legal")),
        dialling: Arc::new(TcpTransport::tls(identity(&authority.issue([2, 3]), &authority))),
        listen: "tls://127.0.0.1:0".parse().expect("it is an address"),
    };
    let victim = Victim::new(setup).await;
    let (nine, ten) = (authority.issue([9]), authority.issue([10]));
    let (address, of_nine) = (victim.address(), Some(nine.clone()));
    let at = address.rest().to_owned();
    let refusals = attack(&address, of_nine, move |first| {
        first.write_all(&hello_with(9, &[&[2, 0][..], &[0; 24]].concat())).expect("it is read");
        let mut answer = [0; 14 + 45 + 26];
        first.read_exact(&mut answer).expect("the victim says hello");
        let mut flow = answer[14 + 45..].to_vec();
        flow[1] = 1;
        let refused_as = |node| {
            let mut joining = connect(&at, Some(&ten));
            let told = say(&mut joining, &hello_with(node, &flow)).expect("the victim says why");
            String::from_utf8_lossy(&told).into_owned()
        };
        let refusals = [refused_as(9), refused_as(10)];
        // Who proves it may.
        let mut second = connect(&at, Some(&nine));
        second.write_all(&hello_with(9, &flow)).expect("it is read");
        second.read_exact(&mut [0; 14 + 45]).expect("it is taken");
        refusals
    })
    .await;
    assert!(refusals[0].contains("but its certificate proves n10"), "{}", refusals[0]);
    assert!(refusals[1].contains("another node"), "{}", refusals[1]);
    let opened = victim.sink.opened(1).await;
    assert_eq!(opened.link().peer.node.get(), 9);
    victim.sink.closed(opened.link().nonce).await;
    victim.lives_on().await;
}
