//! One call has one type of replies.

use convoke::{CallBuilder, Endpoint, Method, Peer};

#[derive(Clone, PartialEq, prost::Message)]
struct Ask {}

#[derive(Clone, PartialEq, prost::Message)]
struct Apple {}

#[derive(Clone, PartialEq, prost::Message)]
struct Pear {}

const APPLES: Method<Ask, Apple> = Method::new("fruit.Fruit/Apples");
const PEARS: Method<Ask, Pear> = Method::new("fruit.Fruit/Pears");

fn call(endpoint: &Endpoint, peer: &Peer) {
    let _ = CallBuilder::new(endpoint)
        .branch(APPLES.request(Ask {}), peer)
        .branch(PEARS.request(Ask {}), peer);
}

fn main() {
    let _ = call;
}
