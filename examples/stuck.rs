//! A call that takes too long: who has not answered, by the call itself, and where it is stuck, by
//! the load of the nodes.
//!
//! ```sh
//! cargo run --example stuck
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::telemetry::Traced;
use convoke::{Call, Cause, Context, Endpoint, Finish, Method, NodeId, Service, Status, Task};

const FIND: Method<String, String> = Method::new("search.Search/Find").read_only();
const LOOK: Method<String, String> = Method::new("search.Search/Look").read_only();

const SHARDS: [NodeId; 2] = [NodeId::new(2), NodeId::new(3)];

async fn find(word: String, task: Task<String>) -> Result<Finish, Status> {
    task.fan_out(SHARDS.map(|shard| (shard, LOOK.request(word.clone())))).await
}

/// Node 3 waits for something that never comes.
async fn look(word: String, context: Context) -> Result<String, Status> {
    if context.endpoint().node() == SHARDS[1] {
        std::future::pending::<()>().await;
    }
    Ok(format!("a {word}"))
}

async fn start(
    node: NodeId,
    service: Service,
    peers: &[&Endpoint],
) -> Result<Endpoint, Box<dyn Error>> {
    let peers = peers.iter().map(|peer| (peer.node(), peer.addresses()));
    let builder = convoke::endpoint().node(node).peers(peers).listen("tcp://127.0.0.1:0");
    Ok(builder.serve(service).start().await?)
}

/// Prints the tree of a call that was opened with `trace()`, a line for each thing it has learnt.
fn print_trace(call: &Call<String>) {
    let events = call.trace();
    let Some(start) = events.first().map(|event| event.at) else { return };
    for event in &events {
        let ms = event.at.since(start).as_millis();
        match &event.what {
            Traced::Opened { node } => println!("{ms:>5} ms  {} asked {node}", event.task.path),
            Traced::Reply { from, .. } => println!("{ms:>5} ms  {} from {from}", event.task.path),
            Traced::Ended { .. } => println!("{ms:>5} ms  {} ended", event.task.path),
            Traced::Failed { cause } => println!("{ms:>5} ms  {} {cause}", event.task.path),
        }
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let quick = start(SHARDS[0], Service::new().unary(LOOK, look), &[]).await?;
    let stuck = start(SHARDS[1], Service::new().unary(LOOK, look), &[]).await?;
    let search = Service::new().tree(FIND, find);
    let front = start(NodeId::new(1), search, &[&quick, &stuck]).await?;
    let client = convoke::endpoint().start().await?;
    let to = client.connect(front.addresses()).await?;

    let call = client.call(FIND, "heron".into()).deadline(Duration::from_secs(1)).to(to);
    let mut call = call.trace().open()?;
    let found = call.next().await.ok_or("node 2 answers")??;
    println!("{} says {:?}", found.from(), found.message());

    // While it is stuck: a node whose tasks stay, and who asked it.
    while stuck.load().tasks == 0 {
        tokio::task::yield_now().await;
    }
    for node in [&front, &quick, &stuck] {
        let load = node.load();
        println!("{}: {} tasks, {} connections", node.node(), load.tasks, load.connections);
    }

    // The deadline ends the call, and names what is missing.
    let missing = call.next().await.ok_or("node 3 does not answer")?;
    println!("missing: {}", missing.as_ref().expect_err("it never answers"));
    print_trace(&call);
    let is_late = |what: &Traced| matches!(what, Traced::Failed { cause: Cause::Deadline });
    assert!(call.trace().iter().any(|event| is_late(&event.what)));
    let outcome = call.outcome().await;
    assert_eq!(outcome.failures.len(), 1, "{outcome:?}");
    assert_eq!(outcome.failures[0].node, Some(stuck.node()));

    for node in [client, front, quick, stuck] {
        node.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}
