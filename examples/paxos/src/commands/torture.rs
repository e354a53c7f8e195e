//! `paxos torture`: processes under load are killed, stopped and cut off at random; then all is
//! read back.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use node_kit::program::local::Form;
use node_kit::program::torture::{REQUEST_WITHIN, Torture, in_folder};
use paxos::settings::Settings;

use super::Local;
use super::client::{READ_WITHIN, connect, several};
use crate::args::TortureArgs;

/// Mebibytes of the log between snapshots, so that there are some.
const SNAPSHOT_MIB: u64 = 1;

pub(crate) async fn run(TortureArgs { course, nodes, shape }: &TortureArgs) -> Result<ExitCode> {
    in_folder("paxos-torture-", async |folder| {
        let settings = Settings { snapshot_mib: SNAPSHOT_MIB, ..Settings::default() };
        let form = Form { links: Some(Duration::ZERO), ..Form::plain(*nodes, settings) };
        let mut local = Local::new(folder, form).await?;
        local.start_all().await?;
        let clients = several(local.cluster(), *shape, course.clients, REQUEST_WITHIN).await?;
        let reader = async |local: &Local| connect(local.cluster(), None, READ_WITHIN).await;
        let minority = (*nodes as u64).saturating_sub(1) / 2;
        Torture::of(local).run(course, minority, (clients, folder), reader).await
    })
    .await
}
