//! Questions between nodes.

use super::{Malformed, ballot, needed, run, values};
use crate::core::{Ask, Slot};
use crate::proto::{Accept, Canvass, CatchUp, Prepare, Question, TakeOver, question};

impl Question {
    /// A question within a cluster, of a node of this configuration.
    pub fn new(cluster: u64, epoch: u64, ask: &Ask) -> Self {
        Self { cluster, epoch, ask: Some(ask.into()) }
    }
}

impl From<&Ask> for question::Ask {
    fn from(ask: &Ask) -> Self {
        match ask {
            Ask::Canvass { ballot } => Self::Canvass(Canvass { ballot: Some((*ballot).into()) }),
            Ask::Prepare { ballot, from } => {
                Self::Prepare(Prepare { ballot: Some((*ballot).into()), from: from.0 })
            }
            Ask::Accept { ballot, first, values: of, chosen, beat } => Self::Accept(Accept {
                ballot: Some((*ballot).into()),
                first: first.0,
                values: values(of),
                chosen: chosen.0,
                beat: *beat,
            }),
            Ask::CatchUp { from } => Self::CatchUp(CatchUp { from: from.0 }),
            Ask::TakeOver { ballot } => Self::TakeOver(TakeOver { ballot: Some((*ballot).into()) }),
        }
    }
}

impl TryFrom<Question> for Ask {
    type Error = Malformed;

    fn try_from(question: Question) -> Result<Self, Malformed> {
        Ok(match needed(question.ask, "question")? {
            question::Ask::Canvass(canvass) => Self::Canvass { ballot: ballot(canvass.ballot) },
            question::Ask::Prepare(Prepare { ballot: of, from }) => {
                Self::Prepare { ballot: ballot(of), from: Slot(from) }
            }
            question::Ask::Accept(accept) => {
                let (first, values) = run(accept.first, accept.values)?;
                Self::Accept {
                    ballot: ballot(accept.ballot),
                    first,
                    values,
                    chosen: Slot(accept.chosen),
                    beat: accept.beat,
                }
            }
            question::Ask::CatchUp(CatchUp { from }) => Self::CatchUp { from: Slot(from) },
            question::Ask::TakeOver(take) => Self::TakeOver { ballot: ballot(take.ballot) },
        })
    }
}
