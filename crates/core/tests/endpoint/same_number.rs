//! Two processes under one number: neither is left at a connection that nobody answers.

use std::time::Duration;

use convoke_core::{Context, Endpoint, Method, NodeId, Service, Status};
use convoke_sim::transport::SimNetwork;

const ASK: Method<u64, u64> = Method::new("test.Test/Ask");

async fn start(network: &SimNetwork, node: u64, seed: u64) -> Endpoint {
    let service = Service::new()
        .unary(ASK, |number: u64, _: Context| async move { Ok::<_, Status>(number + 1) });
    let builder = Endpoint::builder().node(NodeId::new(node)).seed(seed);
    let listen = format!("sim://node{seed}:0");
    let builder = builder.transport(network.transport()).listen(listen).serve(service);
    builder.start().await.expect("nothing fails")
}

async fn ask(endpoint: &Endpoint, server: &Endpoint) -> u64 {
    let peer = endpoint.connect(server.addresses()).await.expect("the server listens");
    let reply = endpoint.call(ASK, 1).to(peer).deadline(Duration::from_secs(60)).await;
    reply.expect("its connection is answered, or was closed")
}

#[tokio::test(start_paused = true)]
async fn the_connection_of_an_earlier_life_is_closed() {
    let network = SimNetwork::new(3);
    let server = start(&network, 9, 1).await;
    let lives = [start(&network, 7, 2).await, start(&network, 7, 3).await];
    // As far as the server can tell, the second is the first one started again, and so on.
    for one in lives.iter().chain(&lives).chain(&lives) {
        assert_eq!(ask(one, &server).await, 2);
        // The one before is told in good time, so that it connects again.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(server.load().connections, 1);
        let open: usize = lives.iter().map(|life| life.load().connections).sum();
        assert_eq!(open, 1);
    }
}
