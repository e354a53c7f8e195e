//! `pbft torture`: processes under load are killed, stopped and cut off at random; then all is read
//! back.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::NodeId;
use node_kit::program::local::Form;
use node_kit::program::torture::{REQUEST_WITHIN, Torture, in_folder};
use pbft::client::Options;
use pbft::core::Group;
use pbft::settings::Settings;

use super::local::Local;
use crate::args::TortureArgs;

/// Mebibytes of records between snapshots, so that there are some.
const SNAPSHOT_MIB: u64 = 1;

/// Batches between checkpoints, by which replicas that were away come back.
const CHECKPOINT_EVERY: u64 = 16;

/// Time for a request that reads something back.
const READ_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: &TortureArgs) -> Result<ExitCode> {
    let TortureArgs { course, replicas, auth } = args;
    let (auth, scheme) = auth.setting();
    let faulty = Group::new((1..=*replicas as u64).map(NodeId::new))?.faults() as u64;
    in_folder("pbft-torture-", async |folder| {
        let settings = Settings {
            snapshot_mib: SNAPSHOT_MIB,
            checkpoint_every: CHECKPOINT_EVERY,
            auth,
            ..Settings::default()
        };
        let links = Some(Duration::ZERO);
        let form = Form { scheme, links, ..Form::plain(*replicas, settings) };
        let mut local = Local::new(folder, course.clients + 1, form).await?;
        local.processes.start_all().await?;
        let within = |deadline| Options { deadline, ..Options::default() };
        let mut clients = local.clients(&within(REQUEST_WITHIN))?;
        clients.pop(); // the one that reads
        let reader = local.clients(&within(READ_WITHIN))?.pop().context("there is one more")?;
        let running = Torture::of(local.processes);
        running.run(course, faulty, (clients, folder), async |_| Ok(reader)).await
    })
    .await
}
