//! `pbft status`: what each node is doing.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use console::say;
use convoke::CallError;
use pbft::proto::{InspectRequest, Inspection, PbftClient};

use crate::args::StatusArgs;

/// Time for the answer of one node.
pub(super) const WITHIN: Duration = Duration::from_secs(5);

/// State of a node, as it says itself.
pub(crate) async fn inspect(
    client: &PbftClient,
    node: convoke::NodeId,
    with_state: bool,
    within: Duration,
) -> Result<Inspection, CallError> {
    client.inspect(InspectRequest { with_state }).to(node).deadline(within).await
}

/// Code 1 when a node does not answer, or is of another cluster.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let endpoint = super::client::endpoint(&cluster, &args.identity).await?;
    let client = PbftClient::new(&endpoint);
    say("node  epoch  view           executed    stable    keys  waiting  sync us  refused")?;
    let mut all_answer = true;
    for node in cluster.nodes() {
        let id = node.id.get();
        match inspect(&client, node.id, false, WITHIN).await {
            Ok(state) if state.cluster == cluster.id() => {
                say(format_args!("{id:>4}  {}", line(&state)))?;
            }
            Ok(Inspection { cluster: found, .. }) => {
                all_answer = false;
                let wanted = cluster.id();
                say(format_args!("{id:>4}  it is of cluster {found}, and {wanted} was meant"))?;
            }
            Err(error) => {
                all_answer = false;
                say(format_args!("{id:>4}  {error}"))?;
            }
        }
    }
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(state: &Inspection) -> String {
    let part = match state {
        Inspection { takes_part: false, .. } => "outside",
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
