//! Answers between nodes.

use super::{Malformed, ballot, needed, run, values};
use crate::core::{self, Answer, Slot};
use crate::proto::{self, answer};

impl From<&Answer> for proto::Answer {
    fn from(answer: &Answer) -> Self {
        Self { answer: Some(answer.into()) }
    }
}

impl From<&Answer> for answer::Answer {
    fn from(answer: &Answer) -> Self {
        match answer {
            Answer::Canvassed { ballot, supports, promised, chosen } => {
                Self::Canvassed(proto::Canvassed {
                    ballot: Some((*ballot).into()),
                    supports: *supports,
                    promised: Some((*promised).into()),
                    chosen: chosen.0,
                })
            }
            Answer::Promise { ballot, life, chosen, accepted, more } => {
                Self::Promise(proto::Promise {
                    ballot: Some((*ballot).into()),
                    life: *life,
                    chosen: chosen.0,
                    accepted: accepted.iter().map(proto::AcceptedSlot::from).collect(),
                    more: more.map(|slot| slot.0),
                })
            }
            Answer::Accepted { ballot, life, first, count, accepted, chosen, beat } => {
                Self::Accepted(proto::Accepted {
                    ballot: Some((*ballot).into()),
                    life: *life,
                    first: first.0,
                    count: *count,
                    accepted: accepted.0,
                    chosen: chosen.0,
                    beat: *beat,
                })
            }
            Answer::Refused { ballot, promised } => Self::Refused(proto::Refused {
                ballot: Some((*ballot).into()),
                promised: Some((*promised).into()),
            }),
            Answer::Chosen { first, values: of, chosen } => {
                Self::Chosen(proto::Chosen { first: first.0, values: values(of), chosen: chosen.0 })
            }
            Answer::Trimmed { trimmed } => Self::Trimmed(proto::Trimmed { trimmed: trimmed.0 }),
            Answer::TakingOver => Self::TakingOver(proto::TakingOver {}),
            Answer::OtherEpoch { epoch, is_member, chosen } => {
                Self::OtherEpoch(proto::OtherEpoch {
                    epoch: *epoch,
                    is_member: *is_member,
                    chosen: chosen.0,
                })
            }
        }
    }
}

impl From<&core::Accepted> for proto::AcceptedSlot {
    fn from(accepted: &core::Accepted) -> Self {
        Self {
            slot: accepted.slot.0,
            ballot: Some(accepted.ballot.into()),
            value: Some((&accepted.value).into()),
        }
    }
}

impl TryFrom<proto::AcceptedSlot> for core::Accepted {
    type Error = Malformed;

    fn try_from(message: proto::AcceptedSlot) -> Result<Self, Malformed> {
        Ok(Self {
            slot: Slot(message.slot),
            ballot: ballot(message.ballot),
            value: needed(message.value, "value")?.try_into()?,
        })
    }
}

impl TryFrom<proto::Answer> for Answer {
    type Error = Malformed;

    fn try_from(message: proto::Answer) -> Result<Self, Malformed> {
        Ok(match needed(message.answer, "answer")? {
            answer::Answer::Canvassed(of) => Self::Canvassed {
                ballot: ballot(of.ballot),
                supports: of.supports,
                promised: ballot(of.promised),
                chosen: Slot(of.chosen),
            },
            answer::Answer::Promise(of) => {
                let accepted = of.accepted.into_iter().map(core::Accepted::try_from);
                Self::Promise {
                    ballot: ballot(of.ballot),
                    life: of.life,
                    chosen: Slot(of.chosen),
                    accepted: accepted.collect::<Result<_, _>>()?,
                    more: of.more.map(Slot),
                }
            }
            answer::Answer::Accepted(of) => Self::Accepted {
                ballot: ballot(of.ballot),
                life: of.life,
                first: Slot(of.first),
                count: of.count,
                accepted: Slot(of.accepted),
                chosen: Slot(of.chosen),
                beat: of.beat,
            },
            answer::Answer::Refused(of) => {
                Self::Refused { ballot: ballot(of.ballot), promised: ballot(of.promised) }
            }
            answer::Answer::Chosen(of) => {
                let (first, values) = run(of.first, of.values)?;
                Self::Chosen { first, values, chosen: Slot(of.chosen) }
            }
            answer::Answer::Trimmed(of) => Self::Trimmed { trimmed: Slot(of.trimmed) },
            answer::Answer::TakingOver(_) => Self::TakingOver,
            answer::Answer::OtherEpoch(of) => Self::OtherEpoch {
                epoch: of.epoch,
                is_member: of.is_member,
                chosen: Slot(of.chosen),
            },
        })
    }
}
