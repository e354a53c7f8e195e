//! Certificate and key of a node, in a folder that nobody else can read.

use std::path::{Path, PathBuf};

use convoke::NodeId;
use convoke::transport::{Identity, IdentityError};

use super::secret::refuse_exposed;

/// PEM files by which a node proves itself: its certificate, the key of it, and whom it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    certificate: PathBuf,
    key: PathBuf,
    trust: PathBuf,
}

/// Reason why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The file of the key is missing, or no file.
    #[error("cannot use the key {}: {what}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// Others than its owner can read or change the key.
    #[error(
        "others than its owner can use the key {path}, mode {mode:o}: `chmod 600 {path}`, and \
         renew it if others have been here", path = .path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The certificate proves others.
    #[error("the certificate {} proves {proven:?}, and not node {expected}", .path.display())]
    OfAnother {
        /// The certificate.
        path: PathBuf,
        /// Nodes that it proves.
        proven: Vec<u64>,
        /// The one that was to be proven.
        expected: u64,
    },
    /// Nodes of the cluster take only who proves itself, and there are no keys.
    #[error("the nodes of this cluster take only who proves itself: give keys")]
    Needed,
    /// A file is malformed, or they do not belong together.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl Keys {
    /// `node.pem`, `node.key` and `ca.pem` of a folder.
    pub fn in_folder(folder: impl AsRef<Path>) -> Self {
        let [certificate, key, trust] =
            ["node.pem", "node.key", "ca.pem"].map(|file| folder.as_ref().join(file));
        Self { certificate, key, trust }
    }

    /// The certificate, behind which its intermediates follow.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The key of the certificate.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// Certificates to trust.
    pub fn trust(&self) -> &Path {
        &self.trust
    }

    /// Proof that this is a node, once nobody but its owner can use the key. On systems without
    /// modes of files that is not looked at.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn identity(&self, node: NodeId) -> Result<Identity, KeysError> {
        refuse_exposed(&self.key)?;
        let identity = Identity::from_pem_files(&self.certificate, &self.key, &self.trust)?;
        if !identity.nodes().contains(&node) {
            let proven = identity.nodes().into_iter().map(NodeId::get).collect();
            let (path, expected) = (self.certificate.clone(), node.get());
            return Err(KeysError::OfAnother { path, proven, expected });
        }
        Ok(identity)
    }
}
