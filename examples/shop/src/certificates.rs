//! Certificates for a shop on one machine. In earnest an authority of its own issues them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use convoke::NodeId;
use convoke::transport::Identity;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

/// Issuer of the certificates of one shop.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// One with a new key.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Issues the certificate of a node, into files below `folder`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn issue(&self, node: NodeId, folder: &Path) -> Result<()> {
        let mut params = CertificateParams::default();
        let name = format!("spiffe://shop.example/node/{}", node.get());
        params.subject_alt_names.push(SanType::URI(name.try_into()?));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        let folder = folder_of(node, folder);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("node.pem"), certificate.pem())?;
        write_secret(&folder.join("node.key"), &key.serialize_pem())?;
        fs::write(folder.join("ca.pem"), self.0.pem())?;
        Ok(())
    }
}

/// Writes a file that only its owner can read, in place of one that a set-up which was cut short
/// has left.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Certificate and key by which a node proves itself.
///
/// # Errors
/// When a file is missing or is no certificate or key.
pub fn load(node: NodeId, folder: &Path) -> Result<Identity> {
    let folder = folder_of(node, folder);
    let [certificate, key, trusted] =
        ["node.pem", "node.key", "ca.pem"].map(|file| folder.join(file));
    Ok(Identity::from_pem_files(certificate, key, trusted)?)
}

/// The files of a node.
pub fn folder_of(node: NodeId, folder: &Path) -> PathBuf {
    folder.join(format!("node-{}", node.get()))
}
