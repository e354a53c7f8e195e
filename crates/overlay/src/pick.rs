//! Choice of the tree that a frame takes: the one with the largest credit.
//!
//! Every frame gives each tree credit for its share of the bytes and takes all bytes from the tree
//! that carries it. The credits sum to zero, none falls below minus one frame, so none rises above
//! as many frames as there are other trees: that bounds how far the trees are from their shares,
//! whatever the sizes of the frames.
//!
//! Departs from ShallowForest, section 6.3.2, where each tree has a quota per window: with
//! operations near the quota the shares shift by up to 23 percentage points, and one larger than
//! any quota can never be sent.

use crate::plan::Tree;

/// Chooses trees by credit. Deterministic.
#[derive(Clone, Debug, Default)]
pub struct TreePicker {
    trees: Vec<Tree>,
    /// In bytes times kbit/s, so that shares need no division.
    credits: Vec<i128>,
}

/// A credit carried over to a new plan counts for at most this many bytes, either way.
const CARRIED_BYTES_MAX: i128 = 64 << 10;

impl TreePicker {
    /// A picker over these trees, in the order of the plan; those with rate 0 are never chosen.
    pub fn new(trees: &[Tree]) -> Self {
        Self { trees: trees.to_vec(), credits: vec![0; trees.len()] }
    }

    /// Takes the trees of a new plan. A tree that was there before keeps its credit, up to 64 KiB.
    pub fn adopt(&mut self, trees: &[Tree]) {
        let (old_total, new_total) = (total(&self.trees), total(trees));
        let carried = trees.iter().map(|tree| {
            let is_same = |old: &Tree| (old.relay, old.forward) == (tree.relay, tree.forward);
            let credit = self.trees.iter().position(is_same).map_or(0, |index| self.credits[index]);
            let bytes = credit / old_total.max(1);
            bytes.clamp(-CARRIED_BYTES_MAX, CARRIED_BYTES_MAX) * new_total
        });
        self.credits = carried.collect();
        self.trees = trees.to_vec();
    }

    /// The tree for a frame of `bytes`, of those that are usable now; they share what the others
    /// would have had. None when there is none.
    pub fn pick(&mut self, bytes: usize, is_usable: impl Fn(&Tree) -> bool) -> Option<Tree> {
        let bytes = bytes as i128;
        let usable: Vec<usize> = (0..self.trees.len())
            .filter(|index| self.trees[*index].rate > 0 && is_usable(&self.trees[*index]))
            .collect();
        let mut sum = 0;
        for index in &usable {
            let rate = i128::from(self.trees[*index].rate);
            self.credits[*index] += bytes * rate;
            sum += rate;
        }
        // Of equals the first, which `max_by_key` would not give.
        let chosen = usable.into_iter().rev().max_by_key(|index| self.credits[*index])?;
        self.credits[chosen] -= bytes * sum;
        Some(self.trees[chosen])
    }

    /// The trees.
    pub fn trees(&self) -> &[Tree] {
        &self.trees
    }
}

fn total(trees: &[Tree]) -> i128 {
    trees.iter().map(|tree| i128::from(tree.rate)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::{Site, SiteSet};
    use proptest::prelude::*;

    fn trees(rates: &[u64]) -> Vec<Tree> {
        let relay = |index: usize| (index > 0).then(|| Site(u16::try_from(index).expect("few")));
        let tree = |(index, rate): (usize, &u64)| Tree {
            relay: relay(index),
            forward: SiteSet::EMPTY,
            rate: *rate,
        };
        rates.iter().enumerate().map(tree).collect()
    }

    proptest! {
        /// P9.
        #[test]
        fn every_prefix_is_within_one_frame_per_other_tree_of_the_shares(
            rates in proptest::collection::vec(0..1_000_000u64, 1..9),
            sizes in proptest::collection::vec(1..65_536usize, 1..300),
        ) {
            let trees = trees(&rates);
            let mut picker = TreePicker::new(&trees);
            let sum: u128 = rates.iter().map(|rate| u128::from(*rate)).sum();
            let used = trees.iter().filter(|tree| tree.rate > 0).count();
            let others = used.saturating_sub(1) as u128;
            let largest = *sizes.iter().max().expect("not empty") as u128;
            let mut sent = vec![0u128; trees.len()];
            let mut all = 0u128;
            for size in sizes {
                let Some(tree) = picker.pick(size, |_| true) else {
                    prop_assert_eq!(sum, 0, "only a plan without rates has no tree");
                    return Ok(());
                };
                prop_assert!(tree.rate > 0);
                sent[tree.relay.map_or(0, Site::index)] += size as u128;
                all += size as u128;
                for (bytes, rate) in sent.iter().zip(&rates) {
                    let off = (bytes * sum).abs_diff(u128::from(*rate) * all);
                    prop_assert!(off <= others * largest * sum);
                }
            }
        }

        #[test]
        fn a_usable_tree_is_always_found(
            rates in proptest::collection::vec(1..1_000u64, 1..9), usable: u8,
            sizes in proptest::collection::vec(1..70_000usize, 1..100),
        ) {
            let trees = trees(&rates);
            let mut picker = TreePicker::new(&trees);
            let is_usable = |tree: &Tree| usable >> tree.relay.map_or(0, Site::index) & 1 != 0;
            for size in sizes {
                let picked = picker.pick(size, is_usable);
                prop_assert_eq!(picked.is_some(), trees.iter().any(is_usable));
                prop_assert!(picked.is_none_or(|tree| is_usable(&tree)));
            }
        }
    }

    #[test]
    fn a_tree_that_is_usable_again_does_not_get_what_it_missed() {
        let mut picker = TreePicker::new(&trees(&[1, 1]));
        for _ in 0..1_000 {
            assert!(picker.pick(100, |tree| tree.relay.is_none()).is_some());
        }
        let relayed =
            (0..100).filter_map(|_| picker.pick(100, |_| true)).filter(|tree| tree.relay.is_some());
        assert_eq!(relayed.count(), 50);
    }

    #[test]
    fn a_new_plan_with_the_same_trees_goes_on_where_the_old_one_was() {
        let mut picker = TreePicker::new(&trees(&[1, 3]));
        let first = picker.pick(1_000, |_| true).and_then(|tree| tree.relay);
        assert_eq!(first, Some(Site(1)));
        picker.adopt(&trees(&[10, 10]));
        let second = picker.pick(1_000, |_| true).expect("there are trees");
        assert_eq!(second.relay, None);
        picker.adopt(&[]);
        assert_eq!(picker.pick(1, |_| true), None);
    }
}
