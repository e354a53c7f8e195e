//! FAIL: a task, or a branch that never became one, ends without a proper answer.

use std::borrow::Cow;

use bytes::Bytes;

use crate::id::NodeId;

use super::codec::{Out, Reader, WireError};
use super::entry::{Entry, Sealed, read_sealed, write_sealed};
use super::request::{Extension, read_extensions, write_extensions};

const FLAG_ABORT_CHILDREN: u8 = 0x01;
const FLAG_ENTRY: u8 = 0x02;
const FLAG_EXTENSIONS: u8 = 0x04;

/// Longest text of a failure, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// Reason why a branch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The handler returned an error: the service's own code and text.
    Application,
    /// The handler panicked.
    Panicked,
    /// The handler was dropped without finishing.
    Dropped,
    /// The server has no room for another task.
    Overloaded,
    /// The server does not know the method.
    UnknownMethod,
    /// The server cannot decode the request.
    BadRequest,
    /// The branch would be too deep.
    PathTooDeep,
    /// The task opened more branches, or the call has more, than the bound.
    TooManyBranches,
    /// The time ran out.
    Deadline,
    /// It was cancelled, or the endpoint of its caller was shut down.
    Cancelled,
    /// The node went down, or the last connection to it; the task may have run.
    NodeDown,
    /// The request never reached its node, and can never run there: it is fenced.
    Lost,
    /// The task ran, but a reply did not arrive.
    ReplyLost,
    /// The parent failed before it said where the branch was sent.
    Orphaned,
    /// The request never left: no connection to the node could be made.
    Unreachable,
    /// A node broke the protocol.
    Protocol,
    /// The caller's node is shutting down or has dropped the call's resources.
    ShuttingDown,
    /// Its replies, or the branches that it declared, outgrew a bound of the initiator.
    ResourceExhausted,
    /// The request was made for an older configuration than the node knows of: its present epoch is
    /// in the details.
    StaleEpoch,
}

impl Cause {
    pub(super) const ALL: [Self; 19] = [
        Self::Application,
        Self::Panicked,
        Self::Dropped,
        Self::Overloaded,
        Self::UnknownMethod,
        Self::BadRequest,
        Self::PathTooDeep,
        Self::TooManyBranches,
        Self::Deadline,
        Self::Cancelled,
        Self::NodeDown,
        Self::Lost,
        Self::ReplyLost,
        Self::Orphaned,
        Self::Unreachable,
        Self::Protocol,
        Self::ShuttingDown,
        Self::ResourceExhausted,
        Self::StaleEpoch,
    ];

    /// A word for it, of letters and underscores, as in labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Panicked => "panicked",
            Self::Dropped => "dropped",
            Self::Overloaded => "overloaded",
            Self::UnknownMethod => "unknown_method",
            Self::BadRequest => "bad_request",
            Self::PathTooDeep => "path_too_deep",
            Self::TooManyBranches => "too_many_branches",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::NodeDown => "node_down",
            Self::Lost => "lost",
            Self::ReplyLost => "reply_lost",
            Self::Orphaned => "orphaned",
            Self::Unreachable => "unreachable",
            Self::Protocol => "protocol",
            Self::ShuttingDown => "shutting_down",
            Self::ResourceExhausted => "resource_exhausted",
            Self::StaleEpoch => "stale_epoch",
        }
    }

    /// From 1, in the order of `ALL`; 0 means "did not fail" in an entry.
    pub(super) fn to_wire(self) -> u8 {
        let index =
            Self::ALL.iter().position(|cause| *cause == self).expect("ALL lists every cause");
        u8::try_from(index + 1).expect("there are fewer than 255 causes")
    }

    pub(super) fn from_wire(value: u8) -> Result<Self, WireError> {
        let index = usize::from(value).checked_sub(1).ok_or(WireError::Invalid)?;
        Self::ALL.get(index).copied().ok_or(WireError::Invalid)
    }
}

