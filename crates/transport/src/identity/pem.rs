//! From PEM files or texts to certificates and a key.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::identity::IdentityError;

/// Source of certificates, also when they are reloaded.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Files { certificate: PathBuf, key: PathBuf, trust: PathBuf },
    Given,
}

/// Result of one load.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// The node's own certificate, then intermediates; never empty.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) roots: RootCertStore,
    /// Certificates that `roots` is made of.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
}

/// The texts of one load, to see whether they changed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Texts([Vec<u8>; 3]);

impl Source {
    /// Reads and parses; only for files.
    pub(crate) fn read(&self) -> Result<Credentials, IdentityError> {
        self.parse(&self.read_texts()?)
    }

    /// Parses what the files held; only for files.
    pub(crate) fn parse(&self, texts: &Texts) -> Result<Credentials, IdentityError> {
        let Self::Files { certificate, key, trust } = self else {
            return Err(IdentityError::Unusable("it was not given as files".into()));
        };
        let named = |path: &Path| path.display().to_string();
        parse(&texts.0, [named(certificate), named(key), named(trust)])
    }

    /// Reads the texts of the files; empty texts when there are none.
    pub(crate) fn read_texts(&self) -> Result<Texts, IdentityError> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|error| IdentityError::Read {
                path: path.clone(),
                message: unread(path, &error),
            })
        };
        match self {
            Self::Files { certificate, key, trust } => {
                Ok(Texts([read(certificate)?, read(key)?, read(trust)?]))
            }
            Self::Given => Ok(Texts(Default::default())),
        }
    }
}

/// The error of the system, and from where a relative path was looked for.
fn unread(path: &Path, error: &io::Error) -> String {
    match std::env::current_dir() {
        Ok(folder) if path.is_relative() && error.kind() == io::ErrorKind::NotFound => {
            format!("{error}; looked for from {}", folder.display())
        }
        _ => error.to_string(),
    }
}

impl Credentials {
    pub(crate) fn from_pem(
        certificate: &[u8],
        key: &[u8],
        trust: &[u8],
    ) -> Result<Self, IdentityError> {
        let texts = [certificate, key, trust].map(<[u8]>::to_vec);
        parse(&texts, ["the certificate", "the key", "the trusted certificates"].map(String::from))
    }

    pub(crate) fn leaf(&self) -> &CertificateDer<'static> {
        self.chain.first().expect("a chain is never empty")
    }
}

fn parse(texts: &[Vec<u8>; 3], names: [String; 3]) -> Result<Credentials, IdentityError> {
    let [certificate, key, trust] = texts;
    let [of_certificate, of_key, of_trust] = names;
    let chain = certificates(certificate, &of_certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| IdentityError::Pem { what: of_key, message: error.to_string() })?;
    let mut roots = RootCertStore::empty();
    let trusted = certificates(trust, &of_trust)?;
    for root in &trusted {
        roots.add(root.clone()).map_err(|error| IdentityError::Pem {
            what: of_trust.clone(),
            message: error.to_string(),
        })?;
    }
    Ok(Credentials { chain, key, roots, trusted })
}

fn certificates(text: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let wrong = |message: String| IdentityError::Pem { what: what.to_owned(), message };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("there is no certificate in it".into()));
    }
    Ok(found)
}
