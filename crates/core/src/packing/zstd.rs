//! Packing with zstd.

use std::collections::BTreeSet;

use bytes::Bytes;
use convoke_proto::encoded::Encoded;
use convoke_proto::id::{LinkNonce, NodeId};
use convoke_proto::wire::{Extension, extension};
use convoke_transport::parts::Mutex;

use crate::transport::{Connection, Lane};

use super::{FEATURES, FEATURES_BYTES_MAX};

/// Choice of the payloads that an endpoint compresses; see
/// [`EndpointBuilder::compression`](crate::EndpointBuilder::compression).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    bytes_min: usize,
}

impl Compression {
    /// With zstd at its level 1, messages of at least `bytes_min` bytes, and of at least 64. Where
    /// that does not make a message smaller it is sent as it is.
    pub fn zstd_from(bytes_min: usize) -> Self {
        Self { bytes_min: bytes_min.max(64) }
    }

    /// Compresses nothing, and takes what peers compress.
    pub fn accept_only() -> Self {
        Self { bytes_min: usize::MAX }
    }
}

/// Before the length of a packed message: no protobuf message begins so. Then the encoding.
const MARK: [u8; 2] = [0x00, ZSTD];

/// The encodings of packed payloads.
const ZSTD: u8 = 1;

/// The bit of FEATURES: takes packed requests.
const TAKES_ZSTD: u64 = 1;

/// The fastest level but the negative ones: what a message waits for it must be less than what it
/// saves.
const LEVEL: i32 = 1;

/// Packing of an endpoint, and the peers that take it.
#[derive(Debug)]
pub(super) struct Packer {
    how: Compression,
    message_bytes_max: usize,
    /// Connections whose peer said so; bounded by those that are open.
    accepted: Mutex<BTreeSet<(NodeId, LinkNonce)>>,
}

impl Packer {
    pub(super) fn new(how: Compression, message_bytes_max: usize) -> Self {
        Self { how, message_bytes_max, accepted: Mutex::default() }
    }

    pub(super) fn announce(&self, connection: &dyn Connection) {
        let [first, word] = FEATURES;
        let frame = [first, word, u8::try_from(TAKES_ZSTD).expect("one bit")];
        // A connection that is closed already has nobody to tell.
        if connection.append_copy(Lane::Control, &frame, &[]).is_ok() {
            connection.flush();
        }
    }

    pub(super) fn take_features(
        &self,
        node: NodeId,
        link: LinkNonce,
        frame: &[u8],
    ) -> Result<(), String> {
        let features = match frame {
            [_, 0, rest @ ..] if frame.len() <= FEATURES_BYTES_MAX => varint(rest),
            _ => None,
        };
        // Bits that are not known here, and bytes behind them, are for later versions.
        let (features, _) = features.ok_or("its FEATURES frame is malformed")?;
        if features & TAKES_ZSTD != 0 {
            self.accepted.lock().insert((node, link));
        }
        Ok(())
    }

    pub(super) fn forget(&self, node: NodeId, link: LinkNonce) {
        self.accepted.lock().remove(&(node, link));
    }

    pub(super) fn is_accepted_by(&self, node: NodeId) -> bool {
        let links = (node, LinkNonce(0))..=(node, LinkNonce(u64::MAX));
        self.accepted.lock().range(links).next().is_some()
    }

    /// The payload packed, or as it is where that is not smaller. What is above the limit is left
    /// for others to refuse.
    pub(super) fn pack(&self, payload: Encoded) -> Encoded {
        let size = payload.len();
        if size < self.how.bytes_min || size > self.message_bytes_max {
            return payload;
        }
        let mut head = MARK.to_vec();
        put_varint(&mut head, size as u64);
        // It must save something: with less room than the message takes it gives up.
        let mut frame = vec![0; size - head.len()];
        match zstd_safe::compress(&mut frame[..], &payload, LEVEL) {
            Ok(len) => Bytes::from([&head, &frame[..len]].concat()).into(),
            Err(_) => payload,
        }
    }

    /// Bytes of the message in a payload that is packed.
    pub(super) fn unpacked_len(&self, payload: &[u8]) -> Result<Option<usize>, String> {
        payload.strip_prefix(&MARK).map(|rest| self.size_of(rest).map(|(size, _)| size)).transpose()
    }

