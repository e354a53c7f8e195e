//! Membership: who votes in which epoch, as the order itself has decided.
//!
//! A [`Membership`] is a part of the replicated state, and so of what a checkpoint claims. A change
//! is a request of the administrator. Executed in place k, it ends its epoch with the first
//! checkpoint that is a [`window`](super::Settings::window) or more behind k: no replica that has
//! not executed k can have opened a place behind that, so no place is voted for in two epochs.
//!
//! ```text
//!   place      k           k + window     c
//!   ───────────●───────────┼──────────────■──▶
//!        change executed   open at most   │ the checkpoint that ends the epoch; its members hand
//!                          without k      │ the state at c over to those of the next one
//! ```
//! Until then another change is refused.

use std::collections::BTreeMap;

use convoke::NodeId;

use super::group::{Digest, Group, NoMembers, Sequence};
use super::signature::Checker;
use super::text::Text;
use crate::mutant::{self, Mutant};
use crate::wire;

/// The epoch in which a cluster is formed. Requests of clients name it, whenever they are made:
/// they wait across a change, and are executed once all the same.
pub const FIRST_EPOCH: u64 = 1;

/// Members of a cluster, at most: a vote goes to all, and a proof has the signatures of a quorum.
pub const MEMBERS_MAX: usize = 64;

/// Addresses of one member, at most.
const ADDRESSES_MAX: usize = 4;

/// Bytes of an address, at most.
const ADDRESS_BYTES_MAX: usize = 256;

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The key that checks what it signs.
    pub key: Checker,
    /// Addresses at which it is dialled. Empty where the cluster files of all have them.
    pub addresses: Vec<String>,
}

/// All members of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Members {
    /// Its number: one more with each change.
    pub epoch: u64,
    /// Members by their ids.
    pub nodes: BTreeMap<NodeId, Member>,
}

impl Members {
    /// The group of them.
    ///
    /// # Errors
    /// [`NoMembers`].
    pub fn group(&self) -> Result<Group, NoMembers> {
        Group::new(self.nodes.keys().copied())
    }

    /// The members after a change.
    fn changed(&self, change: &Change) -> Result<Self, NotChanged> {
        let mut members = Self { epoch: self.epoch.saturating_add(1), ..self.clone() };
        if let Some(node) = change.remove
            && members.nodes.remove(&node).is_none()
        {
            return Err(NotChanged::Unknown(node));
        }
        if let Some((node, member)) = &change.add {
            members.admit(*node, member)?;
        }
        let is_less = members.nodes.len() < self.nodes.len();
        let group = members.group().map_err(|_| NotChanged::TooFew)?;
        if is_less && group.faults() == 0 {
            return Err(NotChanged::TooFew);
        }
        if change.add.is_none() && change.remove.is_none() {
            Err(NotChanged::Malformed)
        } else {
            Ok(members)
        }
    }

    fn admit(&mut self, node: NodeId, member: &Member) -> Result<(), NotChanged> {
        let kind = self.nodes.values().next().map(|known| std::mem::discriminant(&known.key));
        let is_alike = kind.is_none_or(|kind| kind == std::mem::discriminant(&member.key));
        let is_secret = member.key == Checker::Unsigned
            || self.nodes.values().all(|known| known.key != member.key);
        let is_dialable = member.addresses.len() <= ADDRESSES_MAX
            && member.addresses.iter().all(|address| address.len() <= ADDRESS_BYTES_MAX);
        match () {
            () if self.nodes.contains_key(&node) => Err(NotChanged::Known(node)),
            () if self.nodes.len() >= MEMBERS_MAX => Err(NotChanged::TooMany),
            () if !is_alike || !is_secret => Err(NotChanged::Key(node)),
            () if !is_dialable => Err(NotChanged::Malformed),
            () => {
                self.nodes.insert(node, member.clone());
                Ok(())
            }
        }
    }
}

/// A change that the administrator wants: one member less, one more, or one in place of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// The epoch whose members are changed.
    pub epoch: u64,
    /// The member that leaves.
    pub remove: Option<NodeId>,
    /// The member that joins, and takes no place before the other has left.
    pub add: Option<(NodeId, Member)>,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// These are the members of all places behind the other.
    Taken(Members, Sequence),
    /// Nothing was changed.
    Refused(NotChanged),
}

