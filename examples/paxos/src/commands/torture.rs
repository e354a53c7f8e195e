//! `paxos torture`: processes under load are killed, stopped and cut off at random, and members
//! change; then all is read back, and the members are compared.

mod changing;

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use console::say;
use convoke::NodeId;
use node_kit::program::local::Form;
use node_kit::program::torture::{Course, REQUEST_WITHIN, Torture, in_folder};
use paxos::client::Client;
use paxos::proto::Inspection;
use paxos::settings::{Role, Settings};
use tokio::time::{Instant, sleep};

use self::changing::Changing;
use super::Local;
use super::client::{READ_WITHIN, connect, several};
use super::inspect::latest;
use crate::args::TortureArgs;

/// Mebibytes of the log between snapshots, so that there are some.
const SNAPSHOT_MIB: u64 = 1;

/// Nodes that are no members at first, where members change.
const SPARES: usize = 2;

/// Time in which members have to be level once nothing is wrong any more.
const LEVEL_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: &TortureArgs) -> Result<ExitCode> {
    let drawn = || RandomState::new().hash_one("torture") >> 32;
    let seed = args.course.seed.unwrap_or_else(drawn);
    let Course { seconds, clients, .. } = args.course;
    let course = Course { seconds, clients, seed: Some(seed) };
    in_folder("paxos-torture-", async |folder| {
        let mut local = Local::new(folder, form(args)).await?;
        local.start_all().await?;
        let clients = several(local.cluster(), args.shape, clients, REQUEST_WITHIN).await?;
        let changing = match args.members {
            true => Some(Changing::start(&local, seed).await?),
            false => None,
        };
        let reader = async |local: &Local| {
            if let Some(changing) = changing {
                say(changing.end().await?)?;
            }
            let reader = connect(local.cluster(), None, READ_WITHIN).await?;
            say(level(local, &reader).await?)?;
            Ok(reader)
        };
        let minority = (*local.ids().end()).saturating_sub(1) / 2;
        Torture::of(local).run(&course, minority, (clients, folder), reader).await
    })
    .await
}

/// As many voters as were asked for; where members change, behind the first nodes, which are spare.
fn form(TortureArgs { nodes, members, .. }: &TortureArgs) -> Form<Settings> {
    let settings = Settings { snapshot_mib: SNAPSHOT_MIB, ..Settings::default() };
    let links = Some(Duration::ZERO);
    if !members {
        return Form { links, ..Form::plain(*nodes, settings) };
    }
    let role = |id| if id <= SPARES as u64 { Role::Spare } else { Role::Voter };
    Form { role, links, ..Form::plain(nodes + SPARES, settings) }
}

/// Waits until all members have applied the same log, and compares what they store.
async fn level(local: &Local, client: &Client) -> Result<String> {
    let end = Instant::now() + LEVEL_WITHIN;
    loop {
        let mut states = Vec::new();
        for node in local.cluster().nodes() {
            states.extend(client.inspect(node.id).await);
        }
        let members = latest(&states).unwrap_or_default();
        states.retain(|state| members.part(NodeId::new(state.node)).is_some());
        let applied = states.first().map_or(0, |state| state.applied);
        let is_level = states.iter().all(|state| state.applied == applied);
        if is_level && applied > 0 && states.len() == members.nodes.len() {
            let stored = |of: &Inspection| (of.keys, of.bytes, of.sessions);
            if states.iter().any(|other| stored(other) != stored(&states[0])) {
                bail!("members differ after the same log: {states:?}");
            }
            return Ok(format!("{} members are level at slot {applied}", states.len()));
        }
        if Instant::now() > end {
            let applied: Vec<_> = states.iter().map(|state| (state.node, state.applied)).collect();
            bail!("members are not level after {} s: {applied:?}", LEVEL_WITHIN.as_secs());
        }
        sleep(Duration::from_millis(50)).await;
    }
}
