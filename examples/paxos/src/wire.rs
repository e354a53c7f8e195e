//! The core's messages and records as protobuf messages, and back.
//!
//! Bytes from elsewhere may be anything: those that are no message of the core are [`Malformed`].

mod answer;
mod members;
mod question;
mod record;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::core::{self, Slot};
use crate::proto;

/// The message lacks what it must have, or has what cannot be: another release wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the message has no {0}, or one that this release does not know")]
pub struct Malformed(&'static str);

/// A field that has to be there.
fn needed<T>(field: Option<T>, name: &'static str) -> Result<T, Malformed> {
    field.ok_or(Malformed(name))
}

impl From<core::Ballot> for proto::Ballot {
    fn from(ballot: core::Ballot) -> Self {
        Self { round: ballot.round, node: ballot.node }
    }
}

/// A ballot; none is the one before all.
pub(crate) fn ballot(ballot: Option<proto::Ballot>) -> core::Ballot {
    ballot.map_or(core::Ballot::NONE, |ballot| core::Ballot {
        round: ballot.round,
        node: ballot.node,
    })
}

impl From<&core::Value> for proto::Value {
    fn from(value: &core::Value) -> Self {
        let value = match value {
            core::Value::Noop => proto::value::Value::Noop(proto::Noop {}),
            core::Value::Formation(of) => proto::value::Value::Formation((&**of).into()),
            core::Value::Change(members) => proto::value::Value::Change(members.into()),
            core::Value::Commands(commands) => proto::value::Value::Commands(commands.clone()),
        };
        Self { value: Some(value) }
    }
}

impl TryFrom<proto::Value> for core::Value {
    type Error = Malformed;

    fn try_from(message: proto::Value) -> Result<Self, Malformed> {
        Ok(match needed(message.value, "value")? {
            proto::value::Value::Noop(_) => Self::Noop,
            proto::value::Value::Formation(of) => Self::Formation(Box::new(of.try_into()?)),
            proto::value::Value::Change(members) => Self::Change(members.try_into()?),
            proto::value::Value::Commands(commands) => Self::Commands(commands),
        })
    }
}

fn values(values: &[core::Value]) -> Vec<proto::Value> {
    values.iter().map(proto::Value::from).collect()
}

fn core_values(values: Vec<proto::Value>) -> Result<Vec<core::Value>, Malformed> {
    values.into_iter().map(core::Value::try_from).collect()
}

/// Values from a slot on, which has to be one.
fn run(first: u64, values: Vec<proto::Value>) -> Result<(Slot, Vec<core::Value>), Malformed> {
    if first == 0 || first.checked_add(values.len() as u64).is_none() {
        return Err(Malformed("slot"));
    }
    Ok((Slot(first), core_values(values)?))
}
