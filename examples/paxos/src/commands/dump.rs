//! `paxos dump-ledger`: the records of a ledger, for people.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use bytes::Bytes;
use node_kit::program::ledger;
use paxos::core::{Record, Value};
use paxos::proto;
use prost::Message as _;

/// Code 1 when something is wrong with it.
pub(crate) async fn run(folder: &Path) -> Result<ExitCode> {
    let is_whole = ledger::dump(folder, record).await?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn record(bytes: Bytes) -> String {
    let record = proto::Record::decode(bytes).ok().and_then(|record| Record::try_from(record).ok());
    match record {
        None => "no record of this program".to_owned(),
        Some(Record::Accepted { ballot, first, values }) => {
            format!("accepted in {ballot} from slot {first} on: {}", list(&values))
        }
        Some(Record::Learned { first, values }) => {
            format!("learned from slot {first} on: {}", list(&values))
        }
        Some(Record::Chosen { ballot, upto }) => format!("chosen up to slot {upto}, of {ballot}"),
        Some(Record::Promised(ballot)) => format!("promised {ballot}"),
        Some(Record::Life(life)) => format!("this ledger is {life:x}"),
        Some(Record::Trimmed { upto, .. }) => format!("all up to slot {upto} is in the snapshot"),
    }
}

fn list(values: &[Value]) -> String {
    let name = |value: &Value| match value {
        Value::Noop => "nothing".to_owned(),
        Value::Formation(formed) => format!("formation of {}", formed.now.nodes.len()),
        Value::Change(members) => {
            format!("change to epoch {}, of {}", members.epoch, members.nodes.len())
        }
        Value::Commands(batch) => match proto::Batch::decode(batch.clone()) {
            Ok(batch) => format!("{} requests", batch.entries.len()),
            Err(_) => "no batch".to_owned(),
        },
    };
    values.iter().map(name).collect::<Vec<_>>().join(", ")
}
