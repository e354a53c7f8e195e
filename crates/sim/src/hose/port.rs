//! One uplink or downlink: what waits for it, and what it carries at the moment.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use convoke_proto::time::Timestamp;

/// Limits of what a link can carry and hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Capacity in kbit/s, at least 1. `None`, the default, is no limit: a parcel passes in no
    /// time.
    pub kbit_per_s: Option<u64>,
    /// The most bytes that may wait; a parcel beyond it is dropped, unless none waits. Default: no
    /// bound.
    pub queue_bytes_max: u64,
    /// Rule for who is next. Default [`Sharing::Fair`].
    pub sharing: Sharing,
}

impl Limits {
    /// A capacity, with an unbounded fair queue.
    pub fn kbit_per_s(capacity: u64) -> Self {
        Self { kbit_per_s: Some(capacity), ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { kbit_per_s: None, queue_bytes_max: u64::MAX, sharing: Sharing::Fair }
    }
}

/// Order in which a link serves those who wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The other ends get equal bytes while they have something waiting, by deficit round robin
    /// (Shreedhar and Varghese, 1995): ahead of an equal share at most by one parcel and
    /// [`QUANTUM_BYTES`].
    #[default]
    Fair,
    /// The first to come is first.
    FirstCome,
}

/// Bytes that a flow of a fair link may send in one round. A packet of Ethernet: less costs rounds
/// without a parcel, more makes shares coarser.
pub const QUANTUM_BYTES: u64 = 1_500;

/// Nanoseconds a bit takes at 1 kbit/s.
const NANOS_PER_KBIT: u128 = 1_000_000;

/// A link; its parcels `P` belong to the flows of other sites `S`.
#[derive(Debug)]
pub(super) struct Port<S, P> {
    limits: Limits,
    flows: BTreeMap<S, Flow<P>>,
    /// Flows with something waiting. The first is being served. For [`Sharing::FirstCome`]: one
    /// entry a parcel.
    order: VecDeque<S>,
    waiting_bytes: u64,
    current: Option<(u64, P)>,
    free_at: Timestamp,
    /// Remainder that rounding down has left out of this busy period, in nanoseconds times the
    /// capacity.
    remainder: u128,
}

#[derive(Debug)]
struct Flow<P> {
    waiting: VecDeque<(u64, P)>,
    deficit: u64,
}

impl<S: Copy + Ord, P> Port<S, P> {
    /// Sets the limits. What waits keeps its place; a change of sharing holds from when nothing
    /// waits.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        let sharing = if self.order.is_empty() { limits.sharing } else { self.limits.sharing };
        self.limits = Limits { sharing, ..limits };
        self.remainder = 0;
    }

    /// Takes a parcel, or gives it back when there is no room.
    pub(super) fn offer(&mut self, flow: S, bytes: u64, parcel: P) -> Result<(), P> {
        let waiting = self.waiting_bytes.saturating_add(bytes);
        if waiting > self.limits.queue_bytes_max && self.waiting_bytes > 0 {
            return Err(parcel);
        }
        self.waiting_bytes = waiting;
        let queue = self.flows.entry(flow).or_default();
        let is_first = queue.waiting.is_empty();
        queue.waiting.push_back((bytes, parcel));
        if is_first || self.limits.sharing == Sharing::FirstCome {
            self.order.push_back(flow);
        }
        Ok(())
    }

    /// Begins with the next parcel if the link is free, and answers when it will be free again.
    pub(super) fn start(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.current.is_some() {
            return None;
        }
        let next = match self.limits.sharing {
            Sharing::Fair => self.next_fair(),
            Sharing::FirstCome => self.next_come(),
        };
        let (bytes, parcel) = next?;
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        if self.free_at < now {
            self.remainder = 0;
        }
        self.free_at = now + self.duration(bytes);
        self.current = Some((bytes, parcel));
        Some(self.free_at)
    }

    /// The parcel that is through.
    pub(super) fn finish(&mut self) -> Option<P> {
        self.current.take().map(|(_, parcel)| parcel)
    }

    /// Bytes that wait or are on the link.
    pub(super) fn backlog(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |(bytes, _)| *bytes);
        self.waiting_bytes.saturating_add(current)
    }

    fn duration(&mut self, bytes: u64) -> Duration {
        let Some(capacity) = self.limits.kbit_per_s else { return Duration::ZERO };
        let capacity = u128::from(capacity.max(1));
        let work = u128::from(bytes) * 8 * NANOS_PER_KBIT + self.remainder;
        self.remainder = work % capacity;
        Duration::from_nanos(u64::try_from(work / capacity).unwrap_or(u64::MAX))
    }

    fn next_come(&mut self) -> Option<(u64, P)> {
        let flow = self.order.pop_front()?;
        let queue = self.flows.get_mut(&flow)?;
        queue.waiting.pop_front()
    }

    fn next_fair(&mut self) -> Option<(u64, P)> {
        self.skip_rounds();
        loop {
            let flow = *self.order.front()?;
            let queue = self.flows.get_mut(&flow)?;
            let bytes = queue.waiting.front()?.0;
            if queue.deficit < bytes {
                queue.deficit = queue.deficit.saturating_add(QUANTUM_BYTES);
                self.order.rotate_left(1);
                continue;
            }
            queue.deficit -= bytes;
            let next = queue.waiting.pop_front();
            if queue.waiting.is_empty() {
                queue.deficit = 0;
                self.order.pop_front();
            }
            return next;
        }
    }

    /// Goes through the rounds at once in which no flow has earned its parcel: a large one would
    /// take many.
    fn skip_rounds(&mut self) {
        let missing = |queue: &Flow<P>| {
            let bytes = queue.waiting.front().map_or(0, |(bytes, _)| *bytes);
            bytes.saturating_sub(queue.deficit).div_ceil(QUANTUM_BYTES)
        };
        let waiting = self.flows.values().filter(|queue| !queue.waiting.is_empty());
        let rounds = waiting.map(missing).min().unwrap_or(0).saturating_sub(1);
        if rounds == 0 {
            return;
        }
        for queue in self.flows.values_mut().filter(|queue| !queue.waiting.is_empty()) {
            queue.deficit = queue.deficit.saturating_add(rounds.saturating_mul(QUANTUM_BYTES));
        }
    }
}

impl<S, P> Default for Port<S, P> {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            flows: BTreeMap::new(),
            order: VecDeque::new(),
            waiting_bytes: 0,
            current: None,
            free_at: Timestamp::ZERO,
            remainder: 0,
        }
    }
}

impl<P> Default for Flow<P> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), deficit: 0 }
    }
}
