//! The way a reply came.

/// The way a reply came. A sender that is named by a certificate is as sure as its connection; one
/// whose reply was relayed is what the relay says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From a task of this very node.
    Local,
    /// Over a connection with its sender.
    Direct,
    /// Through another node of the tree, for want of a connection with its sender; or by frames of
    /// which another node has sent one.
    Relayed,
}
