//! The handler of a tree forgets to finish its task.

use convoke::{Method, Service, Status, Task};

#[derive(Clone, PartialEq, prost::Message)]
struct Ask {}

#[derive(Clone, PartialEq, prost::Message)]
struct Apple {}

const APPLES: Method<Ask, Apple> = Method::new("fruit.Fruit/Apples");

async fn apples(_: Ask, task: Task<Apple>) -> Result<(), Status> {
    task.reply(&Apple {})?;
    Ok(())
}

fn main() {
    let _ = Service::new().tree(APPLES, apples);
}
