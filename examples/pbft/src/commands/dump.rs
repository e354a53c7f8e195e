//! `pbft dump-ledger`: the records of a ledger, for people.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use bytes::Bytes;
use node_kit::program::ledger;
use pbft::core::{Record, Vote};
use pbft::wire;

/// Code 1 when something is wrong with it.
pub(crate) async fn run(folder: &Path) -> Result<ExitCode> {
    let is_whole = ledger::dump(folder, |bytes| record(&bytes)).await?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn record(bytes: &Bytes) -> String {
    let place = |vote: &Vote| {
        let Vote { view, sequence, digest, .. } = vote;
        format!("batch {digest:?} in place {sequence} of view {view}")
    };
    match wire::decode(bytes.clone()) {
        Err(error) => format!("no record of this program: {error}"),
        Ok(Record::Clients(clients)) => format!("begun with {} clients", clients.len()),
        Ok(Record::HandedOver(handover)) => format!(
            "epoch {} begins behind place {}, with {} members",
            handover.epoch(),
            handover.stable.checkpoint.sequence,
            handover.members.nodes.len()
        ),
        Ok(Record::Snapshot(sequence, _, state)) => {
            format!("state behind place {sequence}, {} bytes", state.len())
        }
        Ok(Record::Stable(stable)) => {
            let members: Vec<_> = stable.signatures.keys().collect();
            format!("stable up to place {}, by {members:?}", stable.checkpoint.sequence)
        }
        Ok(Record::Left(view)) => format!("all views before {view} are left"),
        Ok(Record::Entered(signed)) => {
            format!("view {} begins, by {}", signed.body.view, signed.by)
        }
        Ok(Record::Batch(batch)) => {
            format!("batch {:?} of {} requests", batch.digest(), batch.requests().len())
        }
        Ok(Record::Accepted(vote, None)) => format!("proposed: {}", place(&vote)),
        Ok(Record::Accepted(vote, Some(_))) => format!("accepted: {}", place(&vote)),
        Ok(Record::Prepared(of)) => {
            let members: Vec<_> = of.signatures.keys().collect();
            let (digest, sequence, view) = (of.digest, of.sequence, of.view);
            format!("prepared: batch {digest:?} in place {sequence} of view {view}, by {members:?}")
        }
        Ok(Record::Lost(what)) => format!("its own signature is under {what}, unknown here"),
        Ok(Record::Committed(vote)) => format!("committed: {}", place(&vote)),
    }
}
