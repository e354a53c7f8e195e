//! The digest that votes carry.

use convoke_core::Digest;
use sha2::{Digest as _, Sha256};

/// The SHA-256 digest of a value.
///
/// A cryptographic one, since members vote for digests: if a faulty member could make two values of
/// one digest, correct members would count votes for different values together.
pub fn digest_of(value: &[u8]) -> Digest {
    Digest(Sha256::digest(value).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sha_256() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(format!("{:?}", digest_of(b"abc")), "ba7816bf8f01cfea");
        assert_ne!(digest_of(b"abc"), digest_of(b"abd"));
    }
}
