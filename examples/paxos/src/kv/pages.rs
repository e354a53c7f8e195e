//! Pairs in the order of their keys, which a clone freezes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

/// Keys of a page, at most. To write to a page that is frozen copies it: some ten microseconds.
const PAGE_KEYS_MAX: usize = 512;

type Page = BTreeMap<Bytes, Bytes>;

/// Pairs in pages. A clone has them as they are now, and costs the same for any number of them:
/// what is written afterwards goes into copies of the pages that it concerns.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// Pages by the first key that may be in them. There is always one for the empty key.
    pages: Arc<BTreeMap<Bytes, Arc<Page>>>,
    keys: u64,
    bytes: u64,
}

impl Default for Pages {
    fn default() -> Self {
        let first = (Bytes::new(), Arc::default());
        Self { pages: Arc::new([first].into()), keys: 0, bytes: 0 }
    }
}

impl Pages {
    /// Count of keys.
    pub(super) fn len(&self) -> u64 {
        self.keys
    }

    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        let (_, page) = self.pages.range::<[u8], _>(up_to(key)).next_back()?;
        page.get(key)
    }

    /// Writes a value, and gives the one before. Both are copied: what they were cut from may be
    /// much larger.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8]) -> Option<Bytes> {
        let pages = Arc::make_mut(&mut self.pages);
        let (_, page) = pages.range_mut::<[u8], _>(up_to(key)).next_back()?;
        let page = Arc::make_mut(page);
        let value = Bytes::copy_from_slice(value);
        self.bytes += value.len() as u64;
        let before = match page.get_mut(key) {
            Some(known) => Some(std::mem::replace(known, value)),
            None => page.insert(Bytes::copy_from_slice(key), value),
        };
        match &before {
            Some(before) => self.bytes -= before.len() as u64,
            None => {
                self.keys += 1;
                self.bytes += key.len() as u64;
            }
        }
        if page.len() > PAGE_KEYS_MAX
            && let Some(middle) = page.keys().nth(PAGE_KEYS_MAX / 2).cloned()
        {
            let later = page.split_off(&middle);
            pages.insert(middle, Arc::new(later));
        }
        before
    }

    /// Removes a key, and gives its value.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Bytes> {
        self.get(key)?;
        let pages = Arc::make_mut(&mut self.pages);
        let (first, page) = pages.range_mut::<[u8], _>(up_to(key)).next_back()?;
        let first = first.clone();
        let page = Arc::make_mut(page);
        let value = page.remove(key)?;
        if page.is_empty() && !first.is_empty() {
            pages.remove(&first);
        }
        self.keys -= 1;
        self.bytes -= (key.len() + value.len()) as u64;
        Some(value)
    }

    /// Pairs from a key on.
    pub(super) fn range<'a>(
        &'a self,
        from: &'a [u8],
    ) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> + 'a {
        let before = self.pages.range::<[u8], _>(up_to(from)).next_back();
        let first = before.map_or(&[][..], |(first, _)| first);
        let pages = self.pages.range::<[u8], _>((Bound::Included(first), Bound::Unbounded));
        pages.flat_map(move |(_, page)| {
            page.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
        })
    }
}

fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}
