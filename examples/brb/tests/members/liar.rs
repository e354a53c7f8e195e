//! Members over a simulated network, beside one that begins what it never ends.

use std::time::Duration;

use brb::broadcasts::{VALUE_BYTES_MAX, WINDOW};
use brb::node::{Member, Refused, space};
use brb::protocol::{Broadcast, ECHO, READY, SEND, Step, plan};
use bytes::Bytes;
use convoke::cast::{Announce, CastBody};
use convoke::quorum::Configuration;
use convoke::quorum::echo::{EchoCore, EchoVote, Payloads, digest_of};
use convoke::sim::transport::SimNetwork;
use convoke::{Endpoint, NodeId};
use tokio::time::timeout;

pub(crate) async fn start(
    network: &SimNetwork,
    members: &Configuration,
) -> (Vec<Endpoint>, Vec<Payloads>) {
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

#[test]
fn no_holder_is_asked_first_by_all_who_lack_the_value() {
    let nodes: Vec<NodeId> = (1..=7).map(NodeId::new).collect();
    let members = Configuration::new(nodes.clone()).expect("they differ");
    let asked = |me: NodeId| {
        let plan = plan(7, 2).expect("seven bear two");
        let mut votes = EchoCore::new(me, &members, plan).expect("it is one of them");
        let digest = digest_of(b"heron");
        for from in nodes.iter().filter(|node| **node != me) {
            for phase in [ECHO, READY] {
                // Some have not echoed where they are heard.
                if phase == READY || from.get() % 2 == 1 {
                    votes.handle_vote(*from, EchoVote { phase, digest }).expect("it is a vote");
                }
            }
        }
        let Some(Step::Pull(_, from)) = Broadcast::of(nodes[0]).next(&votes) else {
            panic!("it lacks the value")
        };
        from.iter().map(|node| node.get()).collect::<Vec<_>>()
    };
    assert_eq!(asked(NodeId::new(2)), [3, 5, 7, 1, 2, 4, 6]);
    assert_eq!(asked(NodeId::new(6)), [7, 1, 3, 5, 6, 2, 4]);
}
