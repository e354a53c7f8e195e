//! A request tree over three nodes: a front that never sees an answer, and two shards that send
//! what they have straight to whoever asked.
//!
//! ```sh
//! cargo run --example tree
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{CallError, Endpoint, Finish, Method, NodeId, Peer, Service, Status, Task, Way};

const FIND: Method<String, String> = Method::new("search.Search/Find").read_only();
const FIRST: Method<String, String> = Method::new("search.Search/First").read_only();
const LOOK: Method<String, String> = Method::new("search.Search/Look").read_only();

struct Front {
    shards: Vec<Peer>,
}

impl Front {
    /// A branch to each shard. What they find does not come back through here.
    async fn find(&self, word: String, task: Task<String>) -> Result<Finish, Status> {
        task.fan_out(self.shards.iter().map(|shard| (shard, LOOK.request(word.clone())))).await
    }

    /// One shard is enough, so the rest of the work is handed to it.
    async fn first(&self, word: String, task: Task<String>) -> Result<Finish, Status> {
        Ok(task.tail(self.shards[0], LOOK.request(word)).await?)
    }
}

struct Shard {
    lines: &'static [&'static str],
}

impl Shard {
    /// Everything it has, to the initiator.
    async fn look(&self, word: String, task: Task<String>) -> Result<Finish, Status> {
        for line in self.lines.iter().filter(|line| line.contains(&word)) {
            task.reply(&line.to_string())?;
        }
        Ok(task.finish())
    }
}

/// At the client: answers as they come, from whoever has them.
async fn search(client: &Endpoint, front: NodeId, word: &str) -> Result<usize, CallError> {
    let mut call = client.call(FIND, word.into()).to(front).open()?;
    let mut count = 0;
    while let Some(reply) = call.next().await {
        let reply = reply?;
        println!("{} has {:?}", reply.from(), reply.message());
        count += 1;
    }
    Ok(count)
}

async fn start_shard(node: u64, lines: &'static [&str]) -> Result<Endpoint, Box<dyn Error>> {
    let shard = Service::with(Shard { lines }).tree(LOOK, Shard::look);
    let endpoint = convoke::endpoint().node(NodeId::new(node)).listen("tcp://127.0.0.1:0");
    Ok(endpoint.serve(shard).start().await?)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let birds = start_shard(1, &["a wren in a hedge", "a heron by the pond"]).await?;
    let fish = start_shard(2, &["a pike in the pond", "a trout"]).await?;

    let at = |node: &Endpoint| (node.node(), node.addresses().to_vec());
    let shards = vec![birds.node().into(), fish.node().into()];
    let service = Service::with(Front { shards }).tree(FIND, Front::find).tree(FIRST, Front::first);
    let front = convoke::endpoint().peers([&birds, &fish].map(at)).listen("tcp://127.0.0.1:0");
    let front = front.serve(service).start().await?;

    // Connected to all of them, so that replies come straight from where they are made.
    let peers = [&front, &birds, &fish].map(at);
    let client = convoke::endpoint().peers(peers).keep_connected().start().await?;
    assert_eq!(search(&client, front.node(), "pond").await?, 2);

    let (found, end) = client.call(FIRST, "wren".into()).to(front.node()).open()?.collect().await?;
    println!("{found:?}");
    assert!(end.is_complete() && found[0].way() == Way::Direct, "{end:?}");

    // 3 requests and 2 replies, then 2 requests and 1 reply: no manifest needed a frame of its own.
    let nodes = [client, front, birds, fish];
    // Counted where they came: the last sender may not have counted yet what the client has read.
    let frames: u64 = nodes.iter().map(|node| node.counters().frames_received).sum();
    println!("{frames} frames in all");
    // More only where the machine was busy: after 50 ms without news the client asks for a task.
    assert!(frames >= 8);
    for node in nodes {
        node.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}
