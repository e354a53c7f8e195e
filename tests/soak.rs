//! Mixed work over real sockets, round after round: that nothing of it is left in any endpoint's
//! tables.
//!
//! Three nodes ask each other at once; calls are awaited, dropped, left to their deadline, spread
//! over trees and read half-way, and one node goes away and comes back in the middle. A round is
//! bounded by counts. After it every table must fall to zero by itself, and nobody may know more
//! nodes or hold more connections than after the first.

#![cfg(feature = "tcp")]

use std::future::{IntoFuture, pending};
use std::time::Duration;

use convoke::transport::TcpTransport;
use convoke::{
    CallError, Cause, Context, Endpoint, Finish, Limits, Load, Method, NodeId, Peer, Service,
    Status, Task,
};
use tokio::task::JoinSet;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NODES: [u64; 3] = [1, 2, 3];
const ROUNDS: usize = 3;
/// Of each kind of work, by each node, in each round, one after another.
const REPEATS: u64 = 40;
const STREAM_ITEMS: u64 = 200;

/// Long enough for all but what is meant to be late, short enough to see it forgotten.
const DEADLINE: Duration = Duration::from_millis(1_500);
const KEEP_ALIVE: Duration = Duration::from_millis(1_500);

const ECHO: Method<u64, u64> = Method::new("soak.Soak/Echo");
const NEVER: Method<u64, u64> = Method::new("soak.Soak/Never");
/// Answers, and leads to `ECHO` at every node.
const SPREAD: Method<u64, u64> = Method::new("soak.Soak/Spread");
/// Leads to `NEVER` at every node.
const STRAND: Method<u64, u64> = Method::new("soak.Soak/Strand");
/// Streams numbers up to the one asked for.
const COUNT: Method<u64, u64> = Method::new("soak.Soak/Count");

fn node(number: u64) -> NodeId {
    NodeId::new(number)
}

fn everybody() -> [Peer; 3] {
    NODES.map(|number| Peer::from(node(number)))
}

async fn count(to: u64, task: Task<u64>) -> std::result::Result<Finish, Status> {
    let mut stream = task.stream()?;
    for item in 0..to {
        stream.send(&item).await?;
    }
    drop(stream);
    Ok(task.finish())
}

fn service() -> Service {
    Service::new()
        .unary(ECHO, |number: u64, _: Context| async move { Ok::<_, Status>(number) })
        .unary(NEVER, |_: u64, _: Context| pending::<std::result::Result<u64, Status>>())
        .tree(SPREAD, move |number, task: Task<u64>| async move {
            task.reply(&number)?;
            task.fan_out(everybody().map(|peer| (peer, ECHO.request(number)))).await
        })
        .tree(STRAND, move |number, task: Task<u64>| async move {
            task.fan_out(everybody().map(|peer| (peer, NEVER.request(number)))).await
        })
        .tree(COUNT, count)
}

async fn start(number: u64, address: &str) -> Result<Endpoint> {
    let mut limits = Limits::default();
    (limits.deadline_default, limits.keep_alive_timeout) = (DEADLINE, KEEP_ALIVE);
    // A stream that nobody reads must wait for credit.
    limits.unscheduled_bytes = 256;
    limits.stream_window_bytes = 256;
    // Who was gone is dialled again soon.
    (limits.backoff_min, limits.backoff_max) = (Duration::from_millis(1), Duration::from_millis(4));
    let builder = Endpoint::builder().transport(TcpTransport::new()).limits(limits);
    Ok(builder.node(node(number)).listen(address).serve(service()).start().await?)
}

/// Three nodes that know each other.
async fn cluster() -> Result<Vec<Endpoint>> {
    let mut nodes = Vec::new();
    for number in NODES {
        nodes.push(start(number, "tcp://127.0.0.1:0").await?);
    }
    for endpoint in &nodes {
        introduce(endpoint, &nodes)?;
    }
    Ok(nodes)
}

fn introduce(endpoint: &Endpoint, nodes: &[Endpoint]) -> Result {
    for other in nodes.iter().filter(|other| other.node() != endpoint.node()) {
        endpoint.peer(other.node(), other.addresses())?;
    }
    Ok(())
}

/// Work that ended well. The rest was meant not to, or met a node that was away.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    answered: u64,
    late: u64,
    items: u64,
    lost: u64,
}

impl Tally {
    fn note<T>(&mut self, result: std::result::Result<T, CallError>) {
        match result {
            Ok(_) => self.answered += 1,
            Err(CallError::Branch(failure)) if failure.cause == Cause::Deadline => self.late += 1,
            Err(CallError::Branch(failure)) if is_of_restart(failure.cause) => self.lost += 1,
            Err(error) => panic!("{error}"),
        }
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.late += other.late;
        self.items += other.items;
        self.lost += other.lost;
    }
}

/// True for causes that a call may end with when a node it needs goes away.
fn is_of_restart(cause: Cause) -> bool {
    use Cause::{
        Cancelled, Dropped, Lost, NodeDown, Orphaned, ReplyLost, ShuttingDown, Unreachable,
    };
    matches!(
        cause,
        Cancelled | Dropped | Lost | NodeDown | Orphaned | ReplyLost | ShuttingDown | Unreachable
    )
}

