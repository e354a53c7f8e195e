//! Items of a streamed reply that a handler has sent and the node has not been given: they reach it
//! together, under one lock. None stays once the poll that sent it is over.

use convoke_proto::encoded::Encoded;
use convoke_proto::flow::cost;

/// Small items of one stream, for which there is credit. Most tasks have no stream, and no memory
/// for it.
#[derive(Debug, Default)]
pub(super) struct Ahead(Option<Box<Items>>);

#[derive(Debug, Default)]
struct Items {
    index: u32,
    /// Credit of the stream behind them.
    credit: u64,
    items: Vec<Encoded>,
    bytes: u64,
}

/// Most of them, and most bytes, as many as a reader is handed together.
const ITEMS_MAX: usize = 32;
const BYTES_MAX: u64 = 4 << 10;

impl Ahead {
    /// Takes an item out of `item`, unless it has to go to the node with those before it.
    pub(super) fn take(&mut self, index: u32, item: &mut Encoded) -> bool {
        let Some(ahead) = &mut self.0 else { return false };
        let cost = cost(item.len());
        let has_room = ahead.items.len() < ITEMS_MAX && ahead.bytes + cost <= BYTES_MAX;
        let fits = ahead.index == index && cost <= ahead.credit && has_room;
        if fits {
            ahead.items.push(std::mem::take(item));
            ahead.credit -= cost;
            ahead.bytes += cost;
        }
        fits
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|ahead| ahead.items.is_empty())
    }

    /// True when another item of this stream would have credit behind them.
    pub(super) fn leads_to(&self, index: u32) -> bool {
        self.0.as_ref().is_some_and(|ahead| ahead.index == index && ahead.credit > 0)
    }

    /// The stream that they are of, and they; `None` without any.
    pub(super) fn drain(&mut self) -> Option<(u32, impl Iterator<Item = Encoded> + '_)> {
        let ahead = self.0.as_mut().filter(|ahead| !ahead.items.is_empty())?;
        ahead.bytes = 0;
        Some((ahead.index, ahead.items.drain(..)))
    }

    /// Notes the credit of a stream of which the node has all items.
    pub(super) fn note_credit(&mut self, index: u32, credit: u64) {
        let ahead = self.0.get_or_insert_default();
        (ahead.index, ahead.credit) = (index, credit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(ahead: &mut Ahead, index: u32, len: usize) -> bool {
        ahead.take(index, &mut Encoded::new(len, |out| out.resize(len, 0)))
    }

    #[test]
    fn only_small_items_of_one_stream_with_credit_wait_for_one_another() {
        let mut ahead = Ahead::default();
        assert!(!takes(&mut ahead, 0, 1), "the node knows its credit");
        ahead.note_credit(3, 10_000);
        assert!(!takes(&mut ahead, 0, 1), "of another stream");
        assert!(!takes(&mut ahead, 3, 5_000), "larger than all may be");
        assert!(takes(&mut ahead, 3, 4_000) && !takes(&mut ahead, 3, 97));
        assert!(takes(&mut ahead, 3, 96) && !ahead.is_empty());
        assert_eq!(ahead.drain().map(|(index, items)| (index, items.count())), Some((3, 2)));
        assert!(ahead.is_empty() && ahead.drain().is_none());
        assert!((0..32).all(|_| takes(&mut ahead, 3, 0)), "an empty one costs as much as a byte");
        assert!(!takes(&mut ahead, 3, 0), "and they are few");
        ahead.drain();
        ahead.note_credit(3, 2);
        assert!(takes(&mut ahead, 3, 2) && !ahead.leads_to(3) && !takes(&mut ahead, 3, 0));
    }
}
