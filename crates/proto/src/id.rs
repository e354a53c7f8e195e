//! Names of things: nodes, calls, branches, tasks, connections.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use siphasher::sip::SipHasher24;
use smallvec::SmallVec;

/// The stable name of a node: configured, derived from its key, or random for an anonymous client.
///
/// Zero is reserved and means "no node" on the wire, so a `NodeId` is never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(std::num::NonZeroU64);

impl NodeId {
    /// The node named `id`. For ids that come as data there is [`NodeId::try_from`].
    ///
    /// # Panics
    /// When `id` is 0; in a constant, the compiler says so.
    pub const fn new(id: u64) -> Self {
        match std::num::NonZeroU64::new(id) {
            Some(id) => Self(id),
            None => panic!("a node id is never 0"),
        }
    }

    /// The number behind the name.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// A number or text that is no node id: not a number, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a node id is a number from 1 to 18446744073709551615")]
pub struct NotANodeId;

impl TryFrom<u64> for NodeId {
    type Error = NotANodeId;

    fn try_from(id: u64) -> Result<Self, NotANodeId> {
        std::num::NonZeroU64::new(id).map(Self).ok_or(NotANodeId)
    }
}

/// A decimal number, as in a cluster file.
impl FromStr for NodeId {
    type Err = NotANodeId;

    fn from_str(text: &str) -> Result<Self, NotANodeId> {
        text.parse().map(Self).map_err(|_| NotANodeId)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.get() < 1_000_000 {
            write!(f, "n{}", self.get())
        } else {
            write!(f, "n{:016x}", self.get())
        }
    }
}

/// One life of a node, and within it a call stream: the upper 56 bits are drawn at random at each
/// process start, so that frames of an earlier life are never taken for frames of this one; the low
/// 8 bits are the stream, which numbers its calls by itself.
///
/// A hello says the life with stream 0. Whether a call is of a node's life is asked by
/// [`Incarnation::is_life_of`], never by `==`. The space of a tag, which stands in the place of an
/// origin in a [`Cast`](crate::wire::Cast), is a name of its own: it has neither life nor stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The bits of an incarnation that are the call stream.
const STREAM_BITS: u64 = 0xff;

impl Incarnation {
    /// The life of these random bits, with stream 0.
    pub const fn of_random(bits: u64) -> Self {
        Self(bits & !STREAM_BITS)
    }

    /// The call stream within the life.
    pub const fn stream(self) -> u8 {
        (self.0 & STREAM_BITS) as u8
    }

    /// The origin of the calls of one stream of this life.
    pub const fn of_stream(self, stream: u8) -> Self {
        Self(self.0 & !STREAM_BITS | stream as u64)
    }

    /// True when calls of `origin` are calls of this life, of whichever stream.
    pub const fn is_life_of(self, origin: Self) -> bool {
        (self.0 ^ origin.0) & !STREAM_BITS == 0
    }
}

/// A node and one life of it: what a connection proves, and whose calls an origin's are.
///
/// The same life said by two nodes is two of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeLife {
    /// The node.
    pub node: NodeId,
    /// Its life, with stream 0.
    pub life: Incarnation,
}

impl NodeLife {
    /// The smallest of all.
    pub const LEAST: Self = Self { node: NodeId(std::num::NonZeroU64::MIN), life: Incarnation(0) };

    /// True when this is the node and the life that an origin names, of whichever stream.
    pub fn is_of(self, origin: Self) -> bool {
        self.node == origin.node && self.life.is_life_of(origin.life)
    }
}

/// The name of one connection, known to both its ends (made of a random number from each in the
/// hello), so that one can tell the other by which connection a frame left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNonce(pub u64);

impl LinkNonce {
    /// The name that the random numbers of both ends give: a keyed mix of them.
    ///
    /// The end that speaks second knows the first number, so the mix is SipHash-2-4 of both under
    /// both: it cannot simply be solved for the second number. It names, and does not authenticate.
    pub fn of(dialler: u64, acceptor: u64) -> Self {
        let mut input = [0; 16];
        input[..8].copy_from_slice(&dialler.to_le_bytes());
        input[8..].copy_from_slice(&acceptor.to_le_bytes());
        Self(SipHasher24::new_with_keys(dialler, acceptor).hash(&input))
    }
}

