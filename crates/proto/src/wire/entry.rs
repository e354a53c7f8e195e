//! A manifest entry: what one finished task declares.

use crate::id::{NodeId, TaskKey};

use super::codec::{Out, Reader, WireError};
use super::fail::Cause;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned.
    Finished,
    /// It failed, for this cause.
    Failed(Cause),
}

/// What a finished task declares: the branches it opened and the replies it sent.
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
    /// How it ended.
    pub outcome: Outcome,
    /// The node each child was sent to, in order; `None` where it is not known. As many as
    /// `children`, or empty when it says nothing of any.
    pub holders: Vec<Option<NodeId>>,
}

/// Fewest bytes of an entry on the wire.
pub(super) const ENTRY_BYTES_MIN: usize = 6;

impl Entry {
    /// Bytes on the wire, to keep what rides on other frames small.
    pub fn encoded_len(&self) -> usize {
        let mut count = super::codec::Count::default();
        self.write(&mut count);
        count.len()
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
        let mut nodes: Vec<Option<NodeId>> = self.holders.clone();
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

fn read_holders(children: u32, input: &mut Reader<'_>) -> Result<Vec<Option<NodeId>>, WireError> {
    let nodes = input.list(8, Reader::optional_node)?;
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
    let mut is_used = vec![false; nodes.len()];
    let holders = (0..count).map(|_| {
        let index = usize::try_from(input.varint()?).map_err(|_| WireError::Invalid)?;
        let node = nodes.get(index).ok_or(WireError::Invalid)?;
        is_used[index] = true;
        Ok(*node)
    });
    let holders = holders.collect::<Result<_, _>>()?;
    if is_used.contains(&false) { Err(WireError::Invalid) } else { Ok(holders) }
}

/// Most branches of one task, which is also the default bound of a whole call.
pub(crate) const CHILDREN_MAX: usize = 65_536;

pub(super) fn write_entries(entries: &[Entry], out: &mut impl Out) {
    out.count(entries.len());
    entries.iter().for_each(|entry| entry.write(out));
}

pub(super) fn read_entries(input: &mut Reader<'_>) -> Result<Vec<Entry>, WireError> {
    input.list(ENTRY_BYTES_MIN, Entry::read)
}
