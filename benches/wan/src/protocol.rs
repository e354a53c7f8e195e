//! Lines of JSON between the lab and the sites, one for each order and each answer.

mod ends;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use self::ends::{Called, Calls, Pems, Start};

/// How a broadcast travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// A copy to each receiver over one connection each, unpaced.
    Direct,
    /// Over the trees of a plan.
    Overlay,
}

impl Form {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Overlay => "overlay",
        }
    }
}

/// Orders of the lab to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Connect to the sites that listen at these addresses, by their index: for direct broadcasts.
    Connect(Vec<String>),
    /// Start an overlay with the plan of this model, in place of the one before.
    Plan(Model),
    /// Connect to the overlays of the others at these addresses.
    Join(Vec<String>),
    /// Broadcast and time what comes.
    Measure(Window),
    /// Broadcast by the overlay until the window ends, and wait until nobody is owed anything.
    Offer(Window),
    /// Say what has come of the operations of this run.
    Count(u32),
}

/// Network that all sites plan from; see [`HoseModel`](convoke_overlay::HoseModel).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Model {
    pub(crate) uplink: Vec<u64>,
    pub(crate) downlink: Vec<u64>,
    pub(crate) latency_us: Vec<u32>,
    pub(crate) demand: Vec<u64>,
    pub(crate) headroom_permille: u32,
}

/// One measurement. Times are nanoseconds of the machine's monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    /// Number of the measurement. A site does not count operations of another one.
    pub(crate) run: u32,
    pub(crate) form: Form,
    /// Rate at which this site wants to broadcast, kbit/s.
    pub(crate) demand: u64,
    /// Size of an operation, bytes.
    pub(crate) op_bytes: usize,
    /// When to begin to send.
    pub(crate) start_ns: u64,
    /// From when on to count.
    pub(crate) from_ns: u64,
    /// When to stop.
    pub(crate) until_ns: u64,
}

/// Answers of a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It listens at this address.
    Listening(String),
    /// It is connected to all others.
    Connected,
    /// Its measurements.
    Measured(Measured),
    /// So many operations were broadcast, and so many bytes of them sent again.
    Offered { operations: u64, resent_bytes: u64 },
    /// Operations of each site that have come.
    Counted(BTreeMap<u16, Came>),
    /// It cannot go on.
    Failed(String),
}

/// Operations of one site that have come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Came {
    pub(crate) operations: u64,
    /// Longest latency, in microseconds, of those offered in the same half second of the clock.
    pub(crate) worst_us: BTreeMap<u64, u64>,
}

/// Part of the clock that a [`Came`] has one latency for, in nanoseconds.
pub(crate) const PART_NS: u64 = 500_000_000;

/// Counts and latencies of the operations that came at a site in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Payload bytes that came, of all sources.
    pub(crate) received_bytes: u64,
    /// Sum of all one-way latencies, microseconds.
    pub(crate) latency_sum_us: u64,
    /// How many operations took how long: rounded up by less than 1.6 %, microseconds.
    pub(crate) latencies_us: Vec<(u64, u64)>,
    /// Operations of each site that have come since the run began.
    pub(crate) came: BTreeMap<u16, u64>,
    /// Operations that this site has offered and that had no room until the window ended.
    pub(crate) held_back: u64,
}

impl Window {
    /// Nanoseconds from one operation to the next; none for a site that offers nothing.
    pub(crate) fn every_ns(&self) -> Option<u64> {
        let bits = self.op_bytes as u64 * 8;
        (bits * 1_000_000).checked_div(self.demand).map(|every| every.max(1))
    }

    /// Ages, at the end of the window, of the operations that its site offers, but the first `came`
    /// of them, in microseconds.
    pub(crate) fn ages_us(&self, came: u64) -> impl Iterator<Item = u64> {
        let lasts_ns = self.until_ns.saturating_sub(self.start_ns);
        let every_ns = self.every_ns();
        let offered = every_ns.map_or(0, |every_ns| lasts_ns.div_ceil(every_ns));
        (came..offered).map(move |index| (lasts_ns - index * every_ns.unwrap_or(0)) / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_operations_in_time_and_what_has_not_come_has_an_age() {
        let window = |demand| Window {
            run: 0,
            form: Form::Direct,
            demand,
            op_bytes: 16_000,
            start_ns: 5_000_000,
            from_ns: 6_000_000,
            until_ns: 8_500_000,
        };
        // 16,000 bytes are 128 kbit.
        assert_eq!(window(128_000).every_ns(), Some(1_000_000));
        assert_eq!(window(0).every_ns(), None);
        let ages = |demand, came| window(demand).ages_us(came).collect::<Vec<_>>();
        assert_eq!(ages(128_000, 0), [3_500, 2_500, 1_500, 500]);
        assert_eq!(ages(128_000, 3), [500]);
        assert_eq!((ages(128_000, 4), ages(0, 0)), (vec![], vec![]));
    }

    #[test]
    fn orders_and_answers_are_lines() {
        let window = Window {
            run: 1,
            form: Form::Overlay,
            demand: 3,
            op_bytes: 16,
            start_ns: 4,
            from_ns: 5,
            until_ns: 6,
        };
        for order in [Order::Connect(vec!["tcp://a:1".into()]), Order::Measure(window)] {
            let line = serde_json::to_string(&order).expect("it is JSON");
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Order>(&line).expect("it was written"), order);
        }
        let answer = Answer::Measured(Measured::default());
        let line = serde_json::to_string(&answer).expect("it is JSON");
        assert_eq!(serde_json::from_str::<Answer>(&line).expect("it was written"), answer);
    }
}
