//! Metrics of a node.

/// Metrics of a node, looked up once: the recorder has to be there before the node starts.
pub(super) struct Meters {
    pub(super) view: metrics::Gauge,
    pub(super) is_primary: metrics::Gauge,
    pub(super) batches_executed: metrics::Gauge,
    pub(super) requests_waiting: metrics::Gauge,
    pub(super) batch_requests: metrics::Histogram,
}

impl Meters {
    pub(super) fn new() -> Self {
        Self {
            view: metrics::gauge!("pbft_view"),
            is_primary: metrics::gauge!("pbft_is_primary"),
            batches_executed: metrics::gauge!("pbft_batches_executed"),
            requests_waiting: metrics::gauge!("pbft_requests_waiting"),
            batch_requests: metrics::histogram!("pbft_batch_requests"),
        }
    }
}
