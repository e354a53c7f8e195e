//! `paxos status`: what each node is doing.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use console::say;
use paxos::proto::{Inspection, member};

use super::client::{Proof, connect};
use crate::args::StatusArgs;

/// Code 1 when a node does not answer.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let proof = Proof::of(&args.keys)?;
    let client = connect(&cluster, proof.as_ref(), Duration::from_secs(2)).await?;
    say("node  part       standing    leader  promised     applied    keys  waiting  sync us")?;
    let mut all_answer = true;
    for node in cluster.nodes() {
        let id = node.id.get();
        match client.inspect(node.id).await {
            Ok(state) => {
                let promised = state.promised.unwrap_or_default();
                let promised = format!("{}.{}", promised.round, promised.node);
                let sync_us = state.sync_us / state.syncs.max(1);
                let part = part(&state);
                say(format_args!(
                    "{id:>4}  {part:<9}  {:<10}  {:>6}  {promised:>8}  {:>10}  {:>6}  {:>7}  {sync_us:>7}",
                    state.standing, state.leader, state.applied, state.keys, state.waiting
                ))?;
            }
            Err(error) => {
                all_answer = false;
                say(format_args!("{id:>4}  {error}"))?;
            }
        }
    }
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The part of a node by its own word.
fn part(state: &Inspection) -> &'static str {
    let members = state.membership.as_ref().and_then(|membership| membership.now.as_ref());
    let Some(members) = members else { return "unknown" };
    let own = members.members.iter().find(|member| member.node == state.node);
    match own.and_then(|member| member.part.as_ref()) {
        Some(member::Part::Voter(life)) if *life == state.life => "voter",
        Some(member::Part::Voter(_)) => "uncounted",
        Some(member::Part::Joining(_)) => "joining",
        Some(member::Part::Learner(_)) => "learner",
        None => "none",
    }
}
