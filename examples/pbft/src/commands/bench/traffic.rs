//! Frames of a cluster and its clients: those that were sent, and those that have come; and what
//! devices count about receivers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use node_kit::operation::get;

use crate::commands::local::Local;

/// Frames of all connections so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Traffic {
    /// Frames that have not come yet.
    fn under_way(self) -> u64 {
        self.sent.abs_diff(self.received)
    }

    /// Frames that were sent since then and have not come. One that both ends have counted counts
    /// as lost, too, where one of them has forgotten a connection that ended.
    pub(super) fn lost_since(self, before: Self) -> u64 {
        let sent = i128::from(self.sent) - i128::from(before.sent);
        let received = i128::from(self.received) - i128::from(before.received);
        u64::try_from((sent - received).unsigned_abs()).unwrap_or(u64::MAX)
    }

    /// As it is once all has come that was sent. If something never comes, as it is when least is
    /// missing.
    pub(super) async fn settled(local: &Local) -> Result<Self> {
        let mut before = Self::now(local).await?;
        let mut best = before;
        for _ in 0..LOOKS_MAX {
            let now = Self::now(local).await?;
            // Replicas are asked one after the other: only if nothing moved meanwhile does it fit.
            if now == before {
                if now.under_way() == 0 {
                    return Ok(now);
                }
                if now.under_way() < best.under_way() {
                    best = now;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            before = now;
        }
        Ok(best)
    }

    /// As the replicas' metrics and the clients' endpoint have it: to ask takes no frame.
    async fn now(local: &Local) -> Result<Self> {
        let own = local.endpoint().counters();
        let mut all = Self { sent: own.frames_sent, received: own.frames_received };
        for node in local.processes.cluster().nodes() {
            let address = node.operation.context("a replica that is measured has metrics")?;
            let (_, metrics) = get(address, "/metrics").await?;
            all.sent += counted(&metrics, "convoke_frames_sent_total");
            all.received += counted(&metrics, "convoke_frames_received_total");
        }
        Ok(all)
    }
}

/// Looks at replicas whose frames do not add up.
const LOOKS_MAX: usize = 200;

/// Rest before a frame that is missing is looked for again.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// The sum of a metric, whatever its labels.
fn counted(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let labels = line.strip_prefix(name)?;
        labels.rsplit_once(' ')?.1.parse::<u64>().ok()
    });
    values.sum()
}

/// Times that the RDMA devices of this machine counted a receiver that was not ready, or that had
/// to be asked again.
pub(super) fn receivers_not_ready() -> u64 {
    let ports = entries(Path::new("/sys/class/infiniband"))
        .flat_map(|device| entries(&device.join("ports")).collect::<Vec<_>>());
    let count = |port: PathBuf| {
        let counters = port.join("hw_counters");
        // What was read a moment ago would be said again otherwise; adapters have no such file.
        let _ = std::fs::write(counters.join("lifespan"), "0");
        let read = |name: &&str| std::fs::read_to_string(counters.join(name)).ok();
        let values = NOT_READY.iter().filter_map(read);
        values.filter_map(|text| text.trim().parse::<u64>().ok()).sum::<u64>()
    };
    ports.map(count).sum()
}

/// Names that soft-RoCE and adapters have for it.
const NOT_READY: [&str; 4] = ["send_rnr_err", "rcvd_rnr_err", "out_of_buffer", "rnr_nak_retry_err"];

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_do_not_come_are_lost_whoever_forgets_them() {
        let of = |sent, received| Traffic { sent, received };
        assert_eq!(of(30, 30).lost_since(of(10, 10)), 0);
        assert_eq!(of(30, 27).lost_since(of(10, 10)), 3);
        assert_eq!(of(8, 12).lost_since(of(10, 10)), 4);
    }

    #[test]
    fn a_metric_is_the_sum_of_its_labels() {
        let metrics = "# TYPE convoke_frames_sent_total counter\n\
             convoke_frames_sent_total{node=\"n1\"} 40\n\
             convoke_frames_sent_total{node=\"n2\"} 2\n\
             convoke_frames_received_total{node=\"n1\"} 7\n";
        assert_eq!(counted(metrics, "convoke_frames_sent_total"), 42);
        assert_eq!(counted(metrics, "convoke_frames_received_total"), 7);
        assert_eq!(counted(metrics, "convoke_frames_lost_total"), 0);
    }
}
