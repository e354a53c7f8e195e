//! The front that customers ask. It holds nothing but what it was set up with.

use convoke::{Code, Context, Finish, NodeId, Status, Task};

use crate::catalogue::shard_of;
use crate::ledger::Ledger;
use crate::proto::{CatalogueClient, Item, ItemId, Order, Receipt, Shop, Word, catalogue};

/// Longest text of a request: what customers send is stored, and searched for at every shard.
const TEXT_BYTES_MAX: usize = 64;

/// One front.
#[derive(Debug)]
pub struct Front {
    shards: Vec<NodeId>,
    ledger: Ledger,
}

impl Front {
    /// Over these shards, in the order of their indices, of which there is at least one.
    pub fn new(shards: Vec<NodeId>, ledger: Ledger) -> Self {
        Self { shards, ledger }
    }

    fn shard_of(&self, item: u64) -> NodeId {
        self.shards[shard_of(item, self.shards.len())]
    }
}

impl Shop for Front {
    async fn search(&self, word: Word, task: Task<Item>) -> Result<Finish, Status> {
        check(&word.text)?;
        let find = |shard| (shard, catalogue::FIND.request(word.clone()));
        task.fan_out(self.shards.iter().map(find)).await
    }

    async fn look(&self, item: ItemId, task: Task<Item>) -> Result<Finish, Status> {
        Ok(task.tail(self.shard_of(item.id), catalogue::GET.request(item)).await?)
    }

    async fn buy(&self, order: Order, context: Context) -> Result<Receipt, Status> {
        check(&order.id)?;
        if order.count == 0 {
            return Err(Status::new(Code::InvalidArgument, "an order is for one at least"));
        }
        let shard = CatalogueClient::new(&context);
        let item = shard.get(ItemId { id: order.item }).to(self.shard_of(order.item)).await?;
        let customer = context.caller().node();
        self.ledger.take(&context.client(), customer, (&item, &order)).await
    }
}

fn check(text: &str) -> Result<(), Status> {
    if (1..=TEXT_BYTES_MAX).contains(&text.len()) {
        return Ok(());
    }
    let text = format!("a text has 1 to {TEXT_BYTES_MAX} bytes");
    Err(Status::new(Code::InvalidArgument, text).without_effect())
}
