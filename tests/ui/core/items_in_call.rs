//! A method that takes `Items` is called with `call_stream`.

use convoke_core::{Client, Items, Method, Peer};

const LOAD: Method<Items<String>, u64> = Method::new("test.Test/Load");

fn load(client: &Client, peer: Peer) {
    let _ = client.call(LOAD, "first".to_owned()).to(peer);
}

fn main() {}
