//! A method takes its own message and no other.

use convoke_core::{Client, Method, Peer};

const GREET: Method<String, String> = Method::new("test.Test/Greet");

fn greet(client: &Client, peer: Peer) {
    let _ = client.call(GREET, "Ada").to(peer);
}

fn main() {}