/// The reason nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotChanged {
    /// Another change is under way.
    #[error("another change is under way, and in force behind place {0}: ask again then")]
    Changing(Sequence),
    /// The members have changed meanwhile.
    #[error("the change is of another epoch than {0}, in which the members are now: look at them")]
    OtherEpoch(u64),
    /// The member that is to join is one.
    #[error("node {0} is a member: remove it first, or in the same change")]
    Known(NodeId),
    /// The node that is to leave is no member.
    #[error("node {0} is no member")]
    Unknown(NodeId),
    /// No member could lie any more.
    #[error("fewer than 4 members stand none that lies: let another join first")]
    TooFew,
    /// There are as many members as there may be.
    #[error("there are {MEMBERS_MAX} members, and may be no more")]
    TooMany,
    /// The key is another member's, or of another kind.
    #[error("the key of node {0} is another member's, or of another kind than theirs")]
    Key(NodeId),
    /// The bytes are no change, or its addresses are too many or too long.
    #[error("it is no change: none joins or leaves, or the addresses are too many or too long")]
    Malformed,
}

/// The members that the order has decided on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// Members of the place behind the last that is executed.
    pub now: Members,
    /// The last place of theirs, and the members behind it, if a change is under way.
    pub next: Option<(Sequence, Members)>,
}

impl Membership {
    /// Members, of whom no change is under way.
    pub fn of(now: Members) -> Self {
        Self { now, next: None }
    }

    /// Executes a request of the administrator; behind `end` no place is open yet anywhere.
    pub(super) fn execute(&mut self, operation: &[u8], end: Sequence) -> Changed {
        match self.take(operation, end) {
            Ok(members) => Changed::Taken(members, end),
            Err(refused) => Changed::Refused(refused),
        }
    }

    fn take(&mut self, operation: &[u8], end: Sequence) -> Result<Members, NotChanged> {
        let change = wire::decode::<Change>(bytes::Bytes::copy_from_slice(operation));
        let change = change.map_err(|_| NotChanged::Malformed)?;
        if let Some((at, _)) = self.next.as_ref().filter(|_| !mutant::is(Mutant::ChangesOverlap)) {
            return Err(NotChanged::Changing(*at));
        }
        if change.epoch != self.now.epoch {
            return Err(NotChanged::OtherEpoch(self.now.epoch));
        }
        let members = self.now.changed(&change)?;
        self.next = Some((end, members.clone()));
        Ok(members)
    }

    /// Everything up to a place is executed.
    pub(super) fn reach(&mut self, sequence: Sequence) {
        if let Some((_, members)) = self.next.take_if(|(end, _)| *end <= sequence) {
            self.now = members;
        }
    }

