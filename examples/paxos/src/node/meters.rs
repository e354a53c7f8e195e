//! Metrics of a node.

/// Metrics of a node, looked up once: the recorder has to be there before the node starts.
pub(super) struct Meters {
    pub(super) leads: metrics::Gauge,
    pub(super) ready: metrics::Gauge,
    pub(super) slots_applied: metrics::Gauge,
    pub(super) requests_waiting: metrics::Gauge,
    pub(super) batch_requests: metrics::Histogram,
}

impl Meters {
    pub(super) fn new() -> Self {
        let ready = metrics::gauge!("paxos_ready");
        ready.set(0.0); // until it lacks nothing
        Self {
            leads: metrics::gauge!("paxos_leads"),
            ready,
            slots_applied: metrics::gauge!("paxos_slots_applied"),
            requests_waiting: metrics::gauge!("paxos_requests_waiting"),
            batch_requests: metrics::histogram!("paxos_batch_requests"),
        }
    }
}
