//! Echo phases: four members that tell each other what a client wrote before they answer; rounds
//! about slots of a log of their own, with a rule between phases; and what is said when too many
//! members are down.
//!
//! ```sh
//! cargo run --example echo
//! ```

use std::error::Error;

use convoke::quorum::Configuration;
use convoke::quorum::echo::{
    EchoPlan, EchoRound, EchoSpace, Phase, Rule, byzantine_quorum, digest_of, echo_phases,
};
use convoke::{CallError, Context, Endpoint, Failure, Method, NodeId, Service, Status};

const WRITE: Method<String, String> = Method::new("storage.Storage/Write");

/// Answers once a majority of the members has the value, and knows that a majority has it.
fn storage(members: &Configuration) -> Service {
    let members = members.clone();
    // Their votes may be here before the client's request.
    let service = Service::new().hears(members.nodes());
    service.unary(WRITE, move |value: String, context: Context| {
        let members = members.clone();
        async move {
            echo_phases(&context, &members, 2, digest_of(value.as_bytes())).await?;
            Ok::<_, Status>(value)
        }
    })
}

async fn start(members: &Configuration) -> Result<Vec<Endpoint>, Box<dyn Error>> {
    let mut servers: Vec<Endpoint> = Vec::new();
    for node in members.nodes() {
        let server = convoke::endpoint().node(node).listen("tcp://127.0.0.1:0");
        let server = server.serve(storage(members)).start().await?;
        for earlier in &servers {
            server.connect(earlier.addresses()).await?;
        }
        servers.push(server);
    }
    Ok(servers)
}

/// Writes to all members; the answers and the failures.
async fn write(
    client: &Endpoint,
    members: &Configuration,
    value: &str,
) -> Result<(usize, Vec<Failure>), CallError> {
    let request = WRITE.request(value.into());
    let mut call = client.invoke(request).to_all(members.members()).open()?;
    let (mut answers, mut failures) = (0, Vec::new());
    while let Some(reply) = call.next().await {
        match reply {
            Ok(_) => answers += 1,
            Err(CallError::Branch(failure)) => failures.push(failure),
            Err(error) => return Err(error),
        }
    }
    Ok((answers, failures))
}

const ECHO: u16 = 0;
const READY: u16 = 1;

/// Ready on enough echoes, or on one correct member more that is.
fn careful(members: &Configuration) -> Result<EchoPlan, Box<dyn Error>> {
    let (n, f) = (members.len(), (members.len() - 1) / 3);
    let enough = byzantine_quorum(n, f);
    let ready = Rule::on(ECHO, enough).or(Rule::on(READY, f + 1));
    let phases = [Phase::new("echo", enough), Phase::new("ready", 2 * f + 1).cast_on(ready)];
    Ok(EchoPlan::new(n, phases)?)
}

/// One member's part in a slot of the log.
async fn agree(mut slot: EchoRound, value: &'static str) -> Result<bool, String> {
    slot.cast(ECHO, digest_of(value.as_bytes()), value).map_err(|error| error.to_string())?;
    let reached = slot.quorum(READY).await.map_err(|error| error.to_string())?;
    for evidence in slot.evidence() {
        println!("{} said two things in phase {}", evidence.node, evidence.phase);
    }
    Ok(reached.digest == digest_of(value.as_bytes()))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let ids = [1, 2, 3, 4].map(NodeId::new);
    let members = Configuration::new(ids)?;
    let mut servers = start(&members).await?;
    let client = convoke::endpoint().start().await?;
    for server in &servers {
        client.connect(server.addresses()).await?;
    }

    let (answers, failures) = write(&client, &members, "heron").await?;
    println!("{answers} members have echoed it twice");
    assert_eq!((answers, failures.len()), (4, 0));

    let mut slots = tokio::task::JoinSet::new();
    let mut spaces = Vec::new();
    for server in &servers {
        let space = EchoSpace::builder("log", &members).announce_at(2).open(server)?;
        let slot = space.join(1, 7, careful(&members)?)?; // view 1, sequence 7
        slots.spawn(agree(slot, "crane"));
        spaces.push(space);
    }
    while let Some(agreed) = slots.join_next().await {
        assert!(agreed??, "nobody has said anything else");
    }
    for space in &spaces {
        space.close_below(1, 8); // it cannot be voted on again
    }
    println!("all agree on slot 7");
    drop(spaces);

    // Two of four are no majority: it is said at once, not at the deadline.
    for server in servers.drain(2..) {
        server.shutdown(std::time::Duration::from_secs(1)).await;
    }
    let (answers, failures) = write(&client, &members, "stork").await?;
    for failure in &failures {
        println!("{failure}");
    }
    assert_eq!(answers, 0);
    let named = failures.iter().filter(|failure| failure.text.ends_with("down are n3, n4"));
    assert_eq!(named.count(), 2);
    for server in servers {
        server.shutdown(std::time::Duration::from_secs(1)).await;
    }
    Ok(())
}
