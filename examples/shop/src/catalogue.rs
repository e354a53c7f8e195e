//! A shard of the catalogue: the items whose number falls to it.

use std::collections::BTreeMap;

use convoke::{Code, Context, Finish, Status, Task};

use crate::proto::{Catalogue, Item, ItemId, Word};

/// The items of one shard.
#[derive(Debug)]
pub struct Shard {
    items: BTreeMap<u64, Item>,
}

impl Shard {
    /// Of all items those that fall to shard `index` of `count`.
    pub fn new(all: impl IntoIterator<Item = Item>, index: usize, count: usize) -> Self {
        let own = all.into_iter().filter(|item| shard_of(item.id, count) == index);
        Self { items: own.map(|item| (item.id, item)).collect() }
    }
}

/// Index of the shard that has an item.
pub fn shard_of(item: u64, count: usize) -> usize {
    usize::try_from(item % count as u64).unwrap_or(0)
}

impl Catalogue for Shard {
    async fn find(&self, word: Word, task: Task<Item>) -> Result<Finish, Status> {
        let found = self.items.values().filter(|item| item.name.contains(&word.text));
        for item in found {
            task.reply(item)?;
        }
        Ok(task.finish())
    }

    async fn get(&self, ItemId { id }: ItemId, _: Context) -> Result<Item, Status> {
        let item = self.items.get(&id).cloned();
        item.ok_or_else(|| Status::new(Code::NotFound, format!("there is no item {id}")))
    }
}

/// What this shop sells.
pub fn assortment() -> Vec<Item> {
    let items = [
        ("grey heron, carved", 12_900, 5),
        ("night heron, print", 2_400, 40),
        ("wren, brooch", 3_100, 12),
        ("kingfisher, tile", 1_800, 100),
        ("purple heron, kite", 4_500, 8),
    ];
    let item = |(id, (name, price_cents, supply)): (u64, (&str, u64, u32))| Item {
        id,
        name: name.to_owned(),
        price_cents,
        supply,
    };
    (1..).zip(items).map(item).collect()
}
