//! A socket without manners, and as much of HTTP/2 as it takes to misuse it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::in_time;
use crate::over::{Over, Stream};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames (RFC 9113, section 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
/// Error code of a client that is to calm down (RFC 9113, section 7).
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
/// Flags of HEADERS: the headers are all there.
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) struct Raw(Box<dyn Stream>);

impl Raw {
    pub(crate) async fn connect(over: &Over, address: SocketAddr) -> Self {
        Self(over.connect(address).await.expect("the victim listens"))
    }

    /// Sends bytes; the victim may have closed already.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = in_time(self.0.write_all(bytes)).await;
        let _ = in_time(self.0.flush()).await;
    }

    /// What comes next.
    pub(crate) async fn read_some(&mut self, into: &mut Vec<u8>) {
        let count = in_time(self.0.read_buf(into)).await.expect("the victim speaks on");
        assert!(count > 0, "the victim has closed");
    }

    /// All that comes until the victim closes.
    pub(crate) async fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is an end, too.
        let _ = in_time(self.0.read_to_end(&mut bytes)).await;
        bytes
    }
}

/// A frame: length, type, flags, stream, payload.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("frames of tests are short").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A POST of `/` without a body yet, in indices of HPACK's static table.
pub(crate) fn headers(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &[0x83, 0x84, 0x86])
}

/// A call of a method of gRPC with a deadline, whose message does not follow: headers in HPACK as
/// literals that are not indexed (RFC 7541, section 6.2.2).
pub(crate) fn call(stream: u32, path: &str, timeout: &str) -> Vec<u8> {
    let text = |text: &str| {
        let len = u8::try_from(text.len()).ok().filter(|len| *len < 127).expect("it is short");
        [&[len], text.as_bytes()].concat()
    };
    let named = |name: &str, value: &str| [&[0][..], &text(name), &text(value)].concat();
    let headers = [
        vec![0x83, 0x86], // POST, http
        [&[4][..], &text(path)].concat(),
        named("content-type", "application/grpc"),
        named("grpc-timeout", timeout),
    ];
    frame(HEADERS, END_HEADERS, stream, &headers.concat())
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// The type and payload of every whole frame.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(len) else { break };
        frames.push((head[3], payload));
        bytes = rest;
    }
    frames
}
