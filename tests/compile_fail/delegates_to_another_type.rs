//! A task that owes apples delegates to a method that answers with pears.

use convoke::{Finish, Method, Peer, Status, Task};

#[derive(Clone, PartialEq, prost::Message)]
struct Ask {}

#[derive(Clone, PartialEq, prost::Message)]
struct Apple {}

#[derive(Clone, PartialEq, prost::Message)]
struct Pear {}

const PEARS: Method<Ask, Pear> = Method::new("fruit.Fruit/Pears");

async fn apples(_: Ask, task: Task<Apple>, peer: Peer) -> Result<Finish, Status> {
    task.delegate(PEARS.request(Ask {}), &peer).await?;
    Ok(task.finish())
}

fn main() {
    let _ = apples;
}
