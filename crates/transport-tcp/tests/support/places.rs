//! Kinds of sockets of this machine without TLS, and fresh addresses to listen at.

use convoke_transport::Address;
use tempfile::TempDir;

/// A kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A port of loopback.
    Tcp,
    /// A file in a folder of its own.
    #[cfg(unix)]
    File,
    /// A name without a file.
    #[cfg(target_os = "linux")]
    Name,
}

/// An address where nobody listens yet, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Place {
    /// The address.
    pub(crate) address: Address,
    _folder: TempDir,
}

impl Kind {
    /// A place of its own.
    pub(crate) fn place(self) -> Place {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        #[cfg(unix)]
        let path = folder.path().to_str().expect("temporary folders have plain names");
        let text = match self {
            Self::Tcp => "tcp://127.0.0.1:0".to_owned(),
            #[cfg(unix)]
            Self::File => format!("unix://{path}/node.sock"),
            // The folder is nobody else's, so the name is neither.
            #[cfg(target_os = "linux")]
            Self::Name => format!("unix://@{path}"),
        };
        Place { address: text.parse().expect("it is an address"), _folder: folder }
    }
}
