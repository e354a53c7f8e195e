//! An early decision: a call over five replicas is over with the third good answer, and as soon as
//! three can no longer come.
//!
//! ```sh
//! cargo run --example first_of
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{
    Code, Context, DecidingCall, Decision, End, Endpoint, Invocation, Method, Peer, Service,
    Status, Tally,
};

const READ: Method<String, u64> = Method::new("storage.Replica/Read").read_only();

/// What is asked for, and how a replica takes it.
async fn read(key: String, number: u64) -> Result<u64, Status> {
    match key.as_str() {
        "slow at some" if number >= 3 => std::future::pending().await,
        "broken at some" if number >= 2 => Err(Status::new(Code::DataLoss, "checksum")),
        _ => Ok(number),
    }
}

async fn start_replica(number: u64) -> Result<Endpoint, Box<dyn Error>> {
    let replica = Service::new().unary(READ, move |key, _: Context| read(key, number));
    Ok(convoke::endpoint().listen("tcp://127.0.0.1:0").serve(replica).start().await?)
}

/// Done with `count` replies; impossible once they can no longer come.
fn first_of(count: usize) -> impl FnMut(&Tally<'_>) -> Decision + Send + 'static {
    move |tally| {
        let possible = tally.max_remaining.map(|more| tally.replies.len() as u64 + more);
        if tally.replies.len() >= count {
            Decision::Done
        } else if possible.is_some_and(|most| most < count as u64) {
            Decision::Impossible
        } else {
            Decision::Continue
        }
    }
}

fn read_from(client: &Endpoint, key: &str, replicas: &[Peer]) -> DecidingCall<u64> {
    Invocation::new(client, READ.request(key.into()))
        .to_all(replicas)
        .decide(first_of(3))
        .flat() // one reply each at most, so that what can still come is known exactly
        .cancel_late() // the others need not go on: they only read
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let client = convoke::endpoint().start().await?;
    let (mut replicas, mut peers) = (Vec::new(), Vec::new());
    for number in 0..5 {
        let replica = start_replica(number).await?;
        peers.push(client.connect(replica.addresses()[0].as_str()).await?);
        replicas.push(replica);
    }

    // Two never answer. The call does not wait for them.
    let (replies, outcome) = read_from(&client, "slow at some", &peers).open()?.collect().await?;
    println!("{} replies, {:?}", replies.len(), outcome.end);
    assert_eq!((replies.len(), outcome.end), (3, End::Decided));

    // Three answer with an error. The third one settles it, long before the deadline.
    let (replies, outcome) = read_from(&client, "broken at some", &peers).open()?.collect().await?;
    println!("{:?} after {}", outcome.end, outcome.failures[0]);
    assert!(replies.len() <= 2 && outcome.end == End::Impossible);

    // Late tasks were cancelled, so nothing is left that a shutdown would have to wait for.
    client.shutdown(Duration::from_secs(5)).await;
    for replica in replicas {
        assert!(replica.shutdown(Duration::from_secs(5)).await, "its handlers have ended");
    }
    Ok(())
}
