//! `paxos demo`: nodes under load are killed and started again, or join and leave; then all is read
//! back.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use console::{about, say};
use node_kit::program::load::Load;
use node_kit::program::local::Form;
use paxos::settings::{Role, Settings};
use tokio::time::sleep;

use super::Local;
use super::client::{LEADER_WITHIN, READ_WITHIN, connect, leader, several};
use super::member::Operator;
use crate::args::DemoArgs;

/// Nodes of the demonstration.
const NODES: u64 = 3;

/// Time until the nodes have a leader, and until all has been read back.
const AROUND: Duration = Duration::from_secs(4);

/// Time for a request, after which its outcome may be unknown.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: &DemoArgs) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("paxos-demo-").tempdir()?;
    if !args.keep {
        return play(args, folder.path()).await;
    }
    let folder = folder.keep();
    say(format_args!("ledgers and logs are in {}", folder.display()))?;
    play(args, &folder).await
}

async fn play(args: &DemoArgs, folder: &Path) -> Result<ExitCode> {
    let pause = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    let (course, pauses) = match args.members {
        true => ("two more join, and two leave, the leader first", 5),
        false => ("the leader is killed and starts again, then all are and do", 4),
    };
    say(format_args!(
        "{NODES} nodes under load: {course}. Then all is read back. It takes {}.",
        about(pause.saturating_mul(pauses).saturating_add(AROUND))
    ))?;
    let mut local = Local::new(folder, form(args)).await?;
    for id in 1..=NODES {
        local.start(id).await?;
    }
    let leader = leader(&local).await?;
    say(format_args!("{NODES} processes, {} clients; node {leader} leads", args.clients))?;
    let load =
        Load::start(several(local.cluster(), args.shape, args.clients, REQUEST_WITHIN).await?);
    sleep(pause).await;
    let gap = match args.members {
        true => change_members(&mut local, &load, leader, pause).await?,
        false => kill(&mut local, &load, leader, pause).await?,
    };
    let loaded = load.end().await?;
    let mut reader = connect(local.cluster(), None, READ_WITHIN).await?;
    let verdict = loaded.judge(&mut reader).await?;
    local.stop().await?;
    if !verdict.is_good() {
        say(verdict)?;
        return Ok(ExitCode::FAILURE);
    }
    let ms = gap.as_millis();
    say(format_args!("{verdict}; the longest time without an answer was {ms} ms"))?;
    Ok(ExitCode::SUCCESS)
}

/// Nodes from 1 on; where members change, two more that are spare.
fn form(args: &DemoArgs) -> Form<Settings> {
    let nodes = if args.members { NODES + 2 } else { NODES };
    let role = |id| if id > NODES { Role::Spare } else { Role::Voter };
    let nodes = usize::try_from(nodes).unwrap_or(usize::MAX);
    Form { role, ..Form::plain(nodes, Settings::default()) }
}

/// Three become five, one after the other, and the first two leave. The longest pause is of all of
/// it.
async fn change_members(
    local: &mut Local,
    load: &Load,
    leader: u64,
    pause: Duration,
) -> Result<Duration> {
    let mut operator = Operator::connect(local.cluster(), None, LEADER_WITHIN).await?;
    load.begin_gap();
    for id in [NODES + 1, NODES + 2] {
        local.start(id).await?;
        let members = operator.join(id, &[], false).await?;
        load.tell(format_args!("node {id} has joined: {} vote", members.voters().count()))?;
        sleep(pause).await;
    }
    let other = 1 + leader % NODES;
    for id in [leader, other] {
        let members = operator.leave(id).await?;
        load.tell(format_args!("node {id} has left: {} vote", members.voters().count()))?;
        local.kill(id).await?;
        load.progress().await?;
        sleep(pause).await;
    }
    Ok(load.end_gap())
}

/// The leader is killed, and then all are. The longest pause is that without the leader.
async fn kill(local: &mut Local, load: &Load, leader: u64, pause: Duration) -> Result<Duration> {
    load.tell("kill -9 of the leader")?;
    load.begin_gap();
    local.kill(leader).await?;
    load.progress().await?;
    sleep(pause).await;
    load.tell("it starts again")?;
    local.start(leader).await?;
    sleep(pause).await;
    let gap = load.end_gap();

    load.tell("kill -9 of all")?;
    local.kill_all().await?;
    local.start_all().await?;
    load.tell("all have started again")?;
    load.progress().await?;
    sleep(pause).await;
    Ok(gap)
}
