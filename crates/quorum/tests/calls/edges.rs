//! Calls at their edges: large batches, full connections, large replies, replies that do not count,
//! deadlines without end.

use std::time::Duration;

use convoke_core::{
    Call, Cause, Context, Endpoint, Limits, Method, Peer, PeerState, Service, Status, Task,
};
use convoke_quorum::{All, Majority, QuorumExt, Retry};
use convoke_sim::transport::SimNetwork;
use convoke_transport_tcp::TcpTransport;

use crate::support::{
    self, ASK, Answer, Behaviour, CLIENT, Cluster, NOTE, REPEAT, Replica, addressed, node, service,
};

#[derive(Clone, PartialEq, prost::Message)]
struct Blob {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: bytes::Bytes,
}

async fn ordered_over_tcp() {
    let replica = Replica::new(1);
    let server = Endpoint::builder()
        .node(node(1))
        .transport(TcpTransport::new())
        .listen("tcp://127.0.0.1:0")
        .serve(service(&replica, &addressed(1)))
        .start()
        .await
        .unwrap();
    let client = Endpoint::builder().transport(TcpTransport::new()).start().await.unwrap();
    let peer = client.connect(server.addresses()).await.unwrap();
    let count = 6_000;
    let call = client.fan_out((0..count).map(|n| (peer, NOTE.request(n))));
    // Longer than the default: a busy machine is no failure.
    let outcome = call.deadline(Duration::from_secs(300)).open().unwrap().outcome().await;
    assert!(outcome.is_complete());
    let asked = replica.asked();
    let first = asked.windows(2).position(|pair| pair[0] > pair[1]);
    assert_eq!(asked.len() as u64, count);
    assert_eq!(first.map(|at| (at, asked[at], asked[at + 1])), None, "out of order");
}

