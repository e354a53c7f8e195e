//! `paxos status`: what each node is doing.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::client::{Proof, connect};
use crate::args::StatusArgs;

/// Code 1 when a node does not answer.
pub(crate) async fn run(args: &StatusArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let proof = Proof::of(&args.keys)?;
    let client = connect(&cluster, proof.as_ref(), Duration::from_secs(2)).await?;
    println!("node  standing    leader  promised     applied    keys  waiting  sync us");
    let mut all_answer = true;
    for node in cluster.nodes() {
        let id = node.id.get();
        match client.inspect(node.id).await {
            Ok(state) => {
                let promised = state.promised.unwrap_or_default();
                let promised = format!("{}.{}", promised.round, promised.node);
                let sync_us = state.sync_us / state.syncs.max(1);
                println!(
                    "{id:>4}  {:<10}  {:>6}  {promised:>8}  {:>10}  {:>6}  {:>7}  {sync_us:>7}",
                    state.standing, state.leader, state.applied, state.keys, state.waiting
                );
            }
            Err(error) => {
                all_answer = false;
                println!("{id:>4}  {error}");
            }
        }
    }
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
