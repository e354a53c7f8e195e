//! An authority that issues the keys of a cluster, for demos, benches and tests.

use std::fs;
use std::io;
use std::path::Path;

use convoke::NodeId;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

use super::{Keys, write_secret};

/// Issuer of the certificates of one cluster. In earnest that is a service of its own.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    domain: String,
}

/// Reason why keys were not issued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The trust domain cannot be a part of a name, or there is no randomness.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The files cannot be written.
    #[error("cannot write keys")]
    Write(#[from] io::Error),
}

impl Authority {
    /// One with a new key, for nodes of a trust domain such as `accounts.example`.
    ///
    /// # Errors
    /// [`IssueError::Certificate`].
    pub fn new(domain: impl Into<String>) -> Result<Self, IssueError> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer, domain: domain.into() })
    }

    /// Issues the keys of a node into a folder, which it makes: the key for its owner alone.
    ///
    /// # Errors
    /// [`IssueError`]; also when there are keys already.
    pub fn issue(&self, node: NodeId, folder: &Path) -> Result<Keys, IssueError> {
        let mut params = CertificateParams::default();
        let name = format!("spiffe://{}/node/{}", self.domain, node.get());
        params.subject_alt_names.push(SanType::URI(name.try_into()?));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        fs::create_dir_all(folder)?;
        let keys = Keys::in_folder(folder);
        write_secret(keys.key(), &key.serialize_pem())?;
        fs::write(keys.certificate(), certificate.pem())?;
        fs::write(keys.trust(), self.issuer.pem())?;
        Ok(keys)
    }
}
