//! Members: the actor follows what the log decides, and proposes what operators ask for.

use std::collections::BTreeSet;

use convoke::quorum::Configuration;
use convoke::transport::Address;
use convoke::{Code, NodeId, Status};
use node_kit::cluster::undialable;

use super::{Actor, leader};
use crate::core::{Member, Members, Membership, NotProposed, Part, Standing};
use crate::node::requests::{Waiter, changing, not_leading};
use crate::proto::{Change, Done, Join, change, reply};

impl Actor {
    /// Talks to these from now on.
    pub(super) fn members_changed(&mut self, membership: &Membership) {
        let others = self.replica.others();
        let own = self.options.core.node;
        for (node, member) in membership.nodes() {
            if !self.options.members.contains(node) && node != own && !member.addresses.is_empty() {
                match self.endpoint.peer(node, &member.addresses) {
                    Ok(peer) => {
                        let kept = || self.endpoint.keep_connected(peer);
                        self.kept.entry(node).or_insert_with(kept);
                    }
                    Err(error) => tracing::error!("the addresses of member {node}: {error}"),
                }
            }
        }
        self.kept.retain(|node, _| others.contains(node));
        self.known.write().clone_from(&others);
        // The set without this node may be empty, and a configuration not: so it is with it first.
        let all: BTreeSet<NodeId> = others.into_iter().chain([own]).collect();
        if let Ok(all) = Configuration::new(all) {
            self.others = all.without([own]);
        }
        self.tell_part(membership);
    }

    fn tell_part(&self, membership: &Membership) {
        let epoch = membership.now.epoch;
        match membership.now.part(self.options.core.node) {
            Some(Part::Voter(life)) if life == self.replica.life() => {
                tracing::info!(epoch, "it votes");
            }
            Some(Part::Voter(_)) => tracing::error!(
                epoch,
                "another ledger of this node votes: this one learns, and is not counted until \
                 `member add` has let it join again"
            ),
            Some(Part::Joining | Part::Learner) => tracing::info!(epoch, "it learns"),
            None => tracing::info!(epoch, "it is no member"),
        }
    }

    /// Proposes other members, if they are not so already.
    pub(super) fn change(&mut self, change: &Change, waiter: Waiter) {
        self.perform();
        let standing = self.replica.standing();
        let membership = match self.replica.membership() {
            Some(membership) if matches!(standing, Standing::Leading(_)) => membership,
            _ => return waiter.fail(not_leading(leader(standing))),
        };
        if let Some(defect) = self.undialable(&membership.now, change) {
            return waiter.fail(Status::new(Code::InvalidArgument, defect).without_effect());
        }
        if membership.next.is_some() {
            return waiter.fail(changing());
        }
        let Some(members) = changed(&membership.now, change) else {
            return waiter.answer(&reply::Result::Done(Done {}).into());
        };
        if members.voters().next().is_none() {
            let text = "the last voter cannot leave: let another join first";
            return waiter.fail(Status::new(Code::InvalidArgument, text).without_effect());
        }
        let now = self.now();
        let silent = self.replica.unheard(now, &members);
        if !silent.is_empty() && !change.anyway {
            return waiter.fail(match self.replica.leads_anew(now) {
                true => changing(),
                false => unheard(&silent),
            });
        }
        match self.replica.change(now, members.clone()) {
            Ok((_, slot)) => self.requests.changes(slot, members, waiter),
            Err(NotProposed::NotLeading(error)) => waiter.fail(not_leading(error.leader)),
            Err(NotProposed::NoRoom | NotProposed::Changing) => waiter.fail(changing()),
        }
    }
}

impl Actor {
    /// Reason why members cannot dial a node that is to join. All of them speak what this one does,
    /// so that in a cluster whose nodes prove who they are nobody joins who does not.
    fn undialable(&self, members: &Members, change: &Change) -> Option<String> {
        let Some(change::What::Join(Join { node, addresses, .. })) = &change.what else {
            return None;
        };
        let spoken: BTreeSet<&str> =
            self.endpoint.transports().iter().flat_map(|one| one.schemes()).copied().collect();
        let addresses = addresses.iter().filter_map(|text| text.parse::<Address>().ok());
        let addresses: Vec<Address> = addresses.collect();
        let id = NodeId::try_from(*node).ok()?;
        let is_known = self.options.members.contains(id)
            || members.nodes.get(&id).is_some_and(|member| !member.addresses.is_empty());
        if addresses.is_empty() && !is_known {
            return Some(format!("{id} is in no cluster file of the others: give its address"));
        }
        if let Some(reason) = addresses.iter().find_map(undialable) {
            return Some(format!("{id} {reason}"));
        }
        let unspoken = addresses.iter().find(|address| !spoken.contains(address.scheme()))?;
        let spoken: Vec<_> = spoken.iter().map(|scheme| format!("{scheme}://")).collect();
        let spoken = spoken.join(" and ");
        Some(format!("{unspoken} is no address at which members can dial: they speak {spoken}"))
    }
}

/// The refusal of members who could choose nothing. Nothing was done.
fn unheard(silent: &[NodeId]) -> Status {
    let silent: Vec<_> = silent.iter().map(NodeId::to_string).collect();
    let text = format!(
        "not heard: {}. Without them those who are to vote are no majority, and nothing could be \
         written until they are back. Start them first, or remove them; `--anyway` changes the \
         members all the same",
        silent.join(", ")
    );
    Status::new(Code::FailedPrecondition, text).without_effect()
}

/// The members after a change. `None` when they are so already.
fn changed(now: &Members, change: &Change) -> Option<Members> {
    let mut members = Members { epoch: now.epoch + 1, ..now.clone() };
    match change.what.as_ref()? {
        change::What::Join(Join { node, addresses, learns, life }) => {
            let node = NodeId::try_from(*node).ok()?;
            let known = now.nodes.get(&node).map(|member| member.addresses.clone());
            let addresses = match known {
                Some(known) if addresses.is_empty() => known,
                _ => addresses.clone(),
            };
            let part = match now.part(node) {
                Some(Part::Voter(counted))
                    if !learns && life.is_none_or(|life| life == counted) =>
                {
                    Part::Voter(counted)
                }
                _ if *learns => Part::Learner,
                _ => Part::Joining,
            };
            members.nodes.insert(node, Member { part, addresses });
        }
        change::What::Leave(node) => {
            members.nodes.remove(&NodeId::try_from(*node).ok()?);
        }
    }
    (members.nodes != now.nodes).then_some(members)
}
