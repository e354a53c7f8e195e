//! `paxos demo`: nodes under load are killed and started again; then all is read back.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use node_kit::program::load::Load;
use node_kit::program::local::Form;
use paxos::settings::Settings;
use tokio::time::{Instant, sleep};

use super::Local;
use super::client::{READ_WITHIN, connect, several};
use crate::args::DemoArgs;

/// Nodes of the demonstration.
const NODES: usize = 3;

/// Time in which a cluster has to have a leader, on a machine with much else to do.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

/// Time for a request, after which its outcome may be unknown.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: &DemoArgs) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("paxos-demo-").tempdir()?;
    if !args.keep {
        return play(args, folder.path()).await;
    }
    let folder = folder.keep();
    println!("ledgers and logs are in {}", folder.display());
    play(args, &folder).await
}

async fn play(args: &DemoArgs, folder: &Path) -> Result<ExitCode> {
    let pause = Duration::from_secs_f64(args.seconds);
    let mut local = Local::new(folder, Form::plain(NODES, Settings::default())).await?;
    local.start_all().await?;
    let leader = leader(&local).await?;
    println!("{NODES} processes, {} clients; node {leader} leads", args.clients);
    let load = Load::start(several(local.cluster(), args.clients, REQUEST_WITHIN).await?);
    sleep(pause).await;

    load.tell("kill -9 of the leader");
    load.begin_gap();
    local.kill(leader).await?;
    load.progress().await?;
    sleep(pause).await;
    load.tell("it starts again");
    local.start(leader).await?;
    sleep(pause).await;
    let gap = load.end_gap();

    load.tell("kill -9 of all");
    local.kill_all().await?;
    local.start_all().await?;
    load.tell("all have started again");
    load.progress().await?;
    sleep(pause).await;
    let loaded = load.end().await?;
    let mut reader = connect(local.cluster(), None, READ_WITHIN).await?;
    let verdict = loaded.judge(&mut reader).await?;
    local.stop().await?;
    if !verdict.is_good() {
        println!("{verdict}");
        return Ok(ExitCode::FAILURE);
    }
    println!("{verdict}, gap {} ms", gap.as_millis());
    Ok(ExitCode::SUCCESS)
}

/// The node that leads, once there is one.
async fn leader(local: &Local) -> Result<u64> {
    let client = connect(local.cluster(), None, Duration::from_secs(1)).await?;
    let end = Instant::now() + LEADER_WITHIN;
    while Instant::now() < end {
        for node in local.cluster().nodes() {
            let state = client.inspect(node.id).await;
            if let Ok(state) = state
                && state.standing == "leading"
            {
                return Ok(state.node);
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    bail!("no node leads after {} s", LEADER_WITHIN.as_secs())
}
