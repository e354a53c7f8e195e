//! A caller that gives up many calls at once loses none of the others.

#![cfg(feature = "tcp")]

use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{Call, Context, Endpoint, Method, Service, Status};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const NEVER: Method<(), ()> = Method::new("test.Test/Never");

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
    let service = Service::new()
        .unary(NEVER, |(), _: Context| std::future::pending::<std::result::Result<(), Status>>());
    let small_window = TcpTransport::builder().control_window_bytes(4 << 10).build()?;
    let small_reserve = TcpTransport::builder().control_reserve_bytes(4 << 10).build()?;
    let server = Endpoint::builder().transport(small_window).listen("tcp://127.0.0.1:0");
    let server = server.serve(service).start().await?;
    let client = Endpoint::builder().transport(small_reserve).start().await?;
    let peer = client.connect(server.addresses()).await?;

    let open = || client.invoke(NEVER.request(()).deadline(DEADLINE)).to(peer).open();
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