/// A connection of this node: an index that is never used twice in its life. The two ends of a
/// connection know it by different ids, and by the same [`LinkNonce`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl LinkId {
    /// A node's own connection to itself, which never ends.
    pub const LOCAL: Self = Self { index: 0, generation: 0 };
    /// No connection: what left by it never left.
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: u32::MAX };

    /// A place in a table of connections. A connection that comes later may have it again.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}.{}", self.index, self.generation)
    }
}

/// The name of a method on the wire: FNV-1a of `package.Service/Method`.
///
/// A server refuses to start when two of its methods share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MethodId(pub u32);

impl MethodId {
    /// The id of the method with this full name, such as `shop.Stock/Reserve`.
    pub const fn of(full_name: &str) -> Self {
        let bytes = full_name.as_bytes();
        let mut hash = 0x811c_9dc5_u32;
        let mut index = 0;
        while index < bytes.len() {
            hash = (hash ^ bytes[index] as u32).wrapping_mul(0x0100_0193);
            index += 1;
        }
        Self(hash)
    }
}

impl fmt::Debug for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The name of a call: the incarnation of its initiator and a number that counts up in it.
///
/// Numbers are never reused. That they count up lets an initiator say with one number which of its
/// calls are settled (see [`crate::wire::Request::floor`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The initiator's incarnation.
    pub origin: Incarnation,
    /// Counts up from 1.
    pub seq: u64,
}

impl CallId {
    /// The smallest of all, which names no call.
    pub const LEAST: Self = Self { origin: Incarnation(0), seq: 0 };
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}#{}", self.origin.0, self.seq)
    }
}

/// Longest encoding of a [`Path`], in bytes.
pub const PATH_BYTES_MAX: usize = 64;
/// Deepest [`Path`], in levels.
pub const PATH_LEVELS_MAX: usize = 32;

/// The name of a branch: the child indices that lead to it from the initiator.
///
/// The initiator's own root is the empty path; its branches are `[0]`, `[1]`, ... Held in wire form
/// (one varint per level), so that encoding is a copy, comparing is comparing bytes, and all
/// descendants of a path sort directly behind it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Path(Levels);

/// The bytes of a path, of which zeros follow those that count: few are in place, as those of most
/// paths are, and more are shared.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Levels {
    Few(u8, [u8; FEW]),
    Many(u8, Arc<[u8; PATH_BYTES_MAX]>),
}

/// With them a path takes 16 bytes.
const FEW: usize = 14;

/// A path would be deeper or longer than the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path of the branch is too deep ({PATH_LEVELS_MAX} levels or {PATH_BYTES_MAX} bytes)")]
pub struct PathTooDeep;

impl Path {
    /// The initiator's own, empty path.
    pub const fn root() -> Self {
        Self(Levels::Few(0, [0; FEW]))
    }

    /// The path of one level that one byte says, as every call needs one.
    #[inline]
    pub(crate) fn of_one(level: u8) -> Self {
        let mut bytes = [0; FEW];
        bytes[0] = level;
        Self(Levels::Few(1, bytes))
    }

    /// The path of these wire bytes, which are within the bounds.
    fn of_bytes(wire: &[u8]) -> Self {
        let len = u8::try_from(wire.len()).expect("at most 64");
        if wire.len() <= FEW {
            let mut bytes = [0; FEW];
            bytes[..wire.len()].copy_from_slice(wire);
            return Self(Levels::Few(len, bytes));
        }
        let mut bytes = [0; PATH_BYTES_MAX];
        bytes[..wire.len()].copy_from_slice(wire);
        Self(Levels::Many(len, Arc::new(bytes)))
    }

