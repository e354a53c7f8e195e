//! Members over a simulated network, beside one that begins what it never ends.

use std::time::Duration;

use brb::broadcasts::{VALUE_BYTES_MAX, WINDOW};
use brb::node::{Member, Refused, space};
use brb::protocol::{READY, SEND};
use bytes::Bytes;
use convoke::cast::{Announce, CastBody};
use convoke::quorum::Configuration;
use convoke::quorum::echo::{Payloads, digest_of};
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use tokio::time::timeout;

async fn start(network: &SimNetwork, members: &Configuration) -> (Vec<Endpoint>, Vec<Payloads>) {
    let (mut endpoints, mut stores): (Vec<Endpoint>, Vec<Payloads>) = Default::default();
    for node in members.nodes() {
        let payloads = Payloads::new(8 << 20).shared(members.len());
        let name = format!("sim://{node}");
        let endpoint =
            Endpoint::builder().node(node).transport(network.transport()).seed(node.get());
        let endpoint = endpoint.listen(name).serve(payloads.service()).start().await.expect("once");
        for earlier in &endpoints {
            endpoint.connect(earlier.addresses()).await.expect("it listens");
        }
        endpoints.push(endpoint);
        stores.push(payloads);
    }
    network.default_latency(Duration::from_millis(1));
    (endpoints, stores)
}

#[tokio::test(start_paused = true)]
async fn a_source_that_completes_nothing_holds_up_no_other() {
    let (network, members) = (SimNetwork::new(7), Configuration::new((1..=4).map(NodeId::new)));
    let members = members.expect("they differ");
    let (endpoints, stores) = start(&network, &members).await;
    let (liar, honest) = endpoints.split_last().expect("there are four");
    let announce = Announce { senders_min: usize::MAX, source: None };
    let lies = liar.cast_space(space(&members).id(), 1, announce, None).expect("once");
    let mut correct = Vec::new();
    for (endpoint, payloads) in honest.iter().zip(&stores) {
        correct.push(Member::start(endpoint, &members, 1, payloads).expect("four bear one"));
    }
    // Large values of its own, each for one member alone, and its word on what nobody has
    // broadcast.
    for sequence in 0..1_100_u64 {
        let value = Bytes::from(vec![7; VALUE_BYTES_MAX]);
        let digest = digest_of(&value);
        let body = |phase, payload| CastBody { phase, sender: 3, epoch: 0, digest, payload };
        let to = NodeId::new(1 + sequence % 3);
        lies.send((4, sequence), Duration::from_secs(60), [to], body(SEND, value));
        lies.send((1, sequence), Duration::from_secs(60), [to], body(READY, Bytes::new()));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for sequence in 0..200 {
        let source = usize::try_from(sequence % 3).expect("small");
        let value = Bytes::from(format!("value {sequence}"));
        let broadcast = correct[source].broadcast(sequence / 3, value.clone());
        broadcast.expect("those before are delivered");
        for member in &mut correct {
            let delivery = timeout(Duration::from_secs(5), member.next()).await;
            let delivery = delivery.expect("it is not held up").expect("the member runs");
            assert_eq!((delivery.value, delivery.sequence), (value.clone(), sequence / 3));
        }
    }
    // The values of the correct sources are still there, though the liar sent far more than there
    // is room for.
    assert!(stores[..3].iter().all(|store| store.get(digest_of(b"value 150")).is_some()));
    let refused = correct[0].broadcast(0, Bytes::new());
    assert_eq!(refused, Err(Refused::Twice(0)));
    assert_eq!(correct[0].broadcast(WINDOW * 9, Bytes::new()), Err(Refused::TooMany(WINDOW * 9)));
}
