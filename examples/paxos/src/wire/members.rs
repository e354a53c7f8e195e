//! Members, and their changes.

use convoke::NodeId;

use super::{Malformed, needed};
use crate::core::{self, Part, Slot};
use crate::proto::{self, member};

impl From<&core::Membership> for proto::Membership {
    fn from(membership: &core::Membership) -> Self {
        let next = membership.next.as_ref();
        Self {
            window: membership.window,
            now: Some((&membership.now).into()),
            since: membership.since.0,
            next: next.map(|(_, members)| members.into()),
            next_since: next.map_or(0, |(since, _)| since.0),
        }
    }
}

impl TryFrom<proto::Membership> for core::Membership {
    type Error = Malformed;

    fn try_from(message: proto::Membership) -> Result<Self, Malformed> {
        let next = message.next.map(core::Members::try_from).transpose()?;
        Ok(Self {
            window: message.window,
            now: needed(message.now, "members")?.try_into()?,
            since: Slot(message.since),
            next: next.map(|members| (Slot(message.next_since), members)),
        })
    }
}

impl From<&core::Members> for proto::Members {
    fn from(members: &core::Members) -> Self {
        let member = |(node, member): (&NodeId, &core::Member)| proto::Member {
            node: node.get(),
            part: Some(match member.part {
                Part::Voter(life) => member::Part::Voter(life),
                Part::Joining => member::Part::Joining(proto::Joining {}),
                Part::Learner => member::Part::Learner(proto::Learner {}),
            }),
            addresses: member.addresses.clone(),
        };
        Self { epoch: members.epoch, members: members.nodes.iter().map(member).collect() }
    }
}

impl TryFrom<proto::Members> for core::Members {
    type Error = Malformed;

    fn try_from(message: proto::Members) -> Result<Self, Malformed> {
        let member = |member: proto::Member| {
            let node = NodeId::try_from(member.node).map_err(|_| Malformed("node"))?;
            let part = match needed(member.part, "part")? {
                member::Part::Voter(life) => Part::Voter(life),
                member::Part::Joining(_) => Part::Joining,
                member::Part::Learner(_) => Part::Learner,
            };
            Ok((node, core::Member { part, addresses: member.addresses }))
        };
        let nodes = message.members.into_iter().map(member).collect::<Result<_, _>>()?;
        Ok(Self { epoch: message.epoch, nodes })
    }
}
