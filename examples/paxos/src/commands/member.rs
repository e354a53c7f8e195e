//! `paxos member`: nodes join and leave while the cluster works.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use convoke::NodeId;
use paxos::client::Client;
use paxos::core::{Members, Membership, Part};
use paxos::proto::Inspection;
use tokio::time::{Instant, sleep};

use super::Cluster;
use super::client::{self, Proof};
use crate::args::{MemberAction, MemberArgs};

pub(crate) async fn run(args: &MemberArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let proof = Proof::of(&args.keys)?;
    let deadline = Duration::from_secs(args.deadline);
    let endpoint = client::endpoint(&cluster, proof.as_ref()).await?;
    let mut client = client::of_endpoint(&endpoint, &cluster, deadline)?;
    let members = match &args.action {
        MemberAction::Add { id, address, learner } => {
            if !address.is_empty() {
                endpoint.peer(NodeId::try_from(*id)?, address)?;
            }
            join(&mut client, &cluster, *id, address, *learner, deadline).await?
        }
        MemberAction::Remove { id } => leave(&mut client, &cluster, *id, deadline).await?,
        MemberAction::List => settled(&client, &cluster, |_| true, deadline).await?,
    };
    println!("epoch {}", members.epoch);
    for (node, member) in &members.nodes {
        let part = match member.part {
            Part::Voter(_) => "votes",
            Part::Joining => "is to vote",
            Part::Learner => "learns",
        };
        println!("{:>4}  {part:<10}  {}", node.get(), member.addresses.join(" "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets a node join, and waits until it does what it is to do.
pub(crate) async fn join(
    client: &mut Client,
    cluster: &Cluster,
    id: u64,
    addresses: &[String],
    learns: bool,
    deadline: Duration,
) -> Result<Members> {
    let node = NodeId::try_from(id)?;
    client.join(node, addresses.to_vec(), learns).await?;
    let life = client.inspect(node).await.ok().map(|state| state.life);
    let is_done = |members: &Members| match members.part(node) {
        Some(Part::Voter(counted)) => !learns && life.is_none_or(|life| life == counted),
        Some(Part::Learner) => learns,
        Some(Part::Joining) | None => false,
    };
    settled(client, cluster, is_done, deadline).await
}

/// Lets a node leave, and waits until nobody needs it any more.
pub(crate) async fn leave(
    client: &mut Client,
    cluster: &Cluster,
    id: u64,
    deadline: Duration,
) -> Result<Members> {
    let node = NodeId::try_from(id)?;
    client.leave(node).await?;
    settled(client, cluster, |members| members.part(node).is_none(), deadline).await
}

/// Members that are in force and known to be so by a majority of them, once they are as wanted.
async fn settled(
    client: &Client,
    cluster: &Cluster,
    is_wanted: impl Fn(&Members) -> bool,
    deadline: Duration,
) -> Result<Members> {
    let end = Instant::now() + deadline;
    loop {
        for node in cluster.nodes() {
            let state = client.inspect(node.id).await;
            if let Some(members) = state.ok().and_then(settled_of)
                && is_wanted(&members)
            {
                return Ok(members);
            }
        }
        if Instant::now() > end {
            bail!(
                "the log has the change, and it is not in force after {} s: is a majority of the \
                 new members up, and has who joins caught up? `paxos status` says",
                deadline.as_secs()
            );
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn settled_of(state: Inspection) -> Option<Members> {
    let membership = state.membership.filter(|_| state.is_settled)?;
    Some(Membership::try_from(membership).ok()?.now)
}
