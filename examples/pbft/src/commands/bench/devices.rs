//! Counts of RDMA devices about receivers.

use std::path::{Path, PathBuf};

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