#[tokio::test(flavor = "current_thread")]
async fn ordered_requests_start_in_order_on_one_thread() {
    ordered_over_tcp().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_requests_start_in_order_on_threads() {
    ordered_over_tcp().await;
}

#[tokio::test(start_paused = true)]
async fn a_hedged_call_of_nobody_has_no_replies() {
    let cluster = Cluster::start(3).await;
    let nobody = cluster.members.each(&cluster.client, |_| None::<convoke_core::Request<Answer>>);
    let call = nobody.hedge(1, Duration::from_millis(5)).open().unwrap();
    assert!(call.collect().await.0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_fails_a_flat_call_not_itself() {
    let cluster = Cluster::start(1).await;
    let peer = cluster.members.members()[0];
    const FILL: Method<String, Answer> = Method::new("test.Replica/Fill");
    let large = "x".repeat(1 << 20);
    cluster.will(1, Behaviour::Hang);
    let hanging = cluster.client.call(ASK, 1).to(peer).open().unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    cluster.network.partition(node(CLIENT), node(1));
    let mut held = Vec::new();
    for count in 0..24 {
        if count == 20 {
            tokio::time::sleep(Duration::from_millis(1)).await; // What there is credit for leaves.
        }
        let call = cluster.client.call(FILL, large.clone());
        held.push(call.deadline(Duration::from_secs(2)).to(peer).open().unwrap());
    }
    let state = cluster.client.watch_peer(peer);
    assert_eq!(*state.borrow(), PeerState::Connected);
    // A CANCEL takes the other lane, which has room.
    drop(hanging);
    assert_eq!(*state.borrow(), PeerState::Connected);
    let call = cluster.client.call(FILL, large.clone());
    call.deadline(Duration::from_millis(500)).to(peer).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*state.borrow(), PeerState::Connected, "the connection was closed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_opened_when_writable_waits_for_room() {
    let cluster = Cluster::start(1).await;
    let peer = cluster.members.members()[0];
    const FILL: Method<String, Answer> = Method::new("test.Replica/Fill");
    let large = "x".repeat(1 << 20);
    cluster.network.partition(node(CLIENT), node(1));
    let mut held = Vec::new();
    for count in 0..24 {
        if count == 20 {
            tokio::time::sleep(Duration::from_millis(1)).await; // What there is credit for leaves.
        }
        held.push(cluster.client.call(FILL, large.clone()).to(peer).open().unwrap());
    }
    // Nobody serves it, which only the replica can say.
    let ask = || cluster.client.call(FILL, large.clone()).to(peer);
    let causes = async |call: Call<Answer>| {
        let outcome = call.outcome().await;
        outcome.failures.iter().map(|failure| failure.cause).collect::<Vec<_>>()
    };
    assert_eq!(causes(ask().open().unwrap()).await, [Cause::Unreachable]);
    let mut waiting = std::pin::pin!(ask().open_when_writable());
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err());
    cluster.network.heal_all();
    assert_eq!(causes(waiting.await.unwrap()).await, [Cause::UnknownMethod]);
}

#[tokio::test(start_paused = true)]
async fn all_fails_as_soon_as_one_reply_is_not_a_members_own() {
    let cluster = Cluster::start(3).await;
    let stranger = support::Replica::new(9);
    let nine = support::endpoint(&cluster.network, 9)
        .serve(service(&stranger, &cluster.members))
        .start()
        .await
        .unwrap();
    nine.peer(node(CLIENT), [format!("sim://n{CLIENT}")]).unwrap();
    cluster.endpoint(1).peer(node(9), ["sim://n9".to_owned()]).unwrap();
    cluster.client.peer(node(9), ["sim://n9".to_owned()]).unwrap();
    cluster.will(1, Behaviour::HandOn);
    cluster.will(2, Behaviour::Hang);
    cluster.will(3, Behaviour::Hang);
    let start = tokio::time::Instant::now();
    cluster.all(ASK, 1).deadline(Duration::from_secs(5)).quorum(All).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn all_fails_as_soon_as_one_reply_is_undecodable() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Other {
        #[prost(string, tag = "1")]
        text: String,
    }
    const ASK_OTHER: Method<u64, Other> = Method::new("test.Replica/Ask");
    let cluster = Cluster::start(3).await;
    cluster.will(2, Behaviour::Hang);
    cluster.will(3, Behaviour::Hang);
    let start = tokio::time::Instant::now();
    let call = cluster.client.call(ASK_OTHER, 1).to_all(&cluster.members);
    call.deadline(Duration::from_secs(5)).quorum(All).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_retried_call_may_have_any_deadline() {
    let cluster = Cluster::start(3).await;
    let call = cluster.all(support::REPEAT, 1).deadline(Duration::MAX);
    call.quorum(Majority).await.unwrap();
    let call = cluster.all(support::REPEAT, 1).deadline(Duration::MAX);
    call.retry(Retry::times(1)).quorum(Majority).await.unwrap();
}

/// Replies that are together more than a call may hold are read one by one.
#[tokio::test(start_paused = true)]
async fn a_majority_of_large_replies_is_read_as_they_come() {
    const READ: Method<u64, Blob> = Method::new("test.Edges/Read");
    let mut limits = Limits::default();
    limits.message_bytes_max = 300 << 10;
    limits.reply_bytes_max = 512 << 10;
    let network = SimNetwork::new(7);
    let members = addressed(5);
    let mut servers = Vec::new();
    for id in 1..=5 {
        let service = Service::new().unary(READ, move |_: u64, _: Context| async move {
            if id > 3 {
                std::future::pending::<()>().await;
            }
            Ok::<_, Status>(Blob { bytes: vec![7; 200 << 10].into() })
        });
        let builder = support::endpoint(&network, id).serve(service).limits(limits.clone());
        servers.push(builder.start().await.unwrap());
    }
    let client = support::endpoint(&network, CLIENT).limits(limits).start().await.unwrap();
    members.introduce(&client).unwrap();
    for member in &members {
        client.warm_up(member).await.unwrap();
    }
    network.default_latency(support::HOP);
    let start = tokio::time::Instant::now();
    let call = client.call(READ, 1).to_all(&members);
    let read = call.deadline(Duration::from_secs(5)).quorum(Majority).await;
    assert!(read.is_ok() && start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_for_several_items_is_woken_when_no_more_have_room() {
    const READ: Method<u64, Blob> = Method::new("test.Edges/Stream");
    let network = SimNetwork::new(7);
    let members = addressed(1);
    let service = Service::new().tree(READ, |count: u64, task: Task<Blob>| async move {
        let mut items = task.stream()?;
        for _ in 0..count {
            items.send(&Blob { bytes: vec![7; 200 << 10].into() }).await?;
        }
        drop(items);
        Ok(task.finish())
    });
    let _server = support::endpoint(&network, 1).serve(service).start().await.unwrap();
    let client = support::endpoint(&network, CLIENT).start().await.unwrap();
    members.introduce(&client).unwrap();
    client.warm_up(&members.members()[0]).await.unwrap();
    network.default_latency(support::HOP);
    let call = client.call(READ, 5).to(members.members()[0]);
    let mut call = call.deadline(Duration::from_secs(5)).open().unwrap();
    call.wake_after(3);
    let start = tokio::time::Instant::now();
    assert!(call.next().await.unwrap().is_ok());
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_fails_at_once_is_asked_again_after_others_had_a_turn() {
    let cluster = Cluster::start(1).await;
    // Nobody knows where it is, so it fails without a frame.
    let call = cluster.client.call(REPEAT, 1).to_all([Peer::from(node(9))]);
    let call = call.retry(Retry::times(10_000).pause(Duration::ZERO)).quorum(All);
    tokio::select! {
        biased;
        told = call.into_future() => panic!("it was asked without a pause: {told:?}"),
        () = tokio::task::yield_now() => {}
    }
}
