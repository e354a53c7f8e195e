//! A node that is gone and one that is too slow: what can be answered is answered, and the rest is
//! named.
//!
//! ```sh
//! cargo run --example partial
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{Cause, Context, End, Endpoint, Executed, Method, NodeId, Service, Status};

const TEMPERATURE: Method<String, i64> = Method::new("weather.Station/Temperature").read_only();

async fn start_station(node: u64, degrees: Option<i64>) -> Result<Endpoint, Box<dyn Error>> {
    let station = Service::new().unary(TEMPERATURE, move |_place, _: Context| async move {
        match degrees {
            Some(degrees) => Ok::<_, Status>(degrees),
            None => std::future::pending().await,
        }
    });
    let node = NodeId::new(node);
    Ok(convoke::endpoint().node(node).listen("tcp://127.0.0.1:0").serve(station).start().await?)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let stations = [
        start_station(1, Some(12)).await?,
        start_station(2, Some(14)).await?,
        start_station(3, None).await?,
        start_station(4, Some(11)).await?,
    ];
    let client = convoke::endpoint().start().await?;
    // Known by name and address; dialled when first needed.
    let mut peers = Vec::new();
    for station in &stations {
        peers.push(client.peer(station.node(), station.addresses())?);
    }
    let [one, two, slow, gone] = stations;
    gone.shutdown(Duration::ZERO).await;

    let call =
        client.call(TEMPERATURE, "garden".into()).deadline(Duration::from_secs(1)).to_all(&peers);
    let mut call = call.open()?;
    let mut degrees = Vec::new();
    while let Some(reply) = call.next().await {
        match reply {
            Ok(reply) => degrees.push(reply.into_inner()),
            Err(missing) => println!("missing: {missing}"),
        }
    }
    degrees.sort_unstable();
    println!("{degrees:?}");
    assert_eq!(degrees, [12, 14]);

    // The outcome says it again, for programs.
    let outcome = call.outcome().await;
    assert_eq!(outcome.end, End::Partial);
    for failure in &outcome.failures {
        let repeat = if failure.is_safe_to_repeat() { "repeat it" } else { "it may have run" };
        println!("branch {} at {:?}: {:?}, {repeat}", failure.task, failure.node, failure.cause);
    }
    let mut causes: Vec<_> =
        outcome.failures.iter().map(|failure| (failure.cause, failure.executed)).collect();
    causes.sort_unstable();
    assert_eq!(causes, [(Cause::Deadline, Executed::Maybe), (Cause::Unreachable, Executed::No)]);

    for endpoint in [client, one, two, slow] {
        endpoint.shutdown(Duration::ZERO).await;
    }
    Ok(())
}
