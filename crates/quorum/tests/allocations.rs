//! Allocations of a quorum call: client and members in this process, on one thread, over TCP.

#[path = "support/cluster.rs"]
mod support;

use alloc_tracker::{Allocator, Session};
use convoke_core::{Context, Endpoint, Service, Status};
use convoke_quorum::{Configuration, Majority, QuorumExt};
use convoke_transport_tcp::TcpTransport;

use support::{ASK, Answer, node};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

const CALLS: u64 = 1_000;

/// Four members and their configuration.
async fn members() -> (Vec<Endpoint>, Configuration) {
    let mut servers = Vec::new();
    for id in 1..=4 {
        let service = Service::new().unary(ASK, move |number, _: Context| async move {
            Ok::<_, Status>(Answer { node: id, number })
        });
        let server = Endpoint::builder().node(node(id)).transport(TcpTransport::new());
        let server = server.serve(service).listen("tcp://127.0.0.1:0").start().await.unwrap();
        servers.push(server);
    }
    let members = Configuration::new(&servers).unwrap();
    (servers, members)
}

/// Allocations of so many calls, each made by `ask`.
async fn count(ask: impl AsyncFn(u64)) -> u64 {
    for number in 0..100 {
        ask(number).await;
    }
    let session = Session::new();
    let span = session.operation("calls").measure_thread();
    for number in 0..CALLS {
        ask(number).await;
    }
    drop(span);
    let report = session.to_report();
    report.operations().map(|(_, spent)| spent.total_allocations_count()).sum()
}

#[tokio::test]
async fn a_majority_of_four_allocates_four_times_on_both_sides_together() {
    let (_servers, members) = members().await;
    let client = Endpoint::builder().transport(TcpTransport::new()).peers(&members);
    let client = client.start().await.unwrap();
    let call = |number| client.call(ASK, number).to_all(&members);
    let acked = count(async |number| {
        assert_eq!(call(number).acked_by(Majority).await.unwrap().number, number);
    });
    let acked = acked.await;
    let all = count(async |number| {
        assert_eq!(call(number).quorum(Majority).await.unwrap().len(), 3);
    });
    let all = all.await;
    println!("in {CALLS} calls to 4 members {acked} for the first reply, {all} for all of them");
    // Lists of more than one: branches, requests, replies, and those that were read with the first.
    // And buffers now and then, when the machine is busy.
    assert!(acked <= 4 * CALLS + CALLS / 4, "{acked} allocations");
    // The replies are handed over in the vector in which they were kept.
    assert!(all.abs_diff(acked) <= CALLS / 4, "{all} allocations, {acked} for the first alone");
}
