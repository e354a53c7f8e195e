//! The members asked: an immutable set of nodes, cheap to clone, with set algebra.

mod member;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use convoke_core::transport::{Address, AddressError};
use convoke_core::{ConnectError, Endpoint, NodeId, Peer, ToPeers};

use member::place;
pub use member::{Member, ToMember};

/// A fixed set of members, by their stable names. Cloning shares it.
///
/// Members are kept in the order of their ids, so that every node that knows the set knows the
/// index of each. A configuration has an *epoch*, which travels with all that is sent to its
/// members (0, the default: none does); a member that has been told of a later one with
/// `Endpoint::set_epoch` refuses. The node that asks may be a member itself: it is asked in
/// process, under the same rules.
///
/// ```
/// use convoke_core::NodeId;
/// use convoke_quorum::Configuration;
///
/// # fn main() -> Result<(), convoke_quorum::ConfigurationError> {
/// let node = NodeId::new;
/// let old = Configuration::new([1, 2, 3].map(node))?;
/// let new = Configuration::new([3, 4, 5].map(node))?;
/// assert_eq!(old.union(&new).len(), 5);
/// assert_eq!(old.intersection(&new).index_of(node(3)), Some(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Configuration {
    set: Arc<Set>,
}

#[derive(PartialEq, Eq)]
struct Set {
    epoch: u64,
    /// Sorted by id; each carries the epoch.
    members: Box<[Peer]>,
    /// Of those that have one.
    addresses: BTreeMap<NodeId, Vec<Address>>,
}

/// Reason why nodes make no configuration.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// There is none.
    #[error("a configuration needs at least one member")]
    Empty,
    /// Two members have one id.
    #[error("{node} is a member twice")]
    DuplicateNode {
        /// The id.
        node: NodeId,
    },
    /// Two members have one address.
    #[error("members {first} and {second} have the same address, {address}")]
    DuplicateAddress {
        /// As the second wrote it.
        address: Address,
        /// The first member with it.
        first: NodeId,
        /// The other member with it.
        second: NodeId,
    },
    /// A member is number 0.
    #[error("a member is number 0: a node id is never 0")]
    NoNode,
    /// An address of a member is not one.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// There are more than [`Configuration::MEMBERS_MAX`].
    #[error("{count} members are more than {}", Configuration::MEMBERS_MAX)]
    TooManyMembers {
        /// Number of members given.
        count: usize,
    },
}

/// The same text: a `main` that returns the error prints this.
impl fmt::Debug for ConfigurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Configuration {
    /// Most members: their indices fit the two bytes that a cast has for them.
    pub const MEMBERS_MAX: usize = u16::MAX as usize;

    /// The set of these members, of epoch 0: [`NodeId`]s, [`Peer`]s, endpoints, or nodes with their
    /// addresses, such as `[(1, "tcp://a:7000"), (2, "tcp://b:7000")]`.
    ///
    /// # Errors
    /// [`ConfigurationError`] when there is none or too many, two have one id or one address, or an
    /// id or address is not one.
    pub fn new<M: ToMember>(
        members: impl IntoIterator<Item = M>,
    ) -> Result<Self, ConfigurationError> {
        let mut members: Vec<Member> =
            members.into_iter().map(ToMember::to_member).collect::<Result<_, _>>()?;
        members.sort_by_key(Member::node);
        if members.is_empty() {
            return Err(ConfigurationError::Empty);
        }
        if members.len() > Self::MEMBERS_MAX {
            return Err(ConfigurationError::TooManyMembers { count: members.len() });
        }
        if let Some(pair) = members.windows(2).find(|pair| pair[0].node() == pair[1].node()) {
            return Err(ConfigurationError::DuplicateNode { node: pair[0].node() });
        }
        refuse_shared_address(&members)?;
        let peers = members.iter().map(|member| Peer::from(member.node())).collect();
        let addresses = members.into_iter().filter_map(Member::into_addressed).collect();
        Ok(Self::of(0, peers, addresses))
    }

    fn of(epoch: u64, members: Box<[Peer]>, addresses: BTreeMap<NodeId, Vec<Address>>) -> Self {
        Self { set: Arc::new(Set { epoch, members, addresses }) }
    }

    /// Those of some distinct members.
    pub(crate) fn of_nodes(nodes: impl Iterator<Item = NodeId>, epoch: u64) -> Self {
        let mut members: Vec<Peer> = nodes.map(|node| Peer::from(node).at_epoch(epoch)).collect();
        members.sort();
        Self::of(epoch, members.into(), BTreeMap::new())
    }

