//! An early decision: a call to five replicas is over with the third good answer, and as soon as
//! three can no longer come.
//!
//! ```sh
//! cargo run --example first_of
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::quorum::{Deciding, QuorumError, QuorumExt, Threshold};
use convoke::{Code, Context, Endpoint, Method, Peer, Service, Status};

const READ: Method<String, u64> = Method::new("storage.Replica/Read").read_only();

/// Serves a read of `key` as replica `number`, slowly or badly where the key says so.
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

/// The first three answers, each with the replica that gave it.
fn read_from(client: &Endpoint, key: &str, replicas: &[Peer]) -> Deciding<u64, Threshold> {
    client
        .call(READ, key.into())
        .to_all(replicas)
        .cancel_late() // the others need not go on: they only read
        .quorum(Threshold(3))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let client = convoke::endpoint().start().await?;
    let (mut replicas, mut peers) = (Vec::new(), Vec::new());
    for number in 0..5 {
        let replica = start_replica(number).await?;
        peers.push(client.connect(replica.addresses()).await?);
        replicas.push(replica);
    }

    // Two never answer. The call does not wait for them.
    let answers = read_from(&client, "slow at some", &peers).await?;
    println!("{answers:?}, three answers of five");
    assert!(answers.len() == 3 && answers.iter().all(|(_, number)| *number < 3));

    // Three answer with an error. The third one settles it, long before the deadline.
    let error = read_from(&client, "broken at some", &peers).await.expect_err("two are too few");
    println!("{error}");
    assert!(matches!(error, QuorumError::Impossible(_)));

    // Late tasks were cancelled, so nothing is left that a shutdown would have to wait for.
    client.shutdown(Duration::from_secs(5)).await;
    for replica in replicas {
        assert!(replica.shutdown(Duration::from_secs(5)).await, "its handlers have ended");
    }
    Ok(())
}
