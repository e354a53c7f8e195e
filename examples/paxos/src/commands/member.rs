//! `paxos member`: nodes join and leave while the cluster works.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail};
use console::say;
use convoke::transport::DialError;
use convoke::{ConnectError, Endpoint, NodeId};
use paxos::client::{Client, InspectError};
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
    let mut operator = Operator::connect(&cluster, proof.as_ref(), deadline).await?;
    operator.client = operator.client.anyway(args.anyway);
    let members = match &args.action {
        MemberAction::Add { id, address, learner } => operator.join(*id, address, *learner).await?,
        MemberAction::Remove { id } => {
            let (node, now) = (NodeId::try_from(*id)?, operator.members().await?);
            if now.part(node).is_none() {
                bail!("nothing was changed: {node} is no member");
            }
            operator.leave(*id).await?
        }
        MemberAction::List => operator.members().await?,
    };
    say(format_args!("epoch {}", members.epoch))?;
    for (node, member) in &members.nodes {
        let part = match member.part {
            Part::Voter(_) => "votes",
            Part::Joining => "is to vote",
            Part::Learner => "learns",
        };
        let addresses = member.addresses.join(" ");
        say(format_args!("{:>4}  {part:<10}  {addresses}", node.get()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Somebody who changes the members.
pub(crate) struct Operator {
    endpoint: Endpoint,
    client: Client,
    /// Nodes that may know the members: of the cluster file, and those they have told of.
    nodes: BTreeSet<NodeId>,
    deadline: Duration,
}

impl Operator {
    /// An operator whose changes have to be in force within a time.
    pub(crate) async fn connect(
        cluster: &Cluster,
        proof: Option<&Proof>,
        deadline: Duration,
    ) -> Result<Self> {
        let endpoint = client::endpoint(cluster, proof).await?;
        let client = client::of_endpoint(&endpoint, cluster, deadline)?;
        let nodes = cluster.nodes().iter().map(|node| node.id).collect();
        Ok(Self { endpoint, client, nodes, deadline })
    }

    /// Lets a node join, and waits until it does what it is to do.
    pub(crate) async fn join(
        &mut self,
        id: u64,
        addresses: &[String],
        learns: bool,
    ) -> Result<Members> {
        let node = NodeId::try_from(id)?;
        self.meet(node, addresses).await?;
        self.hear_of(node, addresses)?;
        self.client.join(node, addresses.to_vec(), learns).await?;
        let life = self.client.inspect(node).await.ok().map(|state| state.life);
        let is_there = |members: &Members| {
            let member = members.nodes.get(&node);
            addresses.is_empty() || member.is_some_and(|member| member.addresses == addresses)
        };
        let is_done = |members: &Members| match members.part(node).filter(|_| is_there(members)) {
            Some(Part::Voter(counted)) => !learns && life.is_none_or(|life| life == counted),
            Some(Part::Learner) => learns,
            Some(Part::Joining) | None => false,
        };
        self.changed(is_done).await
    }

    /// Connects to a node that is to join, so that nobody else is let in by its name. It may as well
    /// start later; what its addresses are for, the members say.
    async fn meet(&self, node: NodeId, addresses: &[String]) -> Result<()> {
        if addresses.is_empty() {
            return met(node, self.endpoint.warm_up(node).await.map(|()| node));
        }
        // Also one that is connected: it is to be found there.
        for address in addresses {
            let found = self.endpoint.connect(address.as_str()).await;
            met(node, found.map(|peer| peer.node()))?;
        }
        Ok(())
    }

    /// Lets a node leave, and waits until nobody needs it any more.
    pub(crate) async fn leave(&mut self, id: u64) -> Result<Members> {
        let node = NodeId::try_from(id)?;
        self.client.leave(node).await?;
        self.changed(|members| members.part(node).is_none()).await
    }

    /// The members.
    async fn members(&mut self) -> Result<Members> {
        let late = format!(
            "no node says within {} s who the members are: is a majority of them up, and has it a \
             leader? `paxos status` and the logs say",
            self.deadline.as_secs()
        );
        self.settled(|_| true, late).await
    }

    /// The members behind a change that the log has.
    async fn changed(&mut self, is_done: impl Fn(&Members) -> bool) -> Result<Members> {
        let late = format!(
            "the log has the change, and it is not in force after {} s: is a majority of the new \
             members up, do they and who joins trust each other's keys, and has it caught up? \
             `paxos status` and the logs say",
            self.deadline.as_secs()
        );
        self.settled(is_done, late).await
    }

    /// Members that are in force and known to be so by a majority of them, once they are as wanted.
    /// The error is `late` if they are not in time, with the reason where no node answers.
    async fn settled(
        &mut self,
        is_wanted: impl Fn(&Members) -> bool,
        late: String,
    ) -> Result<Members> {
        let end = Instant::now() + self.deadline;
        loop {
            let (mut has_answer, mut silence) = (false, None);
            for node in self.nodes.clone() {
                let state = match self.client.inspect(node).await {
                    Ok(state) => state,
                    Err(InspectError::NoAnswer(error)) => {
                        silence = Some(error);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                has_answer = true;
                let is_settled = state.is_settled;
                let Some(members) = members_of(state) else { continue };
                for (node, member) in &members.nodes {
                    self.hear_of(*node, &member.addresses)?;
                }
                if is_settled && is_wanted(&members) {
                    return Ok(members);
                }
            }
            if Instant::now() > end {
                return Err(match silence.filter(|_| !has_answer) {
                    Some(error) => Error::new(error).context(late),
                    None => Error::msg(late),
                });
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// There is a node that the cluster file may not have.
    fn hear_of(&mut self, node: NodeId, addresses: &[String]) -> Result<()> {
        if !addresses.is_empty() && self.nodes.insert(node) {
            self.endpoint.peer(node, addresses)?;
        }
        Ok(())
    }
}

/// # Errors
/// Somebody else answers in place of who is to join.
fn met(node: NodeId, found: Result<NodeId, ConnectError>) -> Result<()> {
    match found {
        Ok(found) if found == node => Ok(()),
        Ok(other) => bail!("nothing was changed: {other} answers there, not {node}"),
        Err(ConnectError::Dial(DialError::NoAddress { .. } | DialError::NoTransport { .. })) => {
            Ok(())
        }
        Err(ConnectError::Dial(
            error @ (DialError::Unreachable { .. } | DialError::Timeout { .. }),
        )) => {
            eprintln!("{node} does not answer yet, and learns once it does: {error}");
            Ok(())
        }
        Err(error) => Err(error).context("nothing was changed: it is not who is to join"),
    }
}

fn members_of(state: Inspection) -> Option<Members> {
    Some(Membership::try_from(state.membership?).ok()?.now)
}
