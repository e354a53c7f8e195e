//! A shard of the catalogue: the items whose number falls to it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use anyhow::{Context as _, ensure};
use convoke::disk::HostDisk;
use convoke::{Code, Context, Finish, Items, Status, Task};

use crate::disk;
use crate::proto::{Catalogue, Item, ItemId, Loaded, Shelf, Word};

/// Items that a shard may have: it holds them all in memory.
const ITEMS_MAX: usize = 10_000;

/// Longest name of an item.
const NAME_BYTES_MAX: usize = 256;

/// One shard.
#[derive(Debug)]
pub struct Shard {
    index: usize,
    count: usize,
    /// Held while the items are replaced.
    file: Arc<Mutex<PathBuf>>,
    items: Arc<RwLock<BTreeMap<u64, Item>>>,
}

impl Shard {
    /// Shard `index` of `count`: with the items that were loaded last, which it keeps in this
    /// folder, or else with its part of the [`assortment`].
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(folder: &Path, index: usize, count: usize) -> io::Result<Self> {
        HostDisk::create(folder)?;
        let file = folder.join("shelf");
        let items = match disk::read::<Shelf>(&file)? {
            Some(shelf) => shelf.items,
            None => part_of(&assortment(), index, count).cloned().collect(),
        };
        let items = items.into_iter().map(|item| (item.id, item)).collect();
        Ok(Self {
            index,
            count,
            file: Arc::new(Mutex::new(file)),
            items: Arc::new(RwLock::new(items)),
        })
    }

    fn check(&self, item: &Item) -> Result<(), String> {
        let Item { id, name, .. } = item;
        if shard_of(*id, self.count) != self.index {
            return Err(format!("item {id} is another shard's"));
        }
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(format!("the name of item {id} must have 1 to {NAME_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// Replaces all items, on the disk and then for everybody. Runs to its end even if nobody waits
    /// for it any more.
    async fn replace(&self, new: BTreeMap<u64, Item>) -> Result<(), Status> {
        let (file, items) = (self.file.clone(), self.items.clone());
        let replaced = tokio::task::spawn_blocking(move || {
            let file = file.lock().unwrap_or_else(PoisonError::into_inner);
            disk::replace(&file, &Shelf { items: new.values().cloned().collect() })?;
            *items.write().unwrap_or_else(PoisonError::into_inner) = new;
            Ok(())
        });
        let replaced = replaced.await.map_err(io::Error::other).and_then(|replaced| replaced);
        replaced.map_err(|error| Status::new(Code::Internal, format!("shelf: {error}")))
    }
}

/// Of all items those of one shard.
pub fn part_of(all: &[Item], index: usize, count: usize) -> impl Iterator<Item = &Item> {
    all.iter().filter(move |item| shard_of(item.id, count) == index)
}

/// Index of the shard that has an item.
pub fn shard_of(item: u64, count: usize) -> usize {
    usize::try_from(item % count as u64).unwrap_or(0)
}

impl Catalogue for Shard {
    async fn find(&self, word: Word, task: Task<Item>) -> Result<Finish, Status> {
        let items = self.items.read().unwrap_or_else(PoisonError::into_inner);
        let found = items.values().filter(|item| item.name.contains(&word.text));
        for item in found {
            task.reply(item)?;
        }
        Ok(task.finish())
    }

    async fn get(&self, ItemId { id }: ItemId, _: Context) -> Result<Item, Status> {
        let items = self.items.read().unwrap_or_else(PoisonError::into_inner);
        items
            .get(&id)
            .cloned()
            .ok_or_else(|| Status::new(Code::NotFound, format!("there is no item {id}")))
    }

    async fn load(&self, mut items: Items<Item>, _: Context) -> Result<Loaded, Status> {
        let refused = |code, text| Err(Status::new(code, text).without_effect());
        let mut new = BTreeMap::new();
        while let Some(item) = items.next().await {
            // A keeper that goes away is an error here, not an end: no part is taken for the whole.
            let item = item?;
            if let Err(text) = self.check(&item) {
                return refused(Code::InvalidArgument, text);
            }
            if new.len() == ITEMS_MAX {
                let text = format!("a shard has {ITEMS_MAX} items at most");
                return refused(Code::ResourceExhausted, text);
            }
            let id = item.id;
            if new.insert(id, item).is_some() {
                return refused(Code::InvalidArgument, format!("item {id} comes twice"));
            }
        }
        let loaded = Loaded { items: new.len() as u64 };
        self.replace(new).await?;
        Ok(loaded)
    }
}

/// Items that this shop sells until others are loaded.
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

/// A line of a list: number, price in cents, supply and name, such as `7 2400 40 barn owl, print`.
impl FromStr for Item {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let mut words = line.trim().splitn(4, char::is_whitespace);
        let mut word = || words.next().context("expected: number cents supply name");
        let (id, price_cents, supply) = (word()?.parse()?, word()?.parse()?, word()?.parse()?);
        let name = word()?.trim().to_owned();
        ensure!(!name.is_empty(), "item {id} has no name");
        Ok(Self { id, name, price_cents, supply })
    }
}
