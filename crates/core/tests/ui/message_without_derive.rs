//! A message derives `prost::Message` or implements `Payload`.

use convoke_core::{Client, Method, Peer};

// Without a default a second error lists messages that depend on features.
#[derive(Default)]
struct Ask;

const ASK: Method<Ask, String> = Method::new("test.Test/Ask");

fn ask(client: &Client, peer: Peer) {
    let _ = client.call(ASK, Ask::default()).to(peer);
}

fn main() {}
