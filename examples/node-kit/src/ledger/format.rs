//! Bytes of the files: the header of each, and the head of each record.

use bytes::{BufMut, BytesMut};

use super::{Identity, LedgerError};

/// The first bytes of every file.
const MAGIC: [u8; 8] = *b"node-kit";

/// The format that is written, and the only one that is read.
const VERSION: u32 = 1;

/// Length of the header of a file.
pub(super) const HEADER_BYTES: usize = 60;

/// Length of the head of a record.
pub(super) const HEAD_BYTES: usize = 24;

/// In the place of a batch's size: no record, but the word that all before it is durable.
const SEAL: u32 = u32::MAX;

/// Sort of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Segment,
    Snapshot,
}

impl Sort {
    const fn code(self) -> u32 {
        match self {
            Self::Segment => 1,
            Self::Snapshot => 2,
        }
    }
}

/// Header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) sort: Sort,
    pub(super) identity: Identity,
    /// Of a segment: in the order in which they were begun.
    pub(super) number: u64,
    /// Count of records before the first of a segment, or in a snapshot.
    pub(super) position: u64,
    /// Begins every checksum of a head.
    pub(super) salt: u64,
}

impl Header {
    pub(super) fn encode(&self, to: &mut BytesMut) {
        let start = to.len();
        to.put_slice(&MAGIC);
        to.put_u32_le(VERSION);
        to.put_u32_le(self.sort.code());
        let Identity { cluster, node } = self.identity;
        for field in [cluster, node, self.number, self.position, self.salt] {
            to.put_u64_le(field);
        }
        let sum = crc32c::crc32c(&to[start..]);
        to.put_u32_le(sum);
    }

    /// Reads the header of `file`, which has to be one of a sort.
    pub(super) fn decode(file: &str, sort: Sort, bytes: &[u8]) -> Result<Self, LedgerError> {
        let wrong = |reason| LedgerError::Header { file: file.to_owned(), reason };
        let bytes = bytes.first_chunk::<HEADER_BYTES>().ok_or(wrong("the file is too short"))?;
        if bytes[..8] != MAGIC {
            return Err(wrong("it does not begin with the mark of a ledger"));
        }
        let found = u32_at(bytes, 8);
        if found != VERSION {
            return Err(LedgerError::Version { file: file.to_owned(), found, known: VERSION });
        }
        if crc32c::crc32c(&bytes[..HEADER_BYTES - 4]) != u32_at(bytes, HEADER_BYTES - 4) {
            return Err(wrong("its checksum is not that of its bytes"));
        }
        if u32_at(bytes, 12) != sort.code() {
            return Err(wrong("it is of another sort of file"));
        }
        let identity = Identity { cluster: u64_at(bytes, 16), node: u64_at(bytes, 24) };
        let [number, position, salt] = [32, 40, 48].map(|at| u64_at(bytes, at));
        Ok(Self { sort, identity, number, position, salt })
    }
}

/// Head of a record, of a part of a snapshot, or a seal behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) len: u32,
    /// Count of records before it.
    pub(super) position: u64,
    /// Count of records before the batch with which it was written: all these were durable then.
    pub(super) durable: u64,
    pub(super) is_seal: bool,
    sum: u32,
}

impl Head {
    /// Reads a head. `None` where there is none.
    pub(super) fn decode(salt: u64, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEAD_BYTES>()?;
        if sum_of_head(salt, &bytes[4..]) != u32_at(bytes, 0) {
            return None;
        }
        let (len, position, back) = (u32_at(bytes, 4), u64_at(bytes, 8), u32_at(bytes, 16));
        let is_seal = back == SEAL;
        let durable = position.checked_sub(if is_seal { 0 } else { back.into() })?;
        Some(Self { len, position, durable, is_seal, sum: u32_at(bytes, 20) })
    }

    /// True for the bytes that were written with this head.
    pub(super) fn is_of(&self, body: &[u8]) -> bool {
        crc32c::crc32c(body) == self.sum
    }
}

/// Appends a record, or a part of a snapshot.
pub(super) fn encode(salt: u64, position: u64, durable: u64, body: &[u8], to: &mut BytesMut) {
    // A batch of so many records does not fit into memory.
    let back = u32::try_from(position - durable).unwrap_or(SEAL - 1);
    put(salt, position, back, body, to);
}

/// Appends the word that all before it is durable.
pub(super) fn encode_seal(salt: u64, position: u64, to: &mut BytesMut) {
    put(salt, position, SEAL, &[], to);
}

fn put(salt: u64, position: u64, back: u32, body: &[u8], to: &mut BytesMut) {
    let mut head = [0; HEAD_BYTES];
    let len = u32::try_from(body.len()).expect("the length of a record was checked before");
    head[4..8].copy_from_slice(&len.to_le_bytes());
    head[8..16].copy_from_slice(&position.to_le_bytes());
    head[16..20].copy_from_slice(&back.to_le_bytes());
    head[20..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    let sum = sum_of_head(salt, &head[4..]);
    head[..4].copy_from_slice(&sum.to_le_bytes());
    to.reserve(HEAD_BYTES + body.len());
    to.put_slice(&head);
    to.put_slice(body);
}

fn sum_of_head(salt: u64, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), rest)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        sort: Sort::Segment,
        identity: Identity { cluster: 7, node: 3 },
        number: 2,
        position: 5,
        salt: 9,
    };

    fn header() -> BytesMut {
        let mut bytes = BytesMut::new();
        HEADER.encode(&mut bytes);
        bytes
    }

    #[test]
    fn bytes_of_a_file_stay_what_they_are() {
        let mut bytes = header();
        encode(HEADER.salt, 6, 5, b"abc", &mut bytes);
        encode_seal(HEADER.salt, 7, &mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN.concat());
    }

    const GOLDEN: [&str; 7] = [
        "6e6f64652d6b697401000000",
        "010000000700000000000000",
        "030000000000000002000000000000000500000000000000",
        "0900000000000000b2eae2c0",
        "c317258803000000060000000000000001000000b73f4b36",
        "616263",
        "a53906f1000000000700000000000000ffffffff00000000",
    ];

    #[test]
    fn a_header_says_what_is_wrong_with_it() {
        let decode = |bytes: &[u8]| Header::decode("file", Sort::Segment, bytes);
        let bytes = header();
        assert_eq!(decode(&bytes), Ok(HEADER));
        for at in 0..HEADER_BYTES {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let error = decode(&changed).expect_err("a byte is wrong");
            let is_version = matches!(error, LedgerError::Version { .. });
            assert_eq!(is_version, (8..12).contains(&at), "byte {at}: {error}");
        }
        assert!(decode(&bytes[..HEADER_BYTES - 1]).is_err());
        assert!(Header::decode("file", Sort::Snapshot, &bytes).is_err());
    }

    #[test]
    fn a_head_needs_its_salt_and_every_byte() {
        let mut bytes = BytesMut::new();
        encode(9, 6, 5, b"abc", &mut bytes);
        let head = Head::decode(9, &bytes).expect("it was just written");
        assert_eq!((head.position, head.durable, head.len, head.is_seal), (6, 5, 3, false));
        assert!(head.is_of(b"abc") && !head.is_of(b"abd"));
        assert_eq!(Head::decode(8, &bytes), None);
        for at in 0..HEAD_BYTES {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Head::decode(9, &changed), None, "byte {at}");
        }
    }
}
