//! Keys of members and clients: secret ones in files, public ones as words of the cluster file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use node_kit::cluster::{KeysError, read_secret, write_secret};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::core::{Checker, Signer};

/// An Ed25519 public key, as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

/// The word is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// It has another form.
    #[error("a key is 64 hexadecimal digits, as `pbft keygen` prints it")]
    Form,
    /// It is the public key of nobody: no point of the curve, or one for which anybody can sign, as
    /// of zeros.
    #[error("these digits are no public key of anybody: take the line that `pbft keygen` prints")]
    Nobodys,
}

/// The reason a secret key cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// There is one already, which is not lost for another.
    #[error("{} is there already: keep it, or write the new key to another file", .0.display())]
    Exists(PathBuf),
    /// It cannot be written.
    #[error("cannot write the key {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It cannot be read, or others can read it.
    #[error(transparent)]
    Read(#[from] KeysError),
    /// The file holds something else.
    #[error("{} holds no key", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: NoKey,
    },
    /// The system has no randomness.
    #[error("the system has no randomness for a key")]
    Random,
}

/// A secret key. Nothing prints it.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// A new one, which nobody has.
    ///
    /// # Errors
    /// [`KeyFileError::Random`].
    pub fn generate() -> Result<Self, KeyFileError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| KeyFileError::Random)?;
        Ok(Self(seed))
    }

    /// Writes it into a new file that only its owner can read.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`], [`KeyFileError::Write`].
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let made = folder.map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| write_secret(path, &(hex(&self.0) + "\n"))).map_err(|source| {
            match (source.kind(), path.to_owned()) {
                (io::ErrorKind::AlreadyExists, path) if path.is_file() => {
                    KeyFileError::Exists(path)
                }
                (_, path) => KeyFileError::Write { path, source },
            }
        })
    }

    /// Reads it from a file that nobody else can read.
    ///
    /// # Errors
    /// [`KeyFileError::Read`], [`KeyFileError::Malformed`].
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = read_secret(path)?;
        let malformed = |source| KeyFileError::Malformed { path: path.to_owned(), source };
        parse(text.trim_end()).map(Self).map_err(malformed)
    }

    /// The key that signs.
    pub fn signer(&self) -> Signer {
        Signer::ed25519(self.0)
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        match self.signer().checker() {
            Checker::Ed25519(key) => PublicKey(key),
            _ => PublicKey([0; 32]), // of no file's signer
        }
    }
}

impl PublicKey {
    /// The key that checks.
    pub fn checker(&self) -> Checker {
        Checker::Ed25519(self.0)
    }
}

impl FromStr for PublicKey {
    type Err = NoKey;

    fn from_str(word: &str) -> Result<Self, NoKey> {
        let bytes = parse(word)?;
        let point = CompressedEdwardsY(bytes).decompress();
        // Others are taken by the rules by which replicas agree on signatures (ZIP 215).
        let is_good =
            |point: &EdwardsPoint| !point.is_small_order() && point.compress().to_bytes() == bytes;
        match point.is_some_and(|point| is_good(&point)) {
            true => Ok(Self(bytes)),
            false => Err(NoKey::Nobodys),
        }
    }
}

impl TryFrom<String> for PublicKey {
    type Error = NoKey;

    fn try_from(word: String) -> Result<Self, NoKey> {
        word.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(word: &str) -> Result<[u8; 32], NoKey> {
    let digits: Option<Vec<u32>> = word.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 64).ok_or(NoKey::Form)?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::try_from(pair[0] << 4 | pair[1]).map_err(|_| NoKey::Form)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_file_and_its_word() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("keys/sign.key"), SecretKey::generate().unwrap());
        key.write(&path).unwrap();
        assert_eq!(SecretKey::read(&path).unwrap().public(), key.public());
        assert_eq!(key.public().to_string().parse(), Ok(key.public()));
        assert!(matches!(key.write(&path), Err(KeyFileError::Exists(_))));
    }

    #[test]
    fn other_words_are_no_key() {
        for word in ["", "0", &"0".repeat(63), &"g".repeat(64), &"é".repeat(64)] {
            assert_eq!(word.parse::<PublicKey>(), Err(NoKey::Form));
        }
    }

    /// Anybody can sign for a point of small order, without any secret.
    #[test]
    fn keys_of_nobody_are_refused() {
        let zeros = |first: &str| first.to_owned() + &"0".repeat(64 - first.len());
        let p = "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f";
        let order_8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
        for word in [zeros(""), zeros("01"), zeros("02"), p.into(), order_8.into(), "f".repeat(64)]
        {
            assert_eq!(word.parse::<PublicKey>(), Err(NoKey::Nobodys), "{word}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sign.key");
        SecretKey::generate().unwrap().write(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = SecretKey::read(&path).unwrap_err();
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
}
