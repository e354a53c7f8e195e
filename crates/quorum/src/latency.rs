//! Round trips of members, and the order in which to ask because of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::transport::parts::Mutex;
use convoke_core::{NodeId, Peer};
use tokio::sync::watch;

use crate::Configuration;

/// Round trips of members, from the sending of a request to the first reply, smoothed: each new one
/// counts for a fifth. Filled by the quorum calls that are given it; see
/// [`QuorumBuilder::latencies`](crate::QuorumBuilder::latencies). Cheap to clone; clones are the
/// same.
#[derive(Clone, Default)]
pub struct Latencies {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    smoothed: Mutex<BTreeMap<NodeId, Duration>>,
    /// Told of every change.
    changes: watch::Sender<()>,
}

/// The share of a new round trip in the smoothed one, as a divisor: 0.2.
const SHARE: u32 = 5;

impl Latencies {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a round trip into account.
    pub fn observe(&self, member: NodeId, round_trip: Duration) {
        let mut smoothed = self.shared.smoothed.lock();
        let now = smoothed.entry(member).or_insert(round_trip);
        *now = *now - *now / SHARE + round_trip / SHARE;
        drop(smoothed);
        self.shared.changes.send_replace(());
    }

    /// The smoothed round trip of a member, once it has replied.
    pub fn of(&self, member: NodeId) -> Option<Duration> {
        self.shared.smoothed.lock().get(&member).copied()
    }

    /// Forgets a node that is no member any more.
    pub fn forget(&self, node: NodeId) {
        self.shared.smoothed.lock().remove(&node);
        self.shared.changes.send_replace(());
    }

    /// The members from the fastest to the slowest; those not known last, all ties in the order of
    /// ids.
    pub fn order(&self, members: &Configuration) -> Vec<Peer> {
        let smoothed = self.shared.smoothed.lock();
        let mut order = members.members().to_vec();
        order.sort_by_key(|member| smoothed.get(&member.node()).copied().unwrap_or(Duration::MAX));
        order
    }

    /// The `count` fastest members.
    #[must_use]
    pub fn nearest(&self, count: usize, members: &Configuration) -> Configuration {
        let order = self.order(members);
        let nearest = &order[..count.min(order.len())];
        members.subset(|member| nearest.contains(&member))
    }

    /// The order of these members now, and again whenever it has changed.
    pub fn watch(&self, members: &Configuration) -> LatencyOrder {
        let changes = self.shared.changes.subscribe();
        let (shared, members) = (Arc::downgrade(&self.shared), members.clone());
        LatencyOrder { shared, members, changes, last: None }
    }
}

/// The order of members by latency, as it changes; see [`Latencies::watch`].
pub struct LatencyOrder {
    shared: std::sync::Weak<Shared>,
    members: Configuration,
    changes: watch::Receiver<()>,
    last: Option<Vec<Peer>>,
}

impl LatencyOrder {
    /// The order: the first time at once, then when it is another. `None` once nobody measures any
    /// more.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Option<&[Peer]> {
        loop {
            let latencies = Latencies { shared: self.shared.upgrade()? };
            let order = latencies.order(&self.members);
            drop(latencies);
            if self.last.as_ref() != Some(&order) {
                return Some(self.last.insert(order));
            }
            self.changes.changed().await.ok()?;
        }
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.shared.smoothed.lock().iter()).finish()
    }
}

impl fmt::Debug for LatencyOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyOrder").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> NodeId {
        NodeId::new(id)
    }

    fn three() -> Configuration {
        Configuration::new([1, 2, 3].map(node)).expect("three ids")
    }

    fn ids(order: &[Peer]) -> Vec<u64> {
        order.iter().map(|peer| peer.node().get()).collect()
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_new_round_trip_counts_for_a_fifth() {
        let latencies = Latencies::new();
        assert_eq!(latencies.of(node(1)), None);
        latencies.observe(node(1), 10 * MS);
        assert_eq!(latencies.of(node(1)), Some(10 * MS));
        latencies.observe(node(1), 20 * MS);
        assert_eq!(latencies.of(node(1)), Some(12 * MS));
    }

    #[test]
    fn unknown_members_come_last_and_ties_keep_their_order() {
        let latencies = Latencies::new();
        assert_eq!(ids(&latencies.order(&three())), [1, 2, 3]);
        latencies.observe(node(3), 5 * MS);
        assert_eq!(ids(&latencies.order(&three())), [3, 1, 2]);
        latencies.observe(node(2), 5 * MS);
        assert_eq!(ids(&latencies.order(&three())), [2, 3, 1]);
        let nearest = latencies.nearest(2, &three());
        assert_eq!(ids(nearest.members()), [2, 3]);
        latencies.forget(node(2));
        assert_eq!(ids(&latencies.order(&three())), [3, 1, 2]);
    }

    #[tokio::test]
    async fn a_watcher_sees_one_order_at_first_none_while_it_stays_and_the_next_one() {
        let latencies = Latencies::new();
        let mut watcher = latencies.watch(&three());
        assert_eq!(watcher.next().await.map(ids), Some(vec![1, 2, 3]));
        latencies.observe(node(1), MS);
        latencies.observe(node(2), 2 * MS);
        latencies.observe(node(3), 3 * MS);
        assert!(is_pending(watcher.next()), "the order is the same");
        latencies.observe(node(3), Duration::ZERO);
        latencies.observe(node(1), 9 * MS);
        assert_eq!(watcher.next().await.map(ids), Some(vec![2, 3, 1]));
        drop(latencies);
        assert_eq!(watcher.next().await, None);
    }

    fn is_pending(future: impl Future) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(future).as_mut().poll(&mut cx).is_pending()
    }
}
