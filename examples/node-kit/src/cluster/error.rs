//! Failures of cluster files.

use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(feature = "endpoints")]
use super::KeysError;
use super::text::Defect;

/// A failure of a cluster file: where, what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The file cannot be read.
    #[error("cannot read the cluster file {}: {what}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's message.
        what: String,
    },
    /// The text is no TOML, or has a key or value that it must not have, or lacks one.
    #[error("{}: {what}", Place(.file.as_deref(), *.line))]
    Malformed {
        /// The file, if it was one.
        file: Option<PathBuf>,
        /// Its line, from 1 on.
        line: Option<usize>,
        /// Key and defect.
        what: String,
    },
    /// All is well formed, and does not go together. Everything of that kind that was found.
    #[error("{}", Listed(.file.as_deref(), .found))]
    Contradictory {
        /// The file, if it was one.
        file: Option<PathBuf>,
        /// The statements that contradict each other.
        found: Vec<Contradiction>,
    },
    /// The cluster has no node of this number.
    #[error("the cluster has no node {id}: its nodes are {known:?}")]
    NoNode {
        /// The number.
        id: u64,
        /// Numbers of the nodes that there are.
        known: Vec<u64>,
    },
    /// Certificate or key of a node cannot be used.
    #[cfg(feature = "endpoints")]
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The addresses are of `rdma://`, and this program or this machine has no RDMA.
    #[error("cannot use rdma:// addresses: {what}")]
    Rdma {
        /// The reason, and the remedy.
        what: String,
    },
}

impl ClusterError {
    pub(super) fn malformed(file: Option<&Path>, text: &str, defect: &Defect) -> Self {
        let (line, what) = (defect.line(text), defect.words());
        Self::Malformed { file: file.map(Path::to_owned), line, what }
    }
}

/// Parts of a cluster file that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The line it is seen at, where there is one.
    pub line: Option<usize>,
    /// The parts, and why they do not.
    pub what: String,
}

/// A place as compilers write it: `file:line`.
struct Place<'a>(Option<&'a Path>, Option<usize>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(file), Some(line)) => write!(f, "{}:{line}", file.display()),
            (Some(file), None) => write!(f, "{}", file.display()),
            (None, Some(line)) => write!(f, "line {line}"),
            (None, None) => f.write_str("the cluster"),
        }
    }
}

struct Listed<'a>(Option<&'a Path>, &'a [Contradiction]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.1.iter().enumerate() {
            let gap = if index > 0 { "\n" } else { "" };
            write!(f, "{gap}{}: {}", Place(self.0, one.line), one.what)?;
        }
        Ok(())
    }
}