/// All kinds of work from one node, to each of the nodes in turn.
async fn work(endpoint: Endpoint) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut left_to_deadline = Vec::new();
    for number in 0..REPEATS {
        let peer = everybody()[usize::try_from(number % 3)?];
        let ask = |method: Method<u64, u64>| endpoint.call(method, number);
        tally.note(ask(ECHO).to(peer).await);
        let mut tree = ask(SPREAD).to(peer).open()?;
        while let Some(reply) = tree.next().await {
            tally.note(reply);
        }
        tally.items += read_some(&endpoint, &peer).await;
        give_up(ask(NEVER).to(peer).into_future()).await;
        give_up(ask(STRAND).to_all(everybody()).into_future()).await;
        drop(ask(STRAND).to(peer).open()?);
        drop(ask(ECHO).to(peer).open()?);
        if number % 8 == 0 {
            left_to_deadline.push(ask(STRAND).deadline(DEADLINE / 10).to(peer).open()?);
        }
    }
    for mut call in left_to_deadline {
        while let Some(reply) = call.next().await {
            tally.note(reply);
        }
    }
    Ok(tally)
}

/// Reads half of a stream's first half window, or what there is of it, and drops the rest; how many
/// items.
async fn read_some(endpoint: &Endpoint, peer: &Peer) -> u64 {
    let call = endpoint.call(COUNT, STREAM_ITEMS).to(peer).open();
    let Ok(mut call) = call else { return 0 };
    let mut items = 0;
    while items < STREAM_ITEMS / 2 && matches!(call.next().await, Some(Ok(_))) {
        items += 1;
    }
    items
}

/// Polls a call until it is under way, and drops it.
async fn give_up(call: impl Future<Output = std::result::Result<u64, CallError>>) {
    tokio::select! {
        biased;
        answer = call => panic!("nobody answers it: {answer:?}"),
        () = tokio::task::yield_now() => {}
    }
}

/// Work of all nodes at once.
async fn work_of_all(nodes: &[Endpoint]) -> Result<Tally> {
    let mut all = JoinSet::new();
    nodes.iter().for_each(|endpoint| drop(all.spawn(work(endpoint.clone()))));
    let mut tally = Tally::default();
    while let Some(done) = all.join_next().await {
        tally.add(done??);
    }
    Ok(tally)
}

/// The last node goes away while the others ask it, and comes back under its name and address.
async fn restart_in_between(nodes: &mut Vec<Endpoint>) -> Result<Tally> {
    let gone = nodes.pop().expect("there are three");
    let address = gone.addresses()[0].to_string();
    let others = nodes.clone();
    let working = tokio::spawn(async move { work_of_all(&others).await });
    gone.shutdown(Duration::ZERO).await;
    let back = start(NODES[2], &address).await?;
    introduce(&back, nodes)?;
    nodes.push(back);
    working.await?
}

/// Waits until an endpoint holds nothing but connections. With a leak it never does.
async fn settle(endpoint: &Endpoint) -> Load {
    let settled = async {
        // Nothing tells when the last thing is forgotten, for nobody else needs to know.
        let mut again = tokio::time::interval(Duration::from_millis(20));
        loop {
            again.tick().await;
            let Load { connections, nodes, .. } = endpoint.load();
            let mut empty = Load::default();
            (empty.connections, empty.nodes) = (connections, nodes);
            if endpoint.load() == empty {
                return empty;
            }
        }
    };
    let settled = tokio::time::timeout(20 * (DEADLINE + KEEP_ALIVE), settled).await;
    settled.unwrap_or_else(|_| panic!("{} still holds {:?}", endpoint.node(), endpoint.load()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_of_mixed_work_leave_nothing_behind() -> Result {
    let mut nodes = cluster().await?;
    let mut first: Option<Vec<Load>> = None;
    for round in 0..ROUNDS {
        let mut tally = work_of_all(&nodes).await?;
        // Nobody is away, so that most must succeed; on a machine in trouble some may be late.
        assert!(tally.answered > 0 && tally.items > 0 && tally.late > 0, "{round}: {tally:?}");
        tally.add(restart_in_between(&mut nodes).await?);
        let mut loads = Vec::new();
        for endpoint in &nodes {
            loads.push(settle(endpoint).await);
        }
        for (load, first) in loads.iter().zip(first.get_or_insert_with(|| loads.clone())) {
            let is_bounded = load.connections <= first.connections.max(NODES.len() - 1);
            assert!(is_bounded && load.nodes <= first.nodes.max(NODES.len() - 1), "{loads:?}");
        }
        println!("round {round}: {tally:?}, then {loads:?}");
    }
    for endpoint in nodes {
        assert!(endpoint.shutdown(DEADLINE).await, "nothing is open");
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_leaves_no_waker() -> Result {
    let nodes = cluster().await?;
    let (client, peer) = (&nodes[0], &Peer::from(nodes[1].node()));
    client.warm_up(peer).await?;
    give_up(client.call(NEVER, 1).to(peer).into_future()).await;
    let load = client.load();
    assert_eq!((load.calls, load.waiting, load.unsettled), (0, 0, 1), "{load:?}");
    Ok(())
}
