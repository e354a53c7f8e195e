//! `graph lanes`: a query frame by frame, over lanes of time, as shards that call each other and
//! wait, and as a call tree.

use std::time::Duration;

use anyhow::Result;
use charts::Panel;

use crate::cluster::shard_node;
use crate::forms::Form;
use crate::query::Query;
use crate::simulated::Simulated;
use crate::store::{Graph, Sharding};

/// Lanes of a query in one of the forms, each frame `one_way` on its way. The clock of the runtime
/// has to be paused.
///
/// # Errors
/// The query fails.
pub async fn record(
    graph: &Graph,
    sharding: Sharding,
    (query, id): (Query, i64),
    form: Form,
    one_way: Duration,
) -> Result<Panel> {
    let Simulated { network, client, .. } = &Simulated::start(graph, sharding, one_way).await?;
    let shards = (0..sharding.shards()).map(|index| (shard_node(index), format!("shard {index}")));
    let shards: Vec<_> = shards.collect();
    let asked = client.ask(form, query, id);
    Ok(node_kit::lanes::record(network, &shards, one_way, asked).await?)
}
