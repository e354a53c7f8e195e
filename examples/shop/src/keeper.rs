//! The keeper decides what the shop sells: it loads the shards of the catalogue anew.

use anyhow::{Context as _, Result};
use convoke::{Client, NodeId, SendError, Status};

use crate::catalogue::part_of;
use crate::proto::{CatalogueClient, Item, Loaded};

/// The keeper of the shop. Nobody else may load.
pub const KEEPER: NodeId = NodeId::new(100);

/// Replaces what the shop sells, and says how many items that are. Shards are loaded one after the
/// other, each at once or not at all.
///
/// # Errors
/// With the shard that has not confirmed: those before it have the new items. Loading again does no
/// harm.
pub async fn load(client: &Client, shards: &[NodeId], items: &[Item]) -> Result<u64> {
    let catalogue = CatalogueClient::new(client);
    let mut loaded = 0;
    for (index, shard) in shards.iter().enumerate() {
        let done = load_shard(&catalogue, *shard, part_of(items, index, shards.len())).await;
        loaded += done.with_context(|| format!("shard {shard} was not loaded"))?.items;
    }
    Ok(loaded)
}

async fn load_shard(
    catalogue: &CatalogueClient,
    shard: NodeId,
    items: impl Iterator<Item = &Item>,
) -> Result<Loaded, Status> {
    // Dropped before `finish`, by any error, the stream cancels the call.
    let (mut upload, call) = catalogue.load().to(shard).open()?;
    for item in items {
        match upload.send(item).await {
            // It takes no more: the call says why.
            Err(SendError::Ended) => break,
            sent => sent?,
        }
    }
    upload.finish();
    Ok(call.first().await?.into_inner())
}
