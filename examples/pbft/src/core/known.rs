//! Signatures that were found right lately: what is repeated is not checked again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::group::Digest;
use super::signature::Signature;
use super::text::Text;

/// Signatures under their words, so many at most; the older half gives way.
#[derive(Debug)]
pub(super) struct Known {
    half: usize,
    halves: Mutex<[BTreeSet<Digest>; 2]>,
}

impl Known {
    pub(super) fn new(count: usize) -> Self {
        Self { half: count.div_ceil(2).max(1), halves: Mutex::default() }
    }

    /// The name of a signature under these words, by the holder of this key.
    pub(super) fn name(key: &[u8; 32], text: &Text, signature: &Signature) -> Digest {
        Digest::of(&[&key[..], &signature.0, text.bytes()].concat())
    }

    pub(super) fn contains(&self, name: &Digest) -> bool {
        let halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.iter().any(|half| half.contains(name))
    }

    pub(super) fn insert(&self, name: Digest) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if halves[0].len() >= self.half {
            halves.swap(0, 1);
            halves[0].clear();
        }
        halves[0].insert(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_half_gives_way() {
        let known = Known::new(4);
        for number in 0..5 {
            known.insert(Digest([number; 32]));
        }
        let there: Vec<u8> = (0..5).filter(|n| known.contains(&Digest([*n; 32]))).collect();
        assert_eq!(there, [2, 3, 4]);
    }
}
