//! Pairs in the order of their keys, which a clone freezes: the store behind a key-value machine.
//!
//! ```
//! use node_kit::pages::{Pages, Range};
//!
//! let mut pages = Pages::default();
//! pages.insert(b"a/1", b"x");
//! let frozen = pages.clone();
//! pages.insert(b"a/2", b"y");
//! let range = Range { prefix: b"a/", pairs_max: 1, bytes_max: 100, ..Range::default() };
//! let (pairs, next) = pages.scan(&range);
//! assert_eq!((pairs, next), (vec![("a/1".into(), "x".into())], Some("a/2".into())));
//! assert_eq!(frozen.scan(&range).1, None);
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

/// Keys of a page, at most. To write to a page that is frozen copies it: some ten microseconds.
const PAGE_KEYS_MAX: usize = 512;

/// A key. Short ones lie in the nodes of their tree: a search that followed a pointer for each key
/// that it passes would wait for memory as often.
type Key = SmallVec<[u8; 24]>;

type Page = BTreeMap<Key, Bytes>;

/// Pairs in pages. A clone has them as they are now, and costs the same for any number of them:
/// what is written afterwards goes into copies of the pages that it concerns.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Pages by the first key that may be in them. There is always one for the empty key.
    pages: Arc<BTreeMap<Key, Arc<Page>>>,
    keys: u64,
    bytes: u64,
}

/// Pairs that are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    /// The first key that may be among them.
    pub from: &'a [u8],
    /// All begin with this.
    pub prefix: &'a [u8],
    /// So many at most.
    pub pairs_max: usize,
    /// Bytes of them at most, if there is more than one.
    pub bytes_max: usize,
}

impl Default for Pages {
    fn default() -> Self {
        let first = (Key::new(), Arc::default());
        Self { pages: Arc::new([first].into()), keys: 0, bytes: 0 }
    }
}

impl Pages {
    /// Count of keys.
    pub fn len(&self) -> u64 {
        self.keys
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True when there is no pair.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        let (_, page) = self.pages.range::<[u8], _>(up_to(key)).next_back()?;
        page.get(key)
    }

    /// Writes a value. It is copied, and so is a new key: both may be cut from something much
    /// larger.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        let pages = Arc::make_mut(&mut self.pages);
        let Some((_, page)) = pages.range_mut::<[u8], _>(up_to(key)).next_back() else { return };
        let page = Arc::make_mut(page);
        let value = Bytes::copy_from_slice(value);
        self.bytes += value.len() as u64;
        if let Some(known) = page.get_mut(key) {
            self.bytes -= known.len() as u64;
            *known = value;
            return;
        }
        page.insert(Key::from_slice(key), value);
        self.keys += 1;
        self.bytes += key.len() as u64;
        if page.len() > PAGE_KEYS_MAX
            && let Some(middle) = page.keys().nth(PAGE_KEYS_MAX / 2).cloned()
        {
            let later = page.split_off(&middle);
            pages.insert(middle, Arc::new(later));
        }
    }

    /// Removes a key, and gives its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<Bytes> {
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
    pub fn range<'a>(&'a self, from: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a Bytes)> + 'a {
        let before = self.pages.range::<[u8], _>(up_to(from)).next_back();
        let first = before.map_or(&[][..], |(first, _)| first);
        let pages = self.pages.range::<[u8], _>((Bound::Included(first), Bound::Unbounded));
        pages.flat_map(move |(_, page)| {
            let pairs = page.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
            pairs.map(|(key, value)| (key.as_slice(), value))
        })
    }
}

type Pair = (Bytes, Bytes);

impl Pages {
    /// All pairs in the order of their keys. Each page is let go of with its last pair: to let go
    /// of a million keys at once takes as long as many requests.
    pub fn into_pairs(self) -> impl Iterator<Item = Pair> {
        let pages = Arc::unwrap_or_clone(self.pages).into_values();
        let pairs = pages.flat_map(Arc::unwrap_or_clone);
        pairs.map(|(key, value)| (Bytes::copy_from_slice(&key), value))
    }
}

impl Pages {
    /// Pairs in the order of their keys, as far as the bounds allow, and the key of the first that
    /// is left out.
    pub fn scan(&self, range: &Range<'_>) -> (Vec<Pair>, Option<Bytes>) {
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        for (key, value) in self.range(range.from.max(range.prefix)) {
            if !key.starts_with(range.prefix) {
                break;
            }
            bytes += key.len() + value.len();
            let is_over = bytes > range.bytes_max && !pairs.is_empty();
            if pairs.len() == range.pairs_max || is_over {
                return (pairs, Some(Bytes::copy_from_slice(key)));
            }
            pairs.push((Bytes::copy_from_slice(key), value.clone()));
        }
        (pairs, None)
    }
}

fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pages_are_a_map_and_clones_are_frozen(
            steps in prop::collection::vec((0_u16..2_000, any::<bool>(), any::<u8>()), 1..4_000)
        ) {
            let (mut pages, mut model) = (Pages::default(), BTreeMap::new());
            let middle = steps.len() / 2;
            let mut frozen = None;
            for (index, (key, is_removed, value)) in steps.into_iter().enumerate() {
                let key = key.to_be_bytes().to_vec();
                let value = vec![value; usize::from(value % 5)];
                if is_removed {
                    prop_assert_eq!(pages.remove(&key).map(Vec::from), model.remove(&key));
                } else {
                    pages.insert(&key, &value);
                    model.insert(key, value);
                }
                if index == middle {
                    frozen = Some((pages.clone(), model.clone()));
                }
            }
            for (pages, model) in [Some((pages, model)), frozen].into_iter().flatten() {
                let bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
                prop_assert_eq!((pages.len(), pages.bytes()), (model.len() as u64, bytes as u64));
                let from = 700_u16.to_be_bytes();
                let later = pages.range(&from).map(|(key, value)| (key.to_vec(), value.to_vec()));
                let expected = model.range(from.to_vec()..).map(|(k, v)| (k.clone(), v.clone()));
                prop_assert!(later.eq(expected));
                let all = pages.into_pairs().map(|(key, value)| (key.to_vec(), value.to_vec()));
                prop_assert!(all.eq(model));
            }
        }
    }
}