/// Execution of a failed task: it may have had effects, unless this is [`Self::No`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Executed {
    /// It never ran and never will: repeating it is safe.
    No,
    /// It ran.
    Yes,
    /// Unknown: it may have run, wholly, partly or not at all.
    Maybe,
}

/// The branch named in the header failed. Typically 36 bytes, the text and the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fail {
    /// Reason.
    pub cause: Cause,
    /// Its execution, as far as known.
    pub executed: Executed,
    /// The application's code, 0 for other causes.
    pub code: u32,
    /// The node at which it failed, when that is not the sender.
    pub node: Option<NodeId>,
    /// For people; at most 4 KiB.
    pub text: String,
    /// The task's declaration until then: its children still count.
    pub entry: Option<Box<Entry>>,
    /// The children are cancelled too: close the subtree.
    pub aborts_children: bool,
    /// Entries of ancestors.
    pub inherited: Vec<Sealed>,
    /// Metadata of the failure and the like; absent costs nothing.
    pub extensions: Vec<Extension>,
    /// Details of the application.
    pub details: Bytes,
}

impl Fail {
    /// Bytes of what it may do without: details and metadata.
    pub(crate) fn optional_len(&self) -> usize {
        let extensions = self.extensions.iter().map(|extension| extension.value.len());
        self.details.len() + extensions.sum::<usize>()
    }

    /// Drops what it may do without.
    pub(crate) fn shorten(&mut self) {
        (self.details, self.extensions) = (Bytes::new(), Vec::new());
    }

    pub(super) fn flags(&self) -> u8 {
        let abort = if self.aborts_children { FLAG_ABORT_CHILDREN } else { 0 };
        let entry = if self.entry.is_some() { FLAG_ENTRY } else { 0 };
        let extensions = if self.extensions.is_empty() { 0 } else { FLAG_EXTENSIONS };
        abort | entry | extensions
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        out.u8(self.cause.to_wire());
        out.u8(self.executed as u8);
        out.u32(self.code);
        out.optional_node(self.node);
        out.short_bytes(cut(&self.text).as_bytes());
        if let Some(entry) = &self.entry {
            entry.write(out);
        }
        write_sealed(&self.inherited, out);
        if !self.extensions.is_empty() {
            write_extensions(&self.extensions, out);
        }
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if flags & !(FLAG_ABORT_CHILDREN | FLAG_ENTRY | FLAG_EXTENSIONS) != 0 {
            return Err(WireError::Reserved);
        }
        let cause = Cause::from_wire(input.u8()?)?;
        let executed = match input.u8()? {
            0 => Executed::No,
            1 => Executed::Yes,
            2 => Executed::Maybe,
            _ => return Err(WireError::Invalid),
        };
        let (code, node) = (input.u32()?, input.optional_node()?);
        let text = input.text(TEXT_BYTES_MAX)?.to_owned();
        let has_entry = flags & FLAG_ENTRY != 0;
        let entry = has_entry.then(|| Entry::read(input)).transpose()?.map(Box::new);
        let aborts_children = flags & FLAG_ABORT_CHILDREN != 0;
        let inherited = read_sealed(input)?;
        let has_extensions = flags & FLAG_EXTENSIONS != 0;
        let extensions = if has_extensions { read_extensions(input)? } else { Vec::new() };
        input.payload();
        let details = Bytes::new();
        Ok(Self {
            cause,
            executed,
            code,
            node,
            text,
            entry,
            aborts_children,
            inherited,
            extensions,
            details,
        })
    }
}

/// The text within the bound: a longer one ends in an ellipsis, not in the middle of a character.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    cut_to(text, TEXT_BYTES_MAX)
}

/// The text within so many bytes, likewise.
pub(crate) fn cut_to(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let mut end = bytes_max - ELLIPSIS.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned([&text[..end], ELLIPSIS].concat())
}

const ELLIPSIS: &str = "…";
