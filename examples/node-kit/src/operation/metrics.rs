//! Metrics as Prometheus reads them.

use std::sync::{Arc, OnceLock};

use convoke::Endpoint;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use thiserror::Error;

use super::Traffic;

/// Upper bounds of the buckets of what is counted in seconds: 50 µs to 10 s, about doubling, so
/// that a sync of a disk, a commit and an election are all within.
const SECONDS: [f64; 18] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
    2.0, 5.0, 7.5, 10.0,
];

/// Upper bounds of the buckets of everything else: counts and bytes.
const COUNTS: [f64; 14] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 1048576.0,
];

/// Metrics of this process: whatever is counted through the crate `metrics`.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    sampled: Arc<OnceLock<Endpoint>>,
}

/// Reason why there are no metrics.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The process has a recorder already.
    #[error("this process has a recorder of metrics already")]
    Already,
    /// The buckets are refused.
    #[error(transparent)]
    Buckets(#[from] BuildError),
}

impl Metrics {
    /// Counts from now on, for the whole process: before an endpoint starts, which looks for the
    /// recorder then.
    ///
    /// # Errors
    /// [`MetricsError::Already`].
    pub fn install() -> Result<Self, MetricsError> {
        let (recorder, metrics) = Self::recorder()?;
        metrics::set_global_recorder(recorder).map_err(|_| MetricsError::Already)?;
        Ok(metrics)
    }

    /// A recorder that is not installed: for several nodes in one process.
    ///
    /// # Errors
    /// [`MetricsError::Buckets`].
    pub fn recorder() -> Result<(PrometheusRecorder, Self), MetricsError> {
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets(&COUNTS)?;
        let recorder = builder.set_buckets_for_metric(seconds, &SECONDS)?.build_recorder();
        let metrics = Self { handle: recorder.handle(), sampled: Arc::default() };
        Ok((recorder, metrics))
    }

    /// Has an endpoint sampled before each reading: what is open, and what its connections carried,
    /// is then as of now and not of the last second. The first endpoint stays.
    pub fn sample(&self, endpoint: &Endpoint) {
        self.sampled.get_or_init(|| endpoint.clone());
    }

    /// All of them, as Prometheus reads them.
    pub fn text(&self) -> String {
        self.sampled.get().iter().for_each(|endpoint| endpoint.sample_metrics());
        self.handle.render()
    }

    /// Frames of the endpoint that is sampled, once there is one.
    pub fn traffic(&self) -> Option<Traffic> {
        self.sampled.get().map(Traffic::of)
    }

    /// Puts samples into their buckets, so that those that nobody reads take no memory. A
    /// [`Listener`](super::Listener) does it every few seconds.
    pub fn settle(&self) {
        self.handle.run_upkeep();
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
