//! Deficit round robin: classes of traffic share a link evenly by bytes, whatever the sizes of
//! their frames, and none waits for one that has nothing to send. (Shreedhar and Varghese, SIGCOMM
//! 1995)

use std::collections::{BTreeMap, VecDeque};

/// Queues by class.
#[derive(Clone, Debug)]
pub(crate) struct Drr<T> {
    classes: BTreeMap<usize, Class<T>>,
    /// Classes with something queued, in their turn.
    round: VecDeque<usize>,
}

#[derive(Clone, Debug)]
struct Class<T> {
    queue: VecDeque<(T, usize)>,
    bytes: usize,
    deficit: usize,
}

/// Bytes that a class may send in one turn: half of the largest frame, so a turn is never more than
/// two rounds off.
const QUANTUM: usize = 32 << 10;

impl<T> Default for Drr<T> {
    fn default() -> Self {
        Self { classes: BTreeMap::new(), round: VecDeque::new() }
    }
}

impl<T> Drr<T> {
    /// Queues an item of `bytes`.
    pub(crate) fn push(&mut self, class: usize, item: T, bytes: usize) {
        let entry = self.classes.entry(class).or_insert_with(|| {
            self.round.push_back(class);
            Class { queue: VecDeque::new(), bytes: 0, deficit: QUANTUM }
        });
        entry.queue.push_back((item, bytes));
        entry.bytes += bytes;
    }

    /// The next item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        loop {
            let turn = *self.round.front()?;
            let class = self.classes.get_mut(&turn).expect("a class in the round is there");
            let bytes = class.queue.front().expect("a class that is there has items").1;
            if bytes > class.deficit {
                class.deficit += QUANTUM;
                self.round.rotate_left(1);
                continue;
            }
            class.deficit -= bytes;
            class.bytes -= bytes;
            let item = class.queue.pop_front().map(|(item, _)| item);
            if class.queue.is_empty() {
                self.classes.remove(&turn);
                self.round.pop_front();
            }
            return item;
        }
    }

    /// Bytes that a class has queued.
    pub(crate) fn bytes(&self, class: usize) -> usize {
        self.classes.get(&class).map_or(0, |class| class.bytes)
    }

    /// Takes out everything of a class.
    pub(crate) fn remove(&mut self, class: usize) -> impl Iterator<Item = T> + use<T> {
        self.round.retain(|turn| *turn != class);
        let queue = self.classes.remove(&class).map(|class| class.queue).unwrap_or_default();
        queue.into_iter().map(|(item, _)| item)
    }

    /// Takes out what matches.
    pub(crate) fn extract(&mut self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for class in self.classes.values_mut() {
            for (item, bytes) in std::mem::take(&mut class.queue) {
                if matches(&item) {
                    class.bytes -= bytes;
                    taken.push(item);
                } else {
                    class.queue.push_back((item, bytes));
                }
            }
        }
        self.classes.retain(|_, class| !class.queue.is_empty());
        self.round.retain(|turn| self.classes.contains_key(turn));
        taken
    }

    /// True when nothing is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.round.is_empty()
    }

    /// Number of items that are queued.
    pub(crate) fn len(&self) -> usize {
        self.classes.values().map(|class| class.queue.len()).sum()
    }

    /// Takes out everything, in no order of time.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let classes = std::mem::take(self).classes;
        classes.into_values().flat_map(|class| class.queue).map(|(item, _)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn classes_that_always_have_something_get_the_same_within_a_round(
            sizes in proptest::collection::vec(1..65_560usize, 3),
        ) {
            let mut drr = Drr::default();
            for (class, size) in sizes.iter().enumerate() {
                (0..60_000_000 / size + 1).for_each(|_| drr.push(class, class, *size));
            }
            let mut sent = [0usize; 3];
            for _ in 0..600 {
                let class = drr.pop().expect("there is more");
                sent[class] += sizes[class];
                let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
                prop_assert!(most - least <= 3 * 65_560, "{:?}", sent);
            }
        }
    }

    #[test]
    fn items_of_a_class_keep_their_order_and_nothing_is_lost() {
        let mut drr = Drr::default();
        for item in 0..10 {
            drr.push(item % 2, item, 50_000);
        }
        assert_eq!(drr.len(), 10);
        let all: Vec<usize> = std::iter::from_fn(|| drr.pop()).collect();
        let of = |class| all.iter().copied().filter(|item| item % 2 == class).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7, 9]));
        assert!(drr.is_empty());
    }

    #[test]
    fn a_class_that_is_removed_leaves_the_others_their_turns() {
        let mut drr = Drr::default();
        for item in 0..9 {
            drr.push(item % 3, item, 1_000);
        }
        assert!(drr.remove(1).eq([1, 4, 7]));
        assert_eq!(drr.remove(1).count(), 0);
        assert!(std::iter::from_fn(|| drr.pop()).eq([0, 3, 6, 2, 5, 8]));
    }

    #[test]
    fn what_is_taken_out_leaves_the_rest_in_its_order() {
        let mut drr = Drr::default();
        (0..9).for_each(|item| drr.push(item % 3, item, 1_000));
        let mut taken = drr.extract(|item| item % 3 == 1 || *item > 6);
        taken.sort_unstable();
        assert_eq!(taken, [1, 4, 7, 8]);
        assert_eq!((drr.bytes(2), drr.len()), (2_000, 5));
        assert!(std::iter::from_fn(|| drr.pop()).eq([0, 3, 6, 2, 5]));
    }

    #[test]
    fn a_class_alone_gets_everything() {
        let mut drr = Drr::default();
        (0..100).for_each(|item| drr.push(7, item, 1 << 20));
        assert!((0..100).all(|item| drr.pop() == Some(item)));
    }
}
