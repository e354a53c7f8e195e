//! All branches of a call have one type of replies.

use convoke_core::{Client, Method, Peer};

const NAME: Method<String, String> = Method::new("test.Test/Name");
const LENGTH: Method<String, u64> = Method::new("test.Test/Length");

fn ask(client: &Client, peer: Peer) {
    let name = NAME.request("heron".into());
    let length = LENGTH.request("heron".into());
    let _ = client.fan_out([(peer, name), (peer, length)]);
}

fn main() {}