    /// The branch `index` below this one.
    ///
    /// # Errors
    /// [`PathTooDeep`] at [`PATH_LEVELS_MAX`] levels or beyond [`PATH_BYTES_MAX`] bytes.
    pub fn child(&self, index: u32) -> Result<Self, PathTooDeep> {
        if self.is_root() && index < 0x80 {
            return Ok(Self::of_one(index.to_le_bytes()[0]));
        }
        let mut bytes = SmallVec::<[u8; PATH_BYTES_MAX]>::from_slice(self.as_wire());
        let mut rest = index;
        while rest >= 0x80 {
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push((rest & 0x7f) as u8);
        if bytes.len() > PATH_BYTES_MAX || self.level_count() >= PATH_LEVELS_MAX {
            return Err(PathTooDeep);
        }
        Ok(Self::of_bytes(&bytes))
    }

    /// True when it has room for another level of one byte.
    pub(crate) fn has_room(&self) -> bool {
        self.as_wire().len() < PATH_BYTES_MAX && self.level_count() < PATH_LEVELS_MAX
    }

    /// The path of these child indices.
    ///
    /// # Errors
    /// [`PathTooDeep`], as [`Path::child`].
    pub fn from_indices(indices: &[u32]) -> Result<Self, PathTooDeep> {
        indices.iter().try_fold(Self::root(), |path, index| path.child(*index))
    }

    /// Parses wire bytes; `None` unless they are whole, shortest-form varints within the bounds.
    pub fn from_wire(bytes: &[u8]) -> Option<Self> {
        if let [level @ 0..0x80] = bytes {
            return Some(Self::of_one(*level)); // A root branch, as in most frames.
        }
        if bytes.len() > PATH_BYTES_MAX {
            return None;
        }
        let (mut levels, mut shift, mut value) = (0, 0_u32, 0_u64);
        for &byte in bytes {
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 != 0 {
                shift += 7;
                if shift > 28 {
                    return None;
                }
                continue;
            }
            if (byte == 0 && shift > 0) || value > u64::from(u32::MAX) {
                return None;
            }
            (levels, shift, value) = (levels + 1, 0, 0);
        }
        (shift == 0 && levels <= PATH_LEVELS_MAX).then(|| Self::of_bytes(bytes))
    }

    /// The wire bytes: one varint per level.
    #[inline]
    pub fn as_wire(&self) -> &[u8] {
        match &self.0 {
            Levels::Few(len, bytes) => &bytes[..usize::from(*len)],
            Levels::Many(len, bytes) => &bytes[..usize::from(*len)],
        }
    }

    /// True when this is the initiator's own path.
    pub fn is_root(&self) -> bool {
        matches!(self.0, Levels::Few(0, _))
    }

    /// Number of levels that lead here.
    pub fn level_count(&self) -> usize {
        self.as_wire().iter().filter(|byte| **byte & 0x80 == 0).count()
    }

    /// The index of a root branch; `None` for any other path.
    #[inline]
    pub fn root_index(&self) -> Option<u32> {
        match self.as_wire() {
            [] => None,
            [level] => Some((*level).into()),
            [above @ .., _] if above.iter().any(|byte| byte & 0x80 == 0) => None,
            levels => Some(decode_level(levels)),
        }
    }

    /// The branch above and the index below it; `None` for the root.
    pub fn parent(&self) -> Option<(Self, u32)> {
        let (_, before) = self.as_wire().split_last()?;
        let start = before.iter().rposition(|byte| byte & 0x80 == 0).map_or(0, |at| at + 1);
        let (above, level) = self.as_wire().split_at(start);
        Some((Self::of_bytes(above), decode_level(level)))
    }

    /// True when `other` is this branch or below it.
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        other.as_wire().starts_with(self.as_wire())
    }

    /// The child index by which `below` descends from this path; `None` when it does not.
    pub fn step_towards(&self, below: &Self) -> Option<u32> {
        let rest = below.as_wire().strip_prefix(self.as_wire())?;
        let end = rest.iter().position(|byte| byte & 0x80 == 0)?;
        Some(decode_level(&rest[..=end]))
    }

