//! A node of a cluster: named, known by addresses, with bounds and transport settings of its own,
//! stopped in good order.
//!
//! ```sh
//! cargo run --example node
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{Context, Endpoint, Limits, Method, NodeId, ReplyDial, Service, Status};

const NAME: Method<(), u64> = Method::new("cluster.Node/Name").read_only();
const SLOW: Method<u64, u64> = Method::new("cluster.Node/Slow");

/// The transport with other settings than the defaults.
fn transport() -> Result<TcpTransport, Box<dyn Error>> {
    let tcp = TcpTransport::builder()
        .dial_timeout(Duration::from_secs(1))
        .keep_alive_interval(Duration::from_secs(1))
        .keep_alive_timeout(Duration::from_secs(4))
        .connections_max(100);
    Ok(tcp.build()?)
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.deadline_default = Duration::from_secs(3);
    limits.tasks_max = 1_000;
    limits.keep_alive_timeout = Duration::from_secs(4); // that of the transport
    limits.reply_dial = ReplyDial::Anybody; // a cluster of its own: reply to all who listen
    limits
}

async fn start_node(number: u64) -> Result<Endpoint, Box<dyn Error>> {
    let service = Service::new()
        .unary(NAME, move |(), _: Context| async move { Ok::<_, Status>(number) })
        .unary(SLOW, |ms, _: Context| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok::<_, Status>(ms)
        });
    let endpoint = Endpoint::builder() // without transports; convoke::endpoint() has them by default
        .transport(transport()?)
        .node(NodeId::new(number))
        .listen("tcp://127.0.0.1:0")
        .listen("tcp://127.0.0.1:0") // as many addresses as there are networks
        .limits(limits())
        .serve(service);
    Ok(endpoint.start().await?)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (one, two) = (start_node(1).await?, start_node(2).await?);
    println!("{} listens at {:?}", one.node(), one.addresses());

    // By name and addresses, as from a cluster file. Whoever else answers there is not taken for
    // it.
    let addresses = two.addresses();
    let peer = one.peer(two.node(), addresses)?;
    one.warm_up(&peer).await?; // now, so that the first call need not wait for it
    let name = one.call(NAME, ()).to(peer).await?;
    println!("node {name} answers");
    assert_eq!(name, 2);

    // To itself: in process, without a frame.
    let before = one.counters().frames_sent;
    assert_eq!(one.call(NAME, ()).to(one.me()).await?, 1);
    assert_eq!(one.counters().frames_sent, before);

    // An impostor: node 3, where node 1 expects node 2.
    let three = start_node(3).await?;
    let peer = one.peer(NodeId::new(9), three.addresses())?;
    let error = one.warm_up(&peer).await.expect_err("it is another node");
    println!("{error}");

    // Another number of locks than two for each worker of the runtime.
    let busy = Endpoint::builder().transport(transport()?).cores(8).start().await?;
    let peer = busy.peer(two.node(), two.addresses())?;
    assert_eq!(busy.call(NAME, ()).to(peer).await?, 2);

    // Stopping: nothing new is taken, what runs may end, at most for this long.
    let peer = one.peer(two.node(), two.addresses())?;
    let slow = one.call(SLOW, 50).to(peer).open()?;
    one.call(NAME, ()).to(peer).await?; // behind it, so that has begun
    assert!(two.shutdown(Duration::from_secs(5)).await, "it ended by itself");
    println!("the slow one was answered: {}", slow.first().await?.message());
    for node in [one, three, busy] {
        node.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}
