//! Records of a ledger.

use super::{Malformed, ballot, needed, run, values};
use crate::core::{Record, Slot};
use crate::proto::{self, record};

impl From<&Record> for proto::Record {
    fn from(record: &Record) -> Self {
        let record = match record {
            Record::Life(life) => record::Record::Life(*life),
            Record::Promised(ballot) => record::Record::Promised((*ballot).into()),
            Record::Accepted { ballot, first, values: of } => {
                record::Record::Accepted(proto::AcceptedRecord {
                    ballot: Some((*ballot).into()),
                    first: first.0,
                    values: values(of),
                })
            }
            Record::Chosen { ballot, upto } => record::Record::Chosen(proto::ChosenRecord {
                ballot: Some((*ballot).into()),
                upto: upto.0,
            }),
            Record::Learned { first, values: of } => {
                record::Record::Learned(proto::LearnedRecord { first: first.0, values: values(of) })
            }
            Record::Trimmed { upto, membership } => record::Record::Trimmed(proto::TrimmedRecord {
                upto: upto.0,
                membership: Some(membership.into()),
            }),
        };
        Self { record: Some(record) }
    }
}

impl TryFrom<proto::Record> for Record {
    type Error = Malformed;

    fn try_from(message: proto::Record) -> Result<Self, Malformed> {
        Ok(match needed(message.record, "record")? {
            record::Record::Life(life) => Self::Life(life),
            record::Record::Promised(of) => Self::Promised(ballot(Some(of))),
            record::Record::Accepted(of) => {
                let (first, values) = run(of.first, of.values)?;
                Self::Accepted { ballot: ballot(of.ballot), first, values }
            }
            record::Record::Chosen(of) => {
                Self::Chosen { ballot: ballot(of.ballot), upto: Slot(of.upto) }
            }
            record::Record::Learned(of) => {
                let (first, values) = run(of.first, of.values)?;
                Self::Learned { first, values }
            }
            record::Record::Trimmed(of) => {
                let membership = needed(of.membership, "members")?.try_into()?;
                Self::Trimmed { upto: Slot(of.upto), membership }
            }
        })
    }
}
