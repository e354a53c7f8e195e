//! A call is addressed before it is opened.

use convoke_core::{Call, CallError, Client, Method};

const GREET: Method<String, String> = Method::new("test.Test/Greet");

fn greet(client: &Client) -> Result<Call<String>, CallError> {
    client.call(GREET, "Ada".into()).open()
}

fn main() {}
