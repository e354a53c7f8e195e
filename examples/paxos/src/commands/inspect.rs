//! `paxos status`: what each node is doing.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use console::say;
use paxos::core::{Members, Membership};
use paxos::proto::{Inspection, member};

use super::client::{Proof, endpoint, of_endpoint};
use crate::args::StatusArgs;

/// Tells of the nodes of the file, and of the members that have joined since. Code 1 when a member
/// does not answer; one that has left need not.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let proof = Proof::of(&args.keys)?;
    let endpoint = endpoint(&cluster, proof.as_ref()).await?;
    let client = of_endpoint(&endpoint, &cluster, Duration::from_secs(2))?;
    let mut found = BTreeMap::new();
    for node in cluster.nodes() {
        found.insert(node.id, client.inspect(node.id).await);
    }
    let members = latest(found.values().flatten());
    for (node, member) in members.iter().flat_map(|members| &members.nodes) {
        if found.contains_key(node) {
            continue;
        }
        if !member.addresses.is_empty() {
            endpoint.peer(*node, &member.addresses)?;
        }
        found.insert(*node, client.inspect(*node).await);
    }
    // Where nobody answers, all that the file has may be members.
    let is_member = |node| members.as_ref().is_none_or(|members| members.part(node).is_some());
    say("node  part       standing    leader  promised     applied    keys  waiting  sync us")?;
    let mut all_answer = true;
    for (node, state) in &found {
        let id = node.get();
        match state {
            Ok(state) => say(format_args!("{id:>4}  {}", line(state)))?,
            Err(error) if is_member(*node) => {
                all_answer = false;
                say(format_args!("{id:>4}  {error}"))?;
            }
            Err(error) => say(format_args!("{id:>4}  no member: {error}"))?,
        }
    }
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(state: &Inspection) -> String {
    let promised = state.promised.unwrap_or_default();
    let promised = format!("{}.{}", promised.round, promised.node);
    format!(
        "{:<9}  {:<10}  {:>6}  {promised:>8}  {:>10}  {:>6}  {:>7}  {:>7}",
        part(state),
        state.standing,
        state.leader,
        state.applied,
        state.keys,
        state.waiting,
        state.sync_us / state.syncs.max(1)
    )
}

/// The latest members that any of these knows.
pub(super) fn latest<'a>(states: impl IntoIterator<Item = &'a Inspection>) -> Option<Members> {
    let known = states.into_iter().filter_map(|state| state.membership.clone());
    let now = known.filter_map(|known| Some(Membership::try_from(known).ok()?.now));
    now.max_by_key(|members| members.epoch)
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
