//! A call is addressed before it is awaited.

use convoke_core::{CallError, Client, Method};

const GREET: Method<String, String> = Method::new("test.Test/Greet");

async fn greet(client: &Client) -> Result<String, CallError> {
    client.call(GREET, "Ada".into()).await
}

fn main() {}
