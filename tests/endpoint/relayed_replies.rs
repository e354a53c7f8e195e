//! Replies that reach the caller through another node, and what is known of their tasks then.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use convoke::{
    Cause, Context, Endpoint, EndpointBuilder, Finish, Limits, Method, NodeId, Peer, ReplyDial,
    Service, Status, Task,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Replies so often, then waits for ever.
const LEAF: Method<u64, Vec<u8>> = Method::new("test.Relayed/Leaf");
/// Hands its branch on to the leaf.
const TAIL: Method<u64, Vec<u8>> = Method::new("test.Relayed/Tail");
/// Opens a branch at the leaf.
const BRANCH: Method<u64, Vec<u8>> = Method::new("test.Relayed/Branch");
/// Tells the middle who the leaf is.
const HELLO: Method<u64, u64> = Method::new("test.Relayed/Hello");

fn builder(node: u64) -> EndpointBuilder {
    let mut limits = Limits::default();
    limits.reply_dial = ReplyDial::Never;
    convoke::endpoint().node(NodeId::new(node)).limits(limits)
}

async fn leaf(count: u64, task: Task<Vec<u8>>) -> std::result::Result<Finish, Status> {
    for number in 0..count {
        task.reply(&number.to_be_bytes().to_vec())?;
    }
    std::future::pending().await
}

/// The node between, which learns who the leaf is.
async fn middle() -> Result<Endpoint> {
    let leaf: Arc<OnceLock<Peer>> = Arc::default();
    let (of_tail, of_branch) = (leaf.clone(), leaf.clone());
    let service = Service::new()
        .unary(HELLO, move |number: u64, context: Context| {
            leaf.get_or_init(|| context.parent().into());
            std::future::ready(Ok::<_, Status>(number))
        })
        .tree(TAIL, move |count: u64, task: Task<Vec<u8>>| {
            let leaf = *of_tail.get().expect("it said hello");
            async move { Ok::<_, Status>(task.tail(leaf, LEAF.request(count)).await?) }
        })
        .tree(BRANCH, move |count: u64, task: Task<Vec<u8>>| {
            let leaf = *of_branch.get().expect("it said hello");
            async move {
                let opened = task.delegate(leaf, LEAF.request(count)).await;
                opened.map_err(|refused| Status::from(refused.reason))?;
                Ok::<_, Status>(task.finish())
            }
        });
    Ok(builder(2).listen("tcp://127.0.0.1:0").serve(service).start().await?)
}

/// Carries the bytes of one connection until it is cut.
async fn cable(to: &Endpoint) -> Result<(SocketAddr, JoinHandle<()>)> {
    let to: SocketAddr = to.addresses()[0].to_string().trim_start_matches("tcp://").parse()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let carrying = tokio::spawn(async move {
        let Ok((mut one, _)) = listener.accept().await else { return };
        let Ok(mut other) = TcpStream::connect(to).await else { return };
        let _ = tokio::io::copy_bidirectional(&mut one, &mut other).await;
    });
    Ok((address, carrying))
}

/// Whatever a leaf has said through the node between, it is missed once that has lost it: by no
/// other way can it be reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaf_that_its_relay_has_lost_is_down() -> Result {
    for (method, replies) in [(TAIL, 0), (TAIL, 1), (BRANCH, 0), (BRANCH, 1)] {
        let middle = middle().await?;
        let (address, cable) = cable(&middle).await?;
        let leaf = builder(1).serve(Service::new().tree(LEAF, leaf)).start().await?;
        let between = leaf.connect(format!("tcp://{address}").as_str()).await?;
        leaf.call(HELLO, 1).to(between).await?;
        let client = builder(3).start().await?;
        let to = client.connect(middle.addresses()).await?;
        let call = client.call(method, replies).deadline(Duration::from_secs(300)).to(to);
        let mut call = call.open()?;
        for _ in 0..replies {
            call.next().await.ok_or("a reply")??;
        }
        while leaf.load().tasks == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cable.abort();
        let lost = tokio::time::timeout(Duration::from_secs(60), call.next()).await?;
        let lost = lost.ok_or("a failure")?.expect_err("its leaf is gone");
        let cause = lost.failure().map(|failure| failure.cause);
        assert_eq!(cause, Some(Cause::NodeDown), "{} after {replies}: {lost}", method.name());
    }
    Ok(())
}

/// A client that stands still is sent more than its connection queues, by a node that only passes
/// it on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_replies_at_once_reach_who_reads_them_through_another_node() -> Result {
    const CALLS: usize = 3_000;
    let middle = middle().await?;
    let (given, mut tokens) = mpsc::unbounded_channel();
    let service = Service::new().tree(LEAF, move |_: u64, task: Task<Vec<u8>>| {
        let (later, finish) = task.defer();
        let _ = given.send(later);
        std::future::ready(Ok::<_, Status>(finish))
    });
    let leaf = builder(1).serve(service).start().await?;
    leaf.call(HELLO, 1).to(leaf.connect(middle.addresses()).await?).await?;
    let addresses = middle.addresses().to_vec();
    let (have_come, all_have_come) = oneshot::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel();
    // A runtime of its own, which does nothing until it goes on.
    let client = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (_client, calls) = runtime.block_on(async {
            let client = builder(3).start().await.expect("it starts");
            let to = client.connect(&addresses[..]).await.expect("it listens");
            let call = || client.call(TAIL, 0).deadline(Duration::from_secs(300)).to(to);
            let calls: Vec<_> = (0..CALLS).map(|_| call().open().expect("there is room")).collect();
            let _ = all_have_come.await;
            (client, calls)
        });
        let _ = goes_on.recv();
        runtime.block_on(async {
            for call in calls {
                let (replies, outcome) = call.collect().await.expect("it ends");
                assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
                assert_eq!(replies.len(), 1);
            }
        });
    });
    let mut later = Vec::new();
    while later.len() < CALLS {
        later.push(tokens.recv().await.ok_or("its handler has run")?);
    }
    have_come.send(()).expect("it waits");
    for later in later {
        later.answer(&vec![7; 16_000])?;
    }
    while middle.counters().bytes_received < (CALLS * 16_000) as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    go_on.send(())?;
    Ok(client.await?)
}
