//! Quorum calls: a register on four replicas, written to a majority and read from two; what happens
//! when a replica fails, when it is late, and when the replicas change.
//!
//! ```sh
//! cargo run --example quorum
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::quorum::{
    All, Configuration, Majority, QuorumExt, QuorumFunction, Replies, Threshold, Verdict, matching,
    newest_of,
};
use convoke::{CallBuilder, Code, Context, Endpoint, Method, NodeId, Service, Status};
use tokio::sync::{mpsc, watch};

/// A value and its version.
#[derive(Clone, PartialEq, prost::Message)]
struct Versioned {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(string, tag = "2")]
    value: String,
}

const WRITE: Method<Versioned, Versioned> = Method::new("register.Register/Write").idempotent();
const READ: Method<String, Versioned> = Method::new("register.Register/Read").read_only();

/// Keeps the newest value. Replica 4 cannot read its disk.
async fn start_replica(id: u64) -> Result<Endpoint, Box<dyn Error>> {
    let kept = watch::Sender::new(Versioned::default());
    let reader = kept.subscribe();
    let register = Service::new()
        .unary(WRITE, move |new: Versioned, _: Context| {
            kept.send_if_modified(|old| {
                let is_newer = new.version > old.version;
                if is_newer {
                    old.clone_from(&new);
                }
                is_newer
            });
            async move { Ok(new) }
        })
        .unary(READ, move |_, _: Context| {
            let value = reader.borrow().clone();
            let broken = || Err(Status::new(Code::DataLoss, "checksum"));
            async move { if id == 4 { broken() } else { Ok(value) } }
        });
    let node = NodeId::new(id);
    Ok(convoke::endpoint().node(node).listen("tcp://127.0.0.1:0").serve(register).start().await?)
}

fn write(client: &Endpoint, replicas: &Configuration, version: u64) -> CallBuilder<Versioned> {
    let value = Versioned { version, value: format!("the {version}. value") };
    client.call(WRITE, value).to_all(replicas)
}

fn read(client: &Endpoint, replicas: &Configuration) -> CallBuilder<Versioned> {
    client.call(READ, "the register".into()).to_all(replicas)
}

/// Agreement of all that can reply: true when they have the same version, with how many they are.
fn agreement(replies: &Replies<Versioned>) -> Verdict<(bool, usize)> {
    if replies.remaining() > 0 {
        return Verdict::Continue;
    }
    let mut versions: Vec<u64> = replies.iter().map(|(_, reply)| reply.version).collect();
    versions.dedup();
    Verdict::Done((versions.len() == 1, replies.len()))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = Vec::new();
    for id in 1..=4 {
        servers.push(start_replica(id).await?);
    }
    let replicas = Configuration::new(&servers)?; // or [(1, "tcp://a:7000"), (2, "tcp://b:7000"), ..]
    let client = convoke::endpoint().peers(&replicas).start().await?;

    // Resolves with the third reply of four. The fourth replica gets the value all the same, and
    // says so.
    let (late, mut late_replies) = mpsc::unbounded_channel();
    let call = write(&client, &replicas, 1).late(move |member, reply| {
        let _ = late.send((member, reply.is_ok()));
    });
    let decided = call.acked_by(Majority).detailed().await?;
    let (last, is_ok) = late_replies.recv().await.ok_or("the fourth replies, too")?;
    println!("written by {:?}, later by {last}", decided.answered);
    assert!(is_ok && decided.answered.len() == 3 && !decided.answered.contains(last));

    // Three have written, so any two of four include one that has.
    let newest = newest_of(Threshold(2), |reply: &Versioned| reply.version);
    let value = read(&client, &replicas).quorum(newest).await?;
    println!("read {:?}", value.value);
    assert_eq!(value.version, 1);

    // A rule of one's own is a closure.
    assert_eq!(read(&client, &replicas).quorum_by(agreement).await?, (true, 3));

    // A rule may look at parts of the replies, or let only some of them count.
    let agreed = matching(2).map(|reply: &Versioned| reply.version);
    assert_eq!(read(&client, &replicas).quorum(agreed).await?, 1);
    let written = Majority.filter(|_, reply: &Versioned| reply.version >= 1);
    assert_eq!(read(&client, &replicas).quorum(written).await?.len(), 3);

    // All cannot be had. That is certain with the refusal of replica 4, long before the deadline.
    let error = read(&client, &replicas).quorum(All).await.expect_err("4 refuses");
    println!("{error}, and {:?} were there", error.replies::<Versioned>());
    let others = replicas.without(error.failed(|_| true));
    assert_eq!(read(&client, &others).quorum(All).await?.len(), 3);

    // The first reply at once, better ones as they come.
    let correctable = read(&client, &replicas).correctable(|replies| {
        let newest = replies.iter().map(|(_, reply)| reply.version).max();
        match newest {
            None => Verdict::Continue,
            Some(version) if replies.reach(&Majority) => Verdict::Done(version),
            Some(version) => Verdict::Preliminary(version),
        }
    });
    let first = correctable.watch(1).await?;
    println!("version {first} at first, {} for certain", correctable.done().await?);
    assert_eq!(correctable.level(), 3);

    // The replicas have changed: whoever asks by the old list is told.
    servers.iter().for_each(|server| server.set_epoch(2));
    let old = replicas.with_epoch(1);
    let error = write(&client, &old, 2).quorum(Majority).await.expect_err("it is stale");
    println!("{error}");
    assert_eq!(error.current_epoch(), Some(2));

    for endpoint in servers.into_iter().chain([client]) {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}
