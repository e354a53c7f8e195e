//! Origin of the rows: what a later reader has to know to believe them, or to measure them again.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::Row;
use crate::bencher::Effort;

/// Contents of the file that `--json` names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run that measured the rows; absent in files that are older, which are an array of rows.
    pub run: Option<Run>,
    /// A row for each case.
    pub rows: Vec<Row>,
}

/// How rows came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, as HTTP has dates, which are in UTC.
    pub date: String,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Time for which each case was measured in each round, in seconds.
    pub seconds: f64,
    /// Time before that which does not count, in seconds.
    pub warm_up_seconds: f64,
    /// How often all cases were gone through.
    pub rounds: usize,
    /// Commit that was checked out, and whether anything was changed; null without git.
    pub commit: Option<String>,
    /// Model of the processors; null where the system does not tell.
    pub cpu: Option<String>,
    /// How many there are for this process; null where the system does not tell.
    pub processors: Option<usize>,
    /// Release of the kernel; null where the system does not tell.
    pub kernel: Option<String>,
    /// Versions of what was measured, by the lock file that the program was built with.
    pub versions: BTreeMap<String, String>,
}

/// The lock file of the workspace.
const LOCK: &str = include_str!("../../../../Cargo.lock");

/// Packages whose versions a reader has to know. Convoke has a commit.
const PACKAGES: [&str; 10] = [
    "h2",
    "hyper",
    "ntex-grpc",
    "quinn",
    "rustls",
    "tarpc",
    "tokio",
    "tonic",
    "volo",
    "volo-thrift",
];

impl Report {
    /// Reads what a run has written, with a header or, as older ones did, without.
    ///
    /// # Errors
    /// When it has no rows.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        if text.trim_start().starts_with('[') {
            return Ok(Self { run: None, rows: serde_json::from_str(text)? });
        }
        serde_json::from_str(text)
    }
}

impl Run {
    /// Of this process, which begins to measure.
    pub fn begin(effort: &Effort, rounds: usize) -> Self {
        let read = |path| std::fs::read_to_string(path).ok();
        let model = |text: String| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        Self {
            date: httpdate::fmt_http_date(SystemTime::now()),
            arguments: std::env::args().skip(1).collect(),
            seconds: effort.measured.time.as_secs_f64(),
            warm_up_seconds: effort.warm_up.time.as_secs_f64(),
            rounds,
            commit: commit(),
            cpu: read("/proc/cpuinfo").and_then(model),
            processors: std::thread::available_parallelism().ok().map(usize::from),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            versions: versions(),
        }
    }
}

fn commit() -> Option<String> {
    let mut command = Command::new("git");
    command.args(["describe", "--always", "--dirty"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn versions() -> BTreeMap<String, String> {
    let package = |text: &str| {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_start_matches(" = ").trim_matches('"').to_owned())
        };
        Some((value("name")?, value("version")?))
    };
    let all = LOCK.split("[[package]]").filter_map(package);
    all.filter(|(name, _)| PACKAGES.contains(&name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drive::Quota;

    #[test]
    fn versions_of_all_that_is_measured_are_known() {
        let versions = versions();
        assert_eq!(versions.keys().collect::<Vec<_>>(), PACKAGES.iter().collect::<Vec<_>>());
        let is_version = |text: &String| text.starts_with(|first: char| first.is_ascii_digit());
        assert!(versions.values().all(is_version), "{versions:?}");
    }

    #[test]
    fn a_file_has_its_header_and_an_older_one_has_none() {
        let quota = |seconds| Quota { time: Duration::from_secs(seconds), operations: u64::MAX };
        let effort = Effort { warm_up: quota(1), measured: quota(4) };
        let report = Report { run: Some(Run::begin(&effort, 3)), rows: Vec::new() };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(Report::read(&text).unwrap(), report);
        assert_eq!(Report::read(" []").unwrap(), Report { run: None, rows: Vec::new() });
        assert!(Report::read("{}").is_err());
    }
}
