//! `pbft status`: what each node is doing.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use console::say;
use convoke::{CallError, NodeId};
use pbft::client::Options;
use pbft::proto::{InspectRequest, Inspection, PbftClient};

use crate::args::StatusArgs;

/// Time for the answer of one node.
pub(super) const WITHIN: Duration = Duration::from_secs(5);

/// State of a node, as it says itself.
pub(crate) async fn inspect(
    client: &PbftClient,
    node: NodeId,
    with_state: bool,
    within: Duration,
) -> Result<Inspection, CallError> {
    client.inspect(InspectRequest { with_state }).to(node).deadline(within).await
}

/// Tells of the nodes of the file, and of the members that have joined since. Code 1 when a member
/// does not answer, or is of another cluster; one that has left need not.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let endpoint = super::client::endpoint(&cluster, &args.identity).await?;
    let mut reader = super::client::reader(&endpoint, &cluster, Options::default())?;
    reader.learn().await; // where nobody answers it is those of the file
    let members: BTreeSet<NodeId> = reader.members().nodes.keys().copied().collect();
    let nodes: BTreeSet<NodeId> = cluster.nodes().iter().map(|node| node.id).collect();
    let client = PbftClient::new(&endpoint);
    say("node  epoch  view           executed    stable    keys  waiting  sync us  refused")?;
    let mut all_answer = true;
    for node in nodes.union(&members) {
        let id = node.get();
        let words = match inspect(&client, *node, false, WITHIN).await {
            Ok(state) if state.cluster == cluster.id() => {
                say(format_args!("{id:>4}  {}", line(&state)))?;
                continue;
            }
            Ok(Inspection { cluster: found, .. }) => {
                format!("it is of cluster {found}, and {} was meant", cluster.id())
            }
            Err(error) => error.to_string(),
        };
        let is_member = members.contains(node);
        all_answer &= !is_member;
        let part = if is_member { "" } else { "no member: " };
        say(format_args!("{id:>4}  {part}{words}"))?;
    }
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(state: &Inspection) -> String {
    let part = match state {
        Inspection { takes_part: false, .. } => "outside",
        Inspection { is_hearing: true, .. } => "hearing",
        Inspection { is_fetching: true, .. } => "fetching",
        Inspection { has_begun: false, .. } => "changing",
        Inspection { primary, node, .. } if primary == node => "primary",
        _ => "backup",
    };
    let refused: Vec<String> =
        state.refused.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    format!(
        "{:>5}  {:>4} {part:<8}  {:>8}  {:>8}  {:>6}  {:>7}  {:>7}  {}",
        state.epoch,
        state.view,
        state.executed,
        state.stable,
        state.keys,
        state.requests,
        state.sync_us / state.syncs.max(1),
        refused.join(", ")
    )
}
