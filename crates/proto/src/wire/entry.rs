//! A manifest entry: what one finished task declares.

use smallvec::SmallVec;

use crate::id::{NodeId, TaskKey};
use crate::key::Key;
use crate::mutant::{self, Mutant};

use super::codec::{Out, Reader, Scratch, WireError};
use super::fail::Cause;

/// Outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned.
    Finished,
    /// It failed, for this cause.
    Failed(Cause),
}

/// Declaration of a finished task: the branches it opened and the replies it sent.
///
/// Branches are numbered 0..`children` and replies 0..`replies`, so counts name them all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The task.
    pub task: TaskKey,
    /// Branches opened.
    pub children: u32,
    /// Replies sent.
    pub replies: u32,
    /// The way it ended.
    pub outcome: Outcome,
    /// The node each child was sent to, in order; `None` where it is not known. As many as
    /// `children`, or empty when it says nothing of any.
    pub holders: Vec<Option<NodeId>>,
}

/// Fewest bytes of an entry on the wire.
pub(super) const ENTRY_BYTES_MIN: usize = 6;

impl Entry {
    /// Declaration of a task that sent one reply and opened no branch.
    pub const fn sole_reply(task: TaskKey) -> Self {
        Self { task, children: 0, replies: 1, outcome: Outcome::Finished, holders: Vec::new() }
    }

    /// Bytes on the wire.
    pub fn encoded_len(&self) -> usize {
        let mut count = super::codec::Count::default();
        self.write(&mut count);
        count.len()
    }

    fn seal(&self, key: Key) -> u64 {
        let mut bytes = Scratch::new();
        match mutant::is(Mutant::SealWithoutContent) {
            true => bytes.key(&self.task),
            false => self.write(&mut bytes),
        }
        key.seal(bytes.as_bytes())
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.key(&self.task);
        out.varint(self.children.into());
        out.varint(self.replies.into());
        out.u8(match self.outcome {
            Outcome::Finished => 0,
            Outcome::Failed(cause) => cause.to_wire(),
        });
        self.write_holders(out);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let task = input.key()?;
        let (children, replies) = (input.varint_u32()?, input.varint_u32()?);
        let outcome = match input.u8()? {
            0 => Outcome::Finished,
            cause => Outcome::Failed(Cause::from_wire(cause)?),
        };
        let holders = read_holders(children, input)?;
        Ok(Self { task, children, replies, outcome, holders })
    }

    /// The distinct nodes once, then an index per child: a fan-out names few nodes many times.
    fn write_holders(&self, out: &mut impl Out) {
        debug_assert!(
            self.holders.is_empty() || self.holders.len() == self.children as usize,
            "an entry names the holders of all its children or of none"
        );
        let mut nodes: SmallVec<[_; FEW]> = SmallVec::from_slice(&self.holders);
        nodes.sort_unstable();
        nodes.dedup();
        out.count(nodes.len());
        nodes.iter().for_each(|node| out.optional_node(*node));
        if nodes.len() > 1 {
            for holder in &self.holders {
                out.count(nodes.binary_search(holder).expect("every holder is listed"));
            }
        }
    }
}

/// Nodes of which a list is made beside an entry without memory of its own, as most have no more.
const FEW: usize = 8;

fn read_holders(children: u32, input: &mut Reader<'_>) -> Result<Vec<Option<NodeId>>, WireError> {
    let nodes: SmallVec<[_; FEW]> = input.list(8, Reader::optional_node)?;
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    if children == 0 || !nodes.is_sorted_by(|one, next| one < next) {
        return Err(WireError::Invalid);
    }
    let count = input.take_holders(children)?;
    match nodes.as_slice() {
        [node] => Ok(vec![*node; count]),
        nodes => read_holder_indices(nodes, count, input),
    }
}

/// Refuses a node that no child was sent to: the same entry would have two encodings.
fn read_holder_indices(
    nodes: &[Option<NodeId>],
    count: usize,
    input: &mut Reader<'_>,
) -> Result<Vec<Option<NodeId>>, WireError> {
    let mut is_used = SmallVec::<[_; FEW]>::from_elem(false, nodes.len());
    let holders = (0..count).map(|_| {
        let index = usize::try_from(input.varint()?).map_err(|_| WireError::Invalid)?;
        let node = nodes.get(index).ok_or(WireError::Invalid)?;
        is_used[index] = true;
        Ok(*node)
    });
    let holders = holders.collect::<Result<_, _>>()?;
    if is_used.contains(&false) { Err(WireError::Invalid) } else { Ok(holders) }
}

/// Most branches of one task, which is also the default bound of a whole call. All entries of a
/// frame together name the holders of no more.
pub(crate) const CHILDREN_MAX: usize = 65_536;

/// True when one frame may have both a task's own entry and those that it was given.
pub(crate) fn fit_one_frame(own: &Entry, inherited: &[Sealed]) -> bool {
    let entries = inherited.iter().map(|sealed| &sealed.entry).chain([own]);
    entries.map(|entry| entry.holders.len()).sum::<usize>() <= CHILDREN_MAX
}

/// An entry that travels on a frame of another task, and what proves that nobody on its way changed
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The task's declaration.
    pub entry: Entry,
    /// [`Key::seal`] of the entry's bytes, by the key of its task's branch.
    pub seal: u64,
}

impl Sealed {
    /// Seals an entry with the key of its task's branch.
    pub fn new(entry: Entry, key: Key) -> Self {
        let seal = entry.seal(key);
        Self { entry, seal }
    }

    /// True when the holder of this key sealed it.
    pub fn is_of(&self, key: Key) -> bool {
        self.entry.seal(key) == self.seal
    }

    /// Bytes in memory: a few on the wire may name a node for each of many children.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.entry.holders[..])
    }

    /// Bytes on the wire, to keep what rides on other frames small.
    pub fn encoded_len(&self) -> usize {
        self.entry.encoded_len() + SEAL_BYTES
    }

    fn write(&self, out: &mut impl Out) {
        self.entry.write(out);
        out.u64(self.seal);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { entry: Entry::read(input)?, seal: input.u64()? })
    }
}

const SEAL_BYTES: usize = 8;

#[inline]
pub(super) fn write_sealed(entries: &[Sealed], out: &mut impl Out) {
    out.count(entries.len());
    entries.iter().for_each(|entry| entry.write(out));
}

pub(super) fn read_sealed(input: &mut Reader<'_>) -> Result<Vec<Sealed>, WireError> {
    input.list(ENTRY_BYTES_MIN + SEAL_BYTES, Sealed::read)
}

/// The same into a list that is empty.
#[inline]
pub(super) fn read_sealed_into(
    list: &mut Vec<Sealed>,
    input: &mut Reader<'_>,
) -> Result<(), WireError> {
    input.list_into(list, ENTRY_BYTES_MIN + SEAL_BYTES, Sealed::read)
}
