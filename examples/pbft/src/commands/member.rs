//! `pbft member`: replicas join and leave while the others go on.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use console::say;
use convoke::quorum::{Configuration, QuorumExt as _};
use convoke::transport::Address;
use convoke::{Endpoint, NodeId};
use pbft::client::{Client, Options};
use pbft::core::{Change, Changed, Checker, Group, Member, Members};
use pbft::key_file::SecretKey;
use pbft::proto::{InspectRequest, PbftClient};
use tokio::time::{Instant, sleep};

use super::inspect::WITHIN;
use super::{Cluster, client};
use crate::args::{MemberAction, MemberArgs};

pub(crate) async fn run(args: &MemberArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let endpoint = client::endpoint(&cluster, &args.identity).await?;
    let id = administrator(&cluster, &args.action)?;
    let signer = args.key.as_deref().map(SecretKey::read).transpose()?.map(|key| key.signer());
    let deadline = Duration::from_secs(args.deadline);
    let options = Options {
        deadline,
        is_to_all: client::is_to_all(None, cluster.protocol())?,
        ..Options::default()
    };
    let mut client = match &args.action {
        // Who only looks signs nothing.
        MemberAction::List => client::reader(&endpoint, &cluster, options)?,
        _ => client::connect(&endpoint, &cluster, (id, signer), options)?,
    };
    if let MemberAction::Add { address, .. } = &args.action {
        for text in address {
            text.parse::<Address>().with_context(|| format!("--address {text}"))?;
        }
    }
    if client.learn().await == 0 {
        bail!(
            "no replica of the cluster file has told who the members are: `pbft status` says which \
             of them answer"
        );
    }
    let epoch = client.members().epoch;
    let change = match &args.action {
        MemberAction::Add { id, address, public_key, in_place_of } => {
            let member = Member { key: public_key.checker(), addresses: address.clone() };
            let remove = in_place_of.map(NodeId::try_from).transpose()?;
            Some(Change { epoch, remove, add: Some((NodeId::try_from(*id)?, member)) })
        }
        MemberAction::Remove { id } => {
            Some(Change { epoch, remove: Some(NodeId::try_from(*id)?), add: None })
        }
        MemberAction::List => None,
    };
    if let Some(change) = change {
        if !args.anyway {
            can_go_on(&endpoint, &cluster, client.members(), &change).await?;
        }
        let end = Instant::now() + deadline;
        order(&mut client, &change, end).await?;
    }
    print(client.members())?;
    Ok(ExitCode::SUCCESS)
}

/// The client that may change the members.
fn administrator(cluster: &Cluster, action: &MemberAction) -> Result<u64> {
    match (cluster.protocol().administrator, action) {
        (Some(id), _) => Ok(id),
        (None, MemberAction::List) => Ok(0),
        (None, _) => bail!(
            "the cluster file names no client that may change the members: `administrator` of \
             [protocol], the same at all replicas from the beginning on"
        ),
    }
}

/// Checks by the cluster file that a view of those who are members behind a change can begin, and
/// asks them how they are.
///
/// # Errors
/// None could begin, or those that answer are no quorum: nothing would be ordered any more, another
/// change neither.
async fn can_go_on(
    endpoint: &Endpoint,
    cluster: &Cluster,
    now: &Members,
    change: &Change,
) -> Result<()> {
    let mut nodes: BTreeSet<NodeId> = now.nodes.keys().copied().collect();
    if let Some(node) = change.remove {
        nodes.remove(&node);
    }
    if let Some((node, member)) = &change.add {
        nodes.insert(*node);
        if !member.addresses.is_empty() {
            endpoint.peer(*node, &member.addresses)?;
        }
    }
    let group = Group::new(nodes.iter().copied())?;
    if nodes.len() > now.nodes.len() {
        group.check_window(cluster.protocol().window()).context(
            "nothing was changed; all cluster files have to say so before, and all be restarted",
        )?;
    }
    let asked = PbftClient::new(endpoint).inspect(InspectRequest { with_state: false });
    let asked = asked.to_all(&Configuration::new(nodes.iter().copied())?).deadline(WITHIN);
    let mut answers = asked.quorum_call().open()?;
    while let Some((node, answer)) = answers.next().await {
        if answer.is_ok_and(|state| state.cluster == cluster.id()) {
            nodes.remove(&node);
        }
    }
    let (members, quorum) = (group.members().len(), group.quorum());
    if members - nodes.len() < quorum {
        let silent: Vec<_> = nodes.iter().map(NodeId::to_string).collect();
        bail!(
            "nothing was changed: of {members} members {quorum} have to be up, and there is no \
             answer of {}. Start them first; `--anyway` changes the members all the same",
            silent.join(", ")
        );
    }
    Ok(())
}

/// Has a change executed, and waits until it is in force.
async fn order(client: &mut Client, change: &Change, end: Instant) -> Result<()> {
    let members = match client.change(change).await? {
        Changed::Refused(why) => bail!("refused: {why}"),
        Changed::Taken(members, place) => {
            eprintln!("in force behind place {place}, as epoch {}", members.epoch);
            members
        }
    };
    loop {
        client.learn().await;
        if client.members().epoch >= members.epoch {
            return Ok(());
        }
        if Instant::now() > end {
            bail!(
                "the change is decided, and not in force yet: it is once a quorum of the members \
                 so far has come to its place; `pbft status` says how far they are"
            );
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn print(members: &Members) -> Result<()> {
    say(format_args!("epoch {}", members.epoch))?;
    for (node, member) in &members.nodes {
        let key = match &member.key {
            Checker::Ed25519(key) => key.iter().map(|byte| format!("{byte:02x}")).collect(),
            _ => "unsigned".to_owned(),
        };
        let addresses = member.addresses.join(" ");
        say(format_args!("{:>4}  {key}  {addresses}", node.get()))?;
    }
    Ok(())
}
