//! A task delegates to methods that answer with what it answers with.

use convoke_core::{Finish, Method, Peer, Status, Task};

const LENGTH: Method<String, u64> = Method::new("test.Test/Length");

async fn find(shards: &[Peer], task: Task<String>) -> Result<Finish, Status> {
    task.fan_out(shards.iter().map(|shard| (shard, LENGTH.request("heron".into())))).await
}

fn main() {}