    /// Bytes of a message that is packed, within the limit, and the zstd frame that it is in.
    fn size_of<'a>(&self, packed: &'a [u8]) -> Result<(usize, &'a [u8]), String> {
        let (size, packed) = varint(packed).ok_or("a packed message has no length")?;
        let limit = self.message_bytes_max;
        match usize::try_from(size).ok().filter(|size| *size <= limit) {
            Some(size) => Ok((size, packed)),
            None => Err(format!(
                "a packed message of {size} bytes is larger than message_bytes_max, {limit}"
            )),
        }
    }

    /// The message of a payload: never more than the limit, and never more than it says.
    pub(super) fn unpack(&self, payload: Bytes) -> Result<Bytes, String> {
        let Some(rest) = payload.strip_prefix(&MARK) else { return Ok(payload) };
        let (size, packed) = self.size_of(rest)?;
        let wrong = |error: &dyn std::fmt::Display| format!("a packed message is damaged: {error}");
        let mut message = vec![0; size];
        // Written in place: what does not fit is an error, and no other memory grows with the
        // message.
        match zstd_safe::decompress(&mut message[..], packed) {
            Ok(len) if len == size => Ok(message.into()),
            Ok(_) => Err(wrong(&"it is shorter than it says")),
            Err(code) => Err(wrong(&zstd_safe::get_error_name(code))),
        }
    }
}

/// Extension of a request whose initiator takes packed replies.
pub(super) fn accepts() -> Extension {
    Extension { tag: extension::ACCEPTS, value: Bytes::from_static(&[ZSTD]) }
}

pub(super) fn is_accepted(extensions: &[Extension]) -> bool {
    extensions.iter().any(|e| e.tag == extension::ACCEPTS && e.value.contains(&ZSTD))
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push((value & 0x7f) as u8);
}

