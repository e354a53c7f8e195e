//! Many calls that are given up at once: by a caller, who loses none of the others, and by an
//! endpoint that leaves, and takes with it what runs elsewhere for it.

#![cfg(feature = "tcp")]

use std::future::pending;
use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{Call, Context, Endpoint, Finish, Method, NodeId, Service, Status, Task};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const NEVER: Method<(), ()> = Method::new("test.Test/Never");
/// Hands its work to another node.
const ONWARD: Method<u64, ()> = Method::new("test.Test/Onward");

const CALLS: usize = 2_000;
/// Far beyond what the test takes, so that no task ends by it.
const DEADLINE: Duration = Duration::from_secs(300);

async fn until(is_so: impl Fn() -> bool) -> Result {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    Ok(tokio::time::timeout(Duration::from_secs(60), wait).await?)
}

/// On one thread the peer reads nothing while the calls are dropped, so that what it granted and
/// what the control lane may queue is used up by a few hundred of them.
#[tokio::test]
async fn cancels_that_find_the_lane_full_wait_and_leave_the_connection_alone() -> Result {
    let service =
        Service::new().unary(NEVER, |(), _: Context| pending::<std::result::Result<(), Status>>());
    let small_window = TcpTransport::builder().control_window_bytes(4 << 10).build()?;
    let small_reserve = TcpTransport::builder().control_reserve_bytes(4 << 10).build()?;
    let server = Endpoint::builder().transport(small_window).listen("tcp://127.0.0.1:0");
    let server = server.serve(service).start().await?;
    let client = Endpoint::builder().transport(small_reserve).start().await?;
    let peer = client.connect(server.addresses()).await?;

    let open = || client.call(NEVER, ()).to(peer).deadline(DEADLINE).open();
    let mut beside = open()?;
    let calls: Vec<Call<()>> = (0..CALLS).map(|_| open()).collect::<std::result::Result<_, _>>()?;
    until(|| server.load().tasks == CALLS + 1).await?;
    let state = client.watch_peer(peer);

    drop(calls);
    until(|| server.load().tasks <= 1).await?;
    assert_eq!(server.load().tasks, 1, "the call beside them goes on");
    assert!(!state.has_changed()?, "the connection is the same");
    let told = tokio::time::timeout(Duration::ZERO, beside.next()).await;
    assert!(told.is_err(), "it has neither failed nor ended");
    Ok(())
}

async fn onward(to: u64, task: Task<()>) -> std::result::Result<Finish, Status> {
    Ok(task.tail(NodeId::new(to), NEVER.request(())).await?)
}

async fn server() -> Result<Endpoint> {
    let service = Service::new()
        .unary(NEVER, |(), _: Context| pending::<std::result::Result<(), Status>>())
        .tree(ONWARD, onward);
    let builder = Endpoint::builder().transport(TcpTransport::new()).listen("tcp://127.0.0.1:0");
    Ok(builder.serve(service).start().await?)
}

#[tokio::test]
async fn work_for_its_open_calls_stops_on_every_node() -> Result {
    let servers = [server().await?, server().await?, server().await?];
    servers[0].connect(servers[1].addresses()).await?;
    let tasks = || servers.iter().map(|server| server.load().tasks).sum::<usize>();
    // What is said with the close is waited for as long as the test waits.
    let patient = TcpTransport::builder().close_grace(DEADLINE).build()?;
    let client = Endpoint::builder().transport(patient).start().await?;
    let mut peers = Vec::new();
    for server in &servers {
        peers.push(client.connect(server.addresses()).await?);
    }

    let mut open = Vec::new();
    for number in 0..CALLS {
        open.push(client.call(NEVER, ()).to(peers[number % 3]).deadline(DEADLINE).open()?);
    }
    open.push(client.call(NEVER, ()).to_all(peers.clone()).deadline(DEADLINE).open()?);
    let onward = client.call(ONWARD, servers[1].me().node().get()).to(peers[0]);
    open.push(onward.deadline(DEADLINE).open()?);
    until(|| tasks() == CALLS + 4).await?;

    assert!(!client.shutdown(Duration::ZERO).await, "they have not ended by themselves");
    until(|| tasks() == 0).await?;
    for mut call in open {
        while let Some(told) = call.next().await {
            told.expect_err("nothing replied");
        }
    }
    Ok(())
}
