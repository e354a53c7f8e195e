//! A message derives `prost::Message` or implements `Payload`.

use convoke_core::{Client, Method, Peer};

struct Ask;

const ASK: Method<Ask, String> = Method::new("test.Test/Ask");

fn ask(client: &Client, peer: Peer) {
    let _ = client.call(ASK, Ask).to(peer);
}

fn main() {}