    /// The same members in this epoch.
    #[must_use]
    pub fn with_epoch(&self, epoch: u64) -> Self {
        let members = self.members().iter().map(|member| member.at_epoch(epoch)).collect();
        Self::of(epoch, members, self.set.addresses.clone())
    }

    /// The members of either, in the later epoch.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let epoch = self.epoch().max(other.epoch());
        let mut members = [self.members(), other.members()].concat();
        members.sort();
        members.dedup();
        members.iter_mut().for_each(|member| *member = member.at_epoch(epoch));
        let mut addresses = other.set.addresses.clone();
        addresses.extend(self.set.addresses.clone());
        Self::of(epoch, members.into(), addresses)
    }

    /// The members of both. May be empty.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.subset(|member| other.contains(member.node()))
    }

    /// The members that are none of `other`. May be empty.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.subset(|member| !other.contains(member.node()))
    }

    /// The members that are none of these nodes: those that failed, as
    /// the error of a quorum call names them. May be empty.
    #[must_use]
    pub fn without(&self, failed: impl IntoIterator<Item = NodeId>) -> Self {
        let failed: std::collections::BTreeSet<NodeId> = failed.into_iter().collect();
        self.subset(|member| !failed.contains(&member.node()))
    }

    /// The members that `keep` says yes to. May be empty.
    #[must_use]
    pub fn subset(&self, mut keep: impl FnMut(Peer) -> bool) -> Self {
        let members: Box<[Peer]> =
            self.members().iter().copied().filter(|member| keep(*member)).collect();
        if members.len() == self.len() {
            return self.clone();
        }
        let addresses = self.set.addresses.iter();
        let kept = addresses.filter(|(node, _)| members.binary_search(&Peer::from(**node)).is_ok());
        let addresses = kept.map(|(node, addresses)| (*node, addresses.clone())).collect();
        Self::of(self.epoch(), members, addresses)
    }

    /// Version of the membership; 0 when there are no versions.
    pub fn epoch(&self) -> u64 {
        self.set.epoch
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.set.members.len()
    }

    /// True when it has no member, as a result of set algebra.
    pub fn is_empty(&self) -> bool {
        self.set.members.is_empty()
    }

    /// The members, in the order of their ids.
    pub fn members(&self) -> &[Peer] {
        &self.set.members
    }

    /// The ids of the members, in order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.members().iter().map(Peer::node)
    }

    /// True when a node is a member.
    pub fn contains(&self, node: NodeId) -> bool {
        self.members().binary_search(&Peer::from(node)).is_ok()
    }

    /// The place of a node in the order of ids, if it is a member. In a union of more than
    /// [`Self::MEMBERS_MAX`] those beyond have none.
    pub fn index_of(&self, node: NodeId) -> Option<u16> {
        let index = self.members().binary_search(&Peer::from(node)).ok()?;
        u16::try_from(index).ok()
    }

    /// Addresses at which a member can be dialled, if any was given.
    pub fn addresses_of(&self, node: NodeId) -> &[Address] {
        self.set.addresses.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Tells an endpoint that runs the addresses of the members. It dials each when it is first
    /// needed, and takes no connection to a node that proves to be another. An endpoint that starts
    /// is told by `EndpointBuilder::peers(&configuration)`.
    ///
    /// # Errors
    /// As [`Endpoint::peer`].
    pub fn introduce(&self, endpoint: &Endpoint) -> Result<(), ConnectError> {
        let mut addressed = self.set.addresses.iter();
        addressed.try_for_each(|(node, addresses)| endpoint.peer(*node, addresses).map(|_| ()))
    }
}

/// # Errors
/// [`ConfigurationError::DuplicateAddress`] when two members have one place.
fn refuse_shared_address(members: &[Member]) -> Result<(), ConfigurationError> {
    let mut places = BTreeMap::new();
    for member in members {
        let second = member.node();
        for address in member.addresses() {
            let first = places.insert(place(address), second).unwrap_or(second);
            if first != second {
                let address = address.clone();
                return Err(ConfigurationError::DuplicateAddress { address, first, second });
            }
        }
    }
    Ok(())
}

/// The members and their addresses, for `EndpointBuilder::peers`.
impl ToPeers for &Configuration {
    fn to_peers(self) -> Result<Vec<(NodeId, Vec<Address>)>, AddressError> {
        Ok(self.nodes().map(|node| (node, self.addresses_of(node).to_vec())).collect())
    }
}

impl<'a> IntoIterator for &'a Configuration {
    type Item = &'a Peer;
    type IntoIter = std::slice::Iter<'a, Peer>;

    fn into_iter(self) -> Self::IntoIter {
        self.members().iter()
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.members()).finish()?;
        if self.epoch() > 0 { write!(f, " of epoch {}", self.epoch()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