    /// The child indices that lead from this path down to `below`; `None` when it is not there or
    /// below.
    pub fn steps_towards<'a>(&self, below: &'a Self) -> Option<impl Iterator<Item = u32> + 'a> {
        let rest = below.as_wire().strip_prefix(self.as_wire())?;
        Some(rest.split_inclusive(|byte| byte & 0x80 == 0).map(decode_level))
    }

    /// The child indices from the root down.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.as_wire().split_inclusive(|byte| byte & 0x80 == 0).map(decode_level)
    }

    /// Every path from `[first]` down to this one, itself included.
    pub fn prefixes(&self) -> impl Iterator<Item = Self> + '_ {
        let ends = self.as_wire().iter().enumerate().filter(|(_, byte)| **byte & 0x80 == 0);
        ends.map(|(at, _)| Self::of_bytes(&self.as_wire()[..=at]))
    }
}

fn decode_level(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 7 | u32::from(byte & 0x7f))
}

impl Default for Path {
    fn default() -> Self {
        Self::root()
    }
}

impl Ord for Path {
    #[inline(never)] // In line it is so large that searches of maps are not.
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Levels::Few(len, few), Levels::Few(other_len, others)) => {
                in_order(few).cmp(&in_order(others)).then(len.cmp(other_len))
            }
            _ => self.as_wire().cmp(other.as_wire()),
        }
    }
}

/// The bytes of a path as numbers in the same order, some of them in both. Of paths that are alike
/// up to the zeros behind them the shorter one comes first.
fn in_order(few: &[u8; FEW]) -> [u64; 2] {
    let eights = [few.first_chunk(), few.last_chunk()];
    eights.map(|eight| u64::from_be_bytes(*eight.expect("there are 14")))
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str("/");
        }
        self.indices().try_for_each(|index| write!(f, "/{index}"))
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let levels = text.split('/').filter(|level| !level.is_empty());
        let indices: Result<Vec<u32>, _> = levels.map(str::parse).collect();
        let indices = indices.map_err(|error| format!("{text:?} is not a path: {error}"))?;
        Self::from_indices(&indices).map_err(|error| error.to_string())
    }
}

/// One task within a call: its branch and how many tail transfers came before it on that branch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// The branch.
    pub path: Path,
    /// Tail transfers before this task.
    pub hop: u32,
}

impl TaskKey {
    /// True of a root branch that was not handed on: the task that its initiator has asked for, by
    /// a request that nobody else sends.
    pub fn opens_root(&self) -> bool {
        self.hop == 0 && self.path.root_index().is_some()
    }

    /// The task in which the branch goes on when this one hands it on. Hops are few: a node refuses
    /// to start a task beyond a million.
    pub(crate) fn next_hop(&self) -> Self {
        Self { path: self.path.clone(), hop: self.hop + 1 }
    }
}

impl fmt::Debug for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hop {
            0 => write!(f, "{}", self.path),
            hop => write!(f, "{}+{hop}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_numbers_change_the_nonce() {
        let nonce = LinkNonce::of;
        let nonces = [nonce(1, 2), nonce(2, 1), nonce(1, 3), nonce(3, 2), nonce(0, 0)];
        let distinct: std::collections::BTreeSet<_> = nonces.iter().collect();
        assert_eq!(distinct.len(), nonces.len());
    }

    #[test]
    fn the_nonce_is_siphash_2_4() {
        // Computed apart from this crate, by the definition of SipHash-2-4: key (1, 2), the same as
        // input.
        assert_eq!(LinkNonce::of(1, 2), LinkNonce(0xca50_9604_dc5a_478b));
    }

    #[test]
    fn a_life_is_the_upper_56_bits() {
        let life = Incarnation::of_random(0x1122_3344_5566_77ff);
        assert_eq!((life, life.stream()), (Incarnation(0x1122_3344_5566_7700), 0));
        let stream = Incarnation(life.0 | 7);
        assert_eq!(stream.stream(), 7);
        assert!(life.is_life_of(stream) && stream.is_life_of(life) && life.is_life_of(life));
        assert!(!life.is_life_of(Incarnation(life.0 + 0x100)));
        assert!(!life.is_life_of(Incarnation(life.0 ^ 1 << 63)));
    }