    /// The digest of all of it.
    pub fn digest(&self) -> Digest {
        let mut text = Text::named("membership");
        text.put_bytes(&wire::encode(self));
        text.digest()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn key(of: u64) -> Checker {
        Checker::Ed25519([u8::try_from(of).expect("small"); 32])
    }

    fn member(of: u64) -> Member {
        Member { key: key(of), addresses: vec![format!("tcp://10.0.0.{of}:7000")] }
    }

    fn membership(nodes: u64) -> Membership {
        let nodes = (1..=nodes).map(|node| (NodeId::new(node), member(node))).collect();
        Membership::of(Members { epoch: 1, nodes })
    }

    fn execute(membership: &mut Membership, change: &Change, end: u64) -> Changed {
        membership.execute(&wire::encode(change), Sequence(end))
    }

    fn add(epoch: u64, node: u64) -> Change {
        Change { epoch, remove: None, add: Some((NodeId::new(node), member(node))) }
    }

    fn remove(epoch: u64, node: u64) -> Change {
        Change { epoch, remove: Some(NodeId::new(node)), add: None }
    }

    fn refused(membership: &mut Membership, change: &Change) -> NotChanged {
        let before = membership.clone();
        let Changed::Refused(why) = execute(membership, change, 8) else { panic!("{change:?}") };
        assert_eq!(*membership, before);
        why
    }

    #[test]
    fn a_change_is_in_force_behind_its_end_and_no_other_meanwhile() {
        let mut all = membership(4);
        let taken = execute(&mut all, &add(1, 5), 8);
        assert!(matches!(&taken, Changed::Taken(of, Sequence(8)) if of.epoch == 2), "{taken:?}");
        assert_eq!(refused(&mut all, &remove(1, 4)), NotChanged::Changing(Sequence(8)));
        all.reach(Sequence(7));
        assert_eq!((all.now.epoch, all.now.nodes.len()), (1, 4));
        all.reach(Sequence(8));
        assert_eq!((all.now.epoch, all.now.nodes.len(), &all.next), (2, 5, &None));
        assert_eq!(refused(&mut all, &remove(1, 4)), NotChanged::OtherEpoch(2));
        assert!(matches!(execute(&mut all, &remove(2, 1), 16), Changed::Taken(..)));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_reason() {
        let mut all = membership(4);
        assert_eq!(refused(&mut all, &remove(1, 4)), NotChanged::TooFew);
        assert_eq!(refused(&mut all, &remove(1, 9)), NotChanged::Unknown(NodeId::new(9)));
        assert_eq!(refused(&mut all, &add(1, 3)), NotChanged::Known(NodeId::new(3)));
        let with = |member| Change { add: Some((NodeId::new(5), member)), ..add(1, 5) };
        let stolen = with(member(2));
        assert_eq!(refused(&mut all, &stolen), NotChanged::Key(NodeId::new(5)));
        let unsigned = with(Member { key: Checker::Unsigned, addresses: Vec::new() });
        assert_eq!(refused(&mut all, &unsigned), NotChanged::Key(NodeId::new(5)));
        let long = with(Member { key: key(5), addresses: vec!["a".repeat(257)] });
        assert_eq!(refused(&mut all, &long), NotChanged::Malformed);
        let nothing = Change { epoch: 1, remove: None, add: None };
        assert_eq!(refused(&mut all, &nothing), NotChanged::Malformed);
        assert_eq!(all.execute(b"put", Sequence(8)), Changed::Refused(NotChanged::Malformed));
        let mut full = membership(64);
        assert_eq!(refused(&mut full, &add(1, 65)), NotChanged::TooMany);
    }

    /// A member that has lost its disk comes back under another key, as somebody else.
    #[test]
    fn one_takes_the_place_of_another_or_its_own_under_another_key() {
        let mut all = membership(4);
        let change = Change { remove: Some(NodeId::new(2)), ..add(1, 7) };
        assert!(matches!(execute(&mut all, &change, 8), Changed::Taken(..)));
        all.reach(Sequence(8));
        let nodes: Vec<u64> = all.now.nodes.keys().map(|node| node.get()).collect();
        assert_eq!(nodes, [1, 3, 4, 7]);
        let again = Member { key: key(9), addresses: Vec::new() };
        let node = NodeId::new(7);
        let change = Change { epoch: 2, remove: Some(node), add: Some((node, again.clone())) };
        assert!(matches!(execute(&mut all, &change, 16), Changed::Taken(..)));
        all.reach(Sequence(16));
        assert_eq!(all.now.nodes.get(&node), Some(&again));
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let add = proptest::option::of((1..9_u64, 1..9_u64));
        let add = add.prop_map(|add| add.map(|(node, key)| (NodeId::new(node), member(key))));
        let remove = proptest::option::of((1..9_u64).prop_map(NodeId::new));
        (1..6_u64, remove, add).prop_map(|(epoch, remove, add)| Change { epoch, remove, add })
    }

    proptest! {
        /// Epochs follow one another whatever is asked for, in whatever place: each at the end of
        /// the one before, one member at most leaves and joins, and one may always lie.
        #[test]
        fn whatever_is_asked_for_epochs_follow_one_another(
            asked in vec((any_change(), any::<bool>()), 0..60)
        ) {
            let mut all = membership(5);
            for (place, (mut change, is_now)) in (1_u64..).zip(asked) {
                change.epoch = if is_now { all.now.epoch } else { change.epoch };
                let before = all.clone();
                let changed = execute(&mut all, &change, place + 4);
                match (&changed, &all.next) {
                    (Changed::Refused(_), _) => prop_assert_eq!(&all, &before),
                    (Changed::Taken(members, end), Some(next)) => {
                        prop_assert_eq!(&before.next, &None);
                        prop_assert_eq!((*end, members), (next.0, &next.1));
                        prop_assert_eq!(members.epoch, before.now.epoch + 1);
                        let is_new = |node: &&NodeId| !before.now.nodes.contains_key(*node);
                        prop_assert!(members.nodes.keys().filter(is_new).count() <= 1);
                        prop_assert!(members.group().unwrap().faults() >= 1);
                    }
                    (Changed::Taken(..), None) => prop_assert!(false, "it is not under way"),
                }
                let end = all.next.as_ref().map(|(end, _)| *end);
                all.reach(Sequence(place));
                let has_begun = end.is_some_and(|end| end.0 <= place);
                prop_assert_eq!(all.now.epoch, before.now.epoch + u64::from(has_begun));
                let keys = || all.now.nodes.values().map(|member| &member.key);
                let is_once = |key| keys().filter(|other| *other == key).count() == 1;
                prop_assert!(keys().all(is_once), "a key is one member's");
            }
        }
    }
}
