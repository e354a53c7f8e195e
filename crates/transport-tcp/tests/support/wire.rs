//! Hellos and frames as TCP has them, byte by byte, and the deeds of an attacker in such bytes.
#![allow(dead_code, reason = "every test uses its own part")]

use bytes::{Buf, BufMut};
use convoke_transport::conformance::{Deed, HARMFUL, VICTIM_FRAME_BYTES_MAX, noise};

/// Kinds of frames.
pub(crate) const LAST: u32 = 0;
pub(crate) const MORE: u32 = 1;
pub(crate) const KEEP_ALIVE: u32 = 2;
pub(crate) const CREDIT: u32 = 3;
pub(crate) const GOODBYE: u32 = 4;

/// Length of a hello without addresses and flows, with its envelope.
pub(crate) const HELLO_BYTES: usize = 14 + 45;

/// A frame of `kind` on a lane (0 control, 1 data).
pub(crate) fn frame(kind: u32, lane: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("test frames are small");
    [&(kind << 29 | lane << 28 | len).to_le_bytes()[..], body].concat()
}

/// The hello of a node with the usual limits.
pub(crate) fn hello(node: u64) -> Vec<u8> {
    hello_with(node, &[])
}

/// The same with more behind it.
pub(crate) fn hello_with(node: u64, more: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u64_le(node);
    body.put_u64_le(1);
    body.put_u64_le(12_345);
    for limit in [1 << 20, 64 << 10, 64 << 10, 1 << 20, 10_000] {
        body.put_u32_le(limit);
    }
    body.put_u8(0);
    body.put_slice(more);
    envelope(1, 0, &body)
}

/// A message of the handshake.
pub(crate) fn envelope(version: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = b"\x93convoke".to_vec();
    message.put_u16_le(version);
    message.put_slice(&[kind, 0]);
    message.put_u16_le(u16::try_from(body.len()).expect("test hellos are short"));
    message.put_slice(body);
    message
}

/// Frames, as (kind, body), whole ones alone.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while bytes.len() >= 4 {
        let word = bytes.get_u32_le();
        let Some((body, after)) = bytes.split_at_checked((word & 0xfff_ffff) as usize) else {
            break;
        };
        frames.push((word >> 29, body.to_vec()));
        bytes = after;
    }
    frames
}

/// A deed in bytes.
pub(crate) struct Said {
    /// A good hello goes before them, and its answer is read.
    pub(crate) is_after_hello: bool,
    pub(crate) bytes: Vec<u8>,
    /// Nothing is waited for.
    pub(crate) leaves: bool,
}

impl Said {
    pub(crate) fn of(deed: Deed) -> Self {
        let (is_after_hello, bytes) = match deed {
            Deed::Garbage => (false, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
            Deed::Silence => (false, Vec::new()),
            Deed::Stalled | Deed::HalfHello => (false, hello(66)[..30].to_vec()),
            Deed::MalformedHello => (false, envelope(1, 0, &hello(66)[14..40])),
            Deed::LongHello => (false, [&envelope(1, 0, &[])[..12], &[0xff; 2]].concat()),
            Deed::AnotherVersion => (false, envelope(9, 0, &[1; 20])),
            Deed::Nobody => (false, hello(0)),
            Deed::Mute => (true, Vec::new()),
            Deed::UnknownKind => (true, frame(5, 0, b"")),
            Deed::OverLimit => (true, frame(LAST, 1, &[0; 64 * 1024 + 1])[..4].to_vec()),
            Deed::Endless => {
                let count = VICTIM_FRAME_BYTES_MAX as usize / 10_000 + 1;
                (true, frame(MORE, 1, &[0; 10_000]).repeat(count))
            }
            Deed::BeyondCredit => (true, frame(LAST, 0, &[0; 30]).repeat(1_000)),
            Deed::UnusedCredit => (true, frame(CREDIT, 1, &1_u32.to_le_bytes())),
            Deed::HalfFrame => {
                (true, [frame(LAST, 1, b"whole"), frame(MORE, 1, b"half a frame")].concat())
            }
            Deed::Goodbye => (true, frame(GOODBYE, 0, HARMFUL)),
            Deed::Noise(seed) => (true, noise(seed, 5_000)),
            other => panic!("a deed that is not done yet: {other:?}"),
        };
        let leaves = matches!(deed, Deed::HalfHello | Deed::HalfFrame | Deed::Noise(_));
        Self { is_after_hello, bytes, leaves }
    }

    /// The text of what was answered to it: of a refusal, or of a goodbye.
    pub(crate) fn told(&self, answer: &[u8]) -> String {
        let text = if self.is_after_hello {
            let goodbye = frames(answer).into_iter().rfind(|(kind, _)| *kind == GOODBYE);
            goodbye.map(|(_, text)| text)
        } else {
            answer.get(14..).map(<[u8]>::to_vec)
        };
        String::from_utf8(text.unwrap_or_default()).expect("it is a text")
    }
}