    #[test]
    fn data_that_is_no_node_id_is_an_error() {
        assert_eq!((NodeId::try_from(7), "7".parse()), (Ok(NodeId::new(7)), Ok(NodeId::new(7))));
        assert_eq!(NodeId::try_from(0), Err(NotANodeId));
        for text in ["", "0", "-1", "n7", "18446744073709551616"] {
            assert_eq!(text.parse::<NodeId>(), Err(NotANodeId), "{text}");
        }
    }

    #[test]
    fn no_node_and_life_is_less_than_the_least() {
        let of = |node, life| NodeLife { node: NodeId::new(node), life: Incarnation(life) };
        assert_eq!(NodeLife::LEAST, of(1, 0));
        assert!(NodeLife::LEAST < of(1, 1) && of(1, u64::MAX) < of(2, 0));
    }

    /// Few levels, small and large, so that paths have beginnings in common.
    fn paths() -> impl Strategy<Value = Path> {
        let level = prop_oneof![Just(0), Just(1), Just(0x80), any::<u32>()];
        let levels = prop::collection::vec(level, 0..8);
        levels.prop_map(|levels| Path::from_indices(&levels).unwrap())
    }

    proptest! {
        #[test]
        fn paths_are_in_order_of_their_bytes(one in paths(), other in paths()) {
            prop_assert_eq!(one.cmp(&other), one.as_wire().cmp(other.as_wire()));
        }

        #[test]
        fn paths_survive_the_wire(indices in prop::collection::vec(any::<u32>(), 0..12)) {
            let path = Path::from_indices(&indices).unwrap();
            prop_assert_eq!(Path::from_wire(path.as_wire()), Some(path.clone()));
            prop_assert_eq!(path.indices().collect::<Vec<_>>(), indices.clone());
            prop_assert_eq!(path.to_string().parse::<Path>().unwrap(), path.clone());
            if let Some((parent, index)) = path.parent() {
                prop_assert_eq!(parent.child(index).unwrap(), path.clone());
                prop_assert_eq!(parent.step_towards(&path), Some(index));
                prop_assert!(parent.is_prefix_of(&path) && !path.is_prefix_of(&parent));
            }
            prop_assert_eq!(path.prefixes().count(), indices.len());
            let sole = (indices.len() == 1).then(|| indices[0]);
            prop_assert_eq!(path.root_index(), sole);
            for (at, prefix) in path.prefixes().enumerate() {
                let steps: Option<Vec<u32>> = prefix.steps_towards(&path).map(Iterator::collect);
                prop_assert_eq!(steps, Some(indices[at + 1..].to_vec()));
                prop_assert_eq!(path.steps_towards(&prefix).is_some(), prefix == path);
            }
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(path) = Path::from_wire(&bytes) {
                prop_assert_eq!(path.as_wire(), bytes.as_slice());
            }
        }
    }

    #[test]
    fn a_path_has_a_deepest_level() {
        let deepest = Path::from_indices(&[0; PATH_LEVELS_MAX]).unwrap();
        assert_eq!(deepest.child(0), Err(PathTooDeep));
        assert_eq!(Path::from_indices(&[u32::MAX; 13]), Err(PathTooDeep));
        for (index, most) in [(0, PATH_LEVELS_MAX), (u32::MAX, 12)] {
            for level_count in 0..=most {
                let path = Path::from_indices(&vec![index; level_count]).unwrap();
                assert_eq!(path.has_room(), path.child(0).is_ok(), "{path}");
            }
        }
    }

    #[test]
    fn a_longer_form_of_a_level_is_refused() {
        assert_eq!(Path::from_wire(&[0x80, 0x00]), None);
        assert_eq!(Path::from_wire(&[0x80]), None);
    }
}