/// A number and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{LastPacked, Packing};
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 100_000;

    fn packer() -> Packer {
        Packer::new(Compression::zstd_from(0), LIMIT)
    }

    fn pack(packer: &Packer, message: Bytes) -> Bytes {
        packer.pack(message.into()).into_bytes()
    }

    #[test]
    fn what_is_packed_is_smaller_and_comes_out_the_same() {
        let message = Bytes::from("the same again and again, ".repeat(1_000));
        let packed = pack(&packer(), message.clone());
        assert!(packed.len() < message.len() / 10, "{} bytes", packed.len());
        assert_eq!(packer().unpack(packed), Ok(message));
    }

    #[test]
    fn the_bytes_on_the_wire_are_these() {
        let packed = pack(&packer(), Bytes::from(vec![7; 300]));
        // Mark, zstd, 300 as a varint, and the magic number of zstd.
        assert_eq!(&packed[..8], b"\x00\x01\xac\x02\x28\xb5\x2f\xfd");
        // Packed by the program zstd at level 3, with a checksum.
        let theirs = b"\x00\x01\xac\x02\x28\xb5\x2f\xfd\x64\x2c\x00\x4d\x00\x00\x10\x07\x07\x01\
            \x00\x27\x2a\xc0\x02\xdb\xc7\x1d\x0c";
        let message = packer().unpack(Bytes::from_static(theirs));
        assert_eq!(message, Ok(Bytes::from(vec![7; 300])));
        assert_eq!(accepts(), Extension { tag: 4, value: Bytes::from_static(b"\x01") });
        assert_eq!(FEATURES, [0x2f, 0]);
    }

    #[test]
    fn what_is_small_or_does_not_shrink_stays_as_it_is() {
        let small = Bytes::from(vec![8; 63]);
        assert_eq!(pack(&packer(), small.clone()), small);
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8 | 8
        });
        let noise: Bytes = noise.take(1_000).collect::<Vec<u8>>().into();
        let kept = pack(&packer(), noise.clone());
        assert!(kept.len() <= noise.len());
        assert_eq!(packer().unpack(kept), Ok(noise));
    }

    #[test]
    fn a_bomb_is_refused_before_it_goes_off() {
        let packer_of_bombs = Packer::new(Compression::zstd_from(0), 64 << 20);
        let bomb = pack(&packer_of_bombs, vec![8; 64 << 20].into());
        assert!(bomb.len() < 64 << 10, "{} bytes", bomb.len());
        let error = packer().unpack(bomb.clone()).expect_err("it says how large it is");
        assert!(error.contains("message_bytes_max, 100000"), "{error}");
        // One that lies about its length is stopped a byte behind it.
        let (_, zstd) = varint(&bomb[2..]).expect("it has a length");
        let mut liar = MARK.to_vec();
        put_varint(&mut liar, 1_000);
        liar.extend_from_slice(zstd);
        let error = packer().unpack(liar.into()).expect_err("it is longer than it says");
        assert!(error.contains("too small"), "{error}");
        let mut liar = MARK.to_vec();
        put_varint(&mut liar, LIMIT as u64);
        liar.extend_from_slice(&pack(&packer(), vec![8; 1_000].into())[4..]);
        let error = packer().unpack(liar.into()).expect_err("it is shorter than it says");
        assert!(error.contains("shorter"), "{error}");
    }

    #[test]
    fn a_message_of_protobuf_is_never_taken_for_packed() {
        let message = prost::Message::encode_to_vec(&String::from("\u{0}\u{1}"));
        let message = Bytes::from(message);
        assert_eq!(packer().unpack(message.clone()), Ok(message));
        assert_eq!(packer().unpack(Bytes::new()), Ok(Bytes::new()));
    }

    #[test]
    fn features_of_a_later_version_are_taken_as_far_as_they_are_known() {
        let packer = packer();
        let node = NodeId::new(1);
        packer.take_features(node, LinkNonce(1), b"\x2f\x00\x02").expect("it is well formed");
        assert!(!packer.is_accepted_by(node));
        packer.take_features(node, LinkNonce(1), b"\x2f\x00\x83\x01more").expect("so is this");
        assert!(packer.is_accepted_by(node));
        packer.forget(node, LinkNonce(1));
        assert!(!packer.is_accepted_by(node));
        for wrong in [&b"\x2f"[..], b"\x2f\x00", b"\x2f\x01\x01", b"\x2f\x00\xff", &[0x2f; 13]] {
            assert!(packer.take_features(node, LinkNonce(1), wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_message_for_many_is_packed_once_and_others_by_themselves() {
        let packing = Packing::new(Some(Compression::zstd_from(64)), 1 << 20);
        let node = NodeId::new(1);
        let features = packing.take(node, LinkNonce(1), b"\x2f\x00\x01");
        assert_eq!(features, Ok(true));
        let mut last = LastPacked::default();
        let mut pack = |message: &Bytes| {
            let mut payload = message.clone().into();
            packing.pack_request(node, &mut payload, &mut last);
            payload.into_bytes()
        };
        let message = Bytes::from(vec![7; 10_000]);
        let first = pack(&message);
        assert!(first.len() < 100, "{} bytes", first.len());
        assert_eq!(pack(&message).as_ptr(), first.as_ptr(), "it is shared");
        let start = pack(&message.slice(..5_000));
        assert_eq!(packing.unpack(start), Ok(message.slice(..5_000)));
        // Their memory is that of those before, once these are gone.
        for byte in 0..100 {
            let message = vec![byte; 10_000];
            let packed = pack(&message.clone().into());
            assert_eq!(packing.unpack(packed), Ok(message.into()));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_message_within_the_limit_or_an_error(
            rest in prop::collection::vec(any::<u8>(), 0..200),
            has_magic: bool,
        ) {
            let magic: &[u8] = if has_magic { b"\xac\x02\x28\xb5\x2f\xfd" } else { b"" };
            let payload = [&MARK[..], magic, &rest].concat();
            if let Ok(message) = packer().unpack(payload.into()) {
                prop_assert!(message.len() <= LIMIT);
            }
        }

        #[test]
        fn a_damaged_message_gives_an_error_or_one_of_its_length(
            at in 4_usize..200, bit in 0_u8..8, repeats in 10_usize..400,
        ) {
            let message = Bytes::from("any text, again, ".repeat(repeats));
            let mut packed = pack(&packer(), message.clone()).to_vec();
            let at = at.min(packed.len() - 1);
            packed[at] ^= 1 << bit;
            if let Ok(found) = packer().unpack(packed.into()) {
                prop_assert!(found.len() <= LIMIT);
            }
        }
    }
}
