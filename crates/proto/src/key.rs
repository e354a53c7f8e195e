//! Keys of branches: who shows the key of a branch may speak for it and for all below it.
//!
//! The initiator derives the key of each root branch from a secret of its own, and stores none: it
//! computes what it is shown against. A parent derives the keys of its children from its own key,
//! so a holder can speak for what it opened and never for a branch above or beside it. A tail keeps
//! the key of its branch. Every derivation is SipHash-2-4 (Aumasson and Bernstein, *SipHash: a fast
//! short-input PRF*, 2012), whose input begins with a byte that says what is derived.
//!
//! ```text
//!   secret ──(life, call, index)──▶ key of /i ──(index)──▶ key of /i/j ──▶ ..
//!                                       └──(bytes of an entry)──▶ seal of the entry
//! ```
//!
//! Keys are handed out in the clear to the nodes that hold the branch. Where others read the wire,
//! they prove nothing. They are written to no log: `Debug` shows none of their bits.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use crate::id::{CallId, Path};
use crate::mutant::{self, Mutant};
use crate::wire::Asked;

/// Random value that an endpoint draws at its start to derive the keys of its calls: 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(u64, u64);

/// The key of one branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// The first bytes of what is hashed.
const ROOT: u8 = 1;
const CHILD: u8 = 2;
const SEAL: u8 = 3;
const MARK: u8 = 4;

impl Secret {
    /// A secret of these random bits.
    pub const fn new(low: u64, high: u64) -> Self {
        Self(low, high)
    }

    /// The key of a root branch of one of this endpoint's calls.
    pub fn root(&self, call: CallId, index: u32) -> Key {
        let mut input = [0; 21];
        input[0] = ROOT;
        input[1..9].copy_from_slice(&call.origin.0.to_le_bytes());
        input[9..17].copy_from_slice(&call.seq.to_le_bytes());
        let index = if mutant::is(Mutant::OneKeyForCall) { 0 } else { index };
        input[17..].copy_from_slice(&index.to_le_bytes());
        Key(hash(self.0, self.1, &input))
    }

    /// The key of any branch of one of this endpoint's calls; `None` for the root path, which is no
    /// branch.
    pub fn branch(&self, call: CallId, path: &Path) -> Option<Key> {
        let mut indices = path.indices();
        let root = self.root(call, indices.next()?);
        Some(indices.fold(root, Key::child))
    }

    /// True when an answer about a task of one of this endpoint's calls shows its key.
    pub(crate) fn is_answer(&self, call: CallId, asked: &Asked) -> bool {
        self.branch(call, &asked.task.path) == Some(asked.key)
            || mutant::is(Mutant::StatusWithoutKey)
    }

    /// A short name for `input` that nobody else can aim at.
    pub(crate) fn name(&self, input: &[u8]) -> u64 {
        tagged(self.0, self.1, MARK, input)
    }
}

impl Key {
    /// The key of child `index` of this branch.
    #[must_use]
    pub fn child(self, index: u32) -> Self {
        if mutant::is(Mutant::OneKeyForCall) {
            return self;
        }
        let mut input = [0; 5];
        input[0] = CHILD;
        input[1..].copy_from_slice(&index.to_le_bytes());
        Self(hash(self.0, 0, &input))
    }

    /// The key of `below`, given that this is the key of `path`; `None` unless it is there or
    /// below.
    pub fn descend(self, path: &Path, below: &Path) -> Option<Self> {
        Some(path.steps_towards(below)?.fold(self, Self::child))
    }

    /// Proof that the bytes of an entry come from a holder of this branch.
    pub fn seal(self, entry: &[u8]) -> u64 {
        tagged(self.0, 0, SEAL, entry)
    }
}

fn hash(low: u64, high: u64, input: &[u8]) -> u64 {
    SipHasher24::new_with_keys(low, high).hash(input)
}

fn tagged(low: u64, high: u64, tag: u8, input: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(low, high);
    hasher.write_u8(tag);
    hasher.write(input);
    hasher.finish()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;

    /// The key of the reference vectors of SipHash.
    const SECRET: Secret = Secret::new(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
    const CALL: CallId = CallId { origin: Incarnation(0x1122_3344_5566_7788), seq: 70_000 };

    fn path(path: &str) -> Path {
        path.parse().unwrap()
    }

    #[test]
    fn the_hash_is_siphash_2_4() {
        // Appendix A of the paper; of 0, 1 and 8 bytes: `vectors.h` of the reference
        // implementation.
        let input: [u8; 15] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let vectors = [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ];
        for (len, expected) in vectors {
            assert_eq!(hash(SECRET.0, SECRET.1, &input[..len]), expected, "{len} bytes");
        }
        assert_eq!(tagged(SECRET.0, SECRET.1, 0, &input[1..]), vectors[3].1);
    }

    #[test]
    fn derivations_have_known_answers() {
        // By a SipHash-2-4 written out in Python, checked against the vectors above:
        //   root  = sip(SECRET, 01 | origin u64 | seq u64 | index u32), little-endian
        //   child = sip((root, 0), 02 | index u32)
        //   seal  = sip((child, 0), 03 | bytes)
        //   name  = sip(SECRET, 04 | bytes)
        let root = SECRET.root(CALL, 2);
        assert_eq!(root, Key(0x4638_200a_9e2e_4f8f));
        let child = root.child(1);
        assert_eq!(child, Key(0x7728_41bb_6509_e85e));
        assert_eq!(child.seal(b"entry"), 0x010f_7c24_a90c_f72a);
        assert_eq!(SECRET.name(b"entry"), 0x603d_33b3_88db_6f33);
    }

    #[test]
    fn each_branch_has_a_key_of_its_own() {
        let root = SECRET.root(CALL, 2);
        let next = CallId { seq: CALL.seq + 1, ..CALL };
        let stream = CallId { origin: Incarnation(CALL.origin.0 + 1), ..CALL };
        let keys = [
            root,
            SECRET.root(CALL, 3),
            SECRET.root(next, 2),
            SECRET.root(stream, 2),
            Secret::new(SECRET.0, 0).root(CALL, 2),
            root.child(0),
            root.child(1),
            root.child(0).child(0),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn descending_is_a_fold_of_child() {
        let root = SECRET.root(CALL, 2);
        let below = path("/2/0/300/1");
        assert_eq!(root.descend(&path("/2"), &below), Some(root.child(0).child(300).child(1)));
        assert_eq!(root.descend(&below, &below), Some(root));
        assert_eq!(root.descend(&below, &path("/2")), None);
        assert_eq!(root.descend(&path("/3"), &below), None);
        assert_eq!(SECRET.branch(CALL, &below), root.descend(&path("/2"), &below));
        assert_eq!(SECRET.branch(CALL, &path("/2")), Some(root));
        assert_eq!(SECRET.branch(CALL, &Path::root()), None);
    }

    #[test]
    fn one_changed_byte_changes_the_seal() {
        let key = SECRET.root(CALL, 2);
        let entry = [1, 2, 0, 3, 0, 0, 0];
        for at in 0..entry.len() {
            let mut changed = entry;
            changed[at] ^= 1;
            assert_ne!(key.seal(&changed), key.seal(&entry), "byte {at}");
        }
        assert_ne!(key.seal(&entry[..6]), key.seal(&entry));
        assert_ne!(key.child(0).seal(&entry), key.seal(&entry));
    }

    #[test]
    fn no_bit_is_printed() {
        assert_eq!(format!("{SECRET:?} {:?}", Key(7)), "Secret(..) Key(..)");
    }
}
