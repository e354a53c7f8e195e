//! A client method takes its own message only.

mod social {
    include!("../../testdata/social.rs");
}

use convoke::Endpoint;
use social::{FriendsNamedRequest, GraphClient};

fn call(endpoint: &Endpoint) {
    let _ = GraphClient::new(endpoint).profile(FriendsNamedRequest::default());
}

fn main() {
    let _ = call;
}
