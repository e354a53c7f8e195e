//! Length-prefixed frames over any byte stream, for the systems that are nothing but that.
//!
//! A frame is its length (4 bytes, of all that follows), how many items it asks for (4 bytes; none
//! for an echo), a number (8 bytes) and the payload. Both ends write as many frames at once as they
//! have.

use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::drive::Pipe;

/// Length, items, number.
pub(crate) const HEADER_BYTES: usize = 16;
/// Read at once, at most, where nothing larger is expected.
const READ_BYTES: usize = 64 << 10;

/// Appends a frame.
pub(crate) fn put_frame(out: &mut BytesMut, items: u32, id: u64, payload: &[u8]) {
    let len = HEADER_BYTES - 4 + payload.len();
    out.reserve(4 + len);
    out.put_u32_le(u32::try_from(len).expect("payloads of benches are small"));
    out.put_u32_le(items);
    out.put_u64_le(id);
    out.put_slice(payload);
}

/// The first frame, if it is there in full: its length with the header, items, number.
pub(crate) fn first_frame(input: &[u8]) -> Option<(usize, u32, u64)> {
    let mut header = input.get(..HEADER_BYTES)?;
    let len = 4 + usize::try_from(header.get_u32_le()).ok()?;
    (input.len() >= len).then(|| (len, header.get_u32_le(), header.get_u64_le()))
}

/// How much room to make for the next read: the rest of a frame that has begun, at least.
pub(crate) fn room(input: &[u8]) -> usize {
    let begun = input.get(..4).map(|mut len| 4 + len.get_u32_le() as usize);
    begun.unwrap_or_default().saturating_sub(input.len()).max(READ_BYTES)
}

/// Answers frames until the other end closes.
pub(crate) async fn answer(
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Result<()> {
    let mut buffer = BytesMut::new();
    let mut items = BytesMut::new();
    loop {
        buffer.reserve(room(&buffer));
        if input.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let mut echoed = 0;
        while let Some((len, count, id)) = first_frame(&buffer[echoed..]) {
            // Streams and echoes are never mixed on a connection, so their order is no matter.
            for _ in 0..count {
                put_frame(&mut items, 0, id, &buffer[echoed + HEADER_BYTES..echoed + len]);
            }
            echoed += len;
            if count > 0 {
                output.write_all(&items).await?;
                items.clear();
                buffer.advance(echoed);
                echoed = 0;
            }
        }
        if echoed > 0 {
            output.write_all(&buffer[..echoed]).await?;
            buffer.advance(echoed);
        }
    }
}

/// The client's end: writes what is asked for at once, takes what one read brings.
#[derive(Debug)]
pub(crate) struct FramePipe<R, W> {
    input: R,
    output: W,
    payload: Bytes,
    /// Items each request asks for; none for an echo.
    items: u32,
    out: BytesMut,
    buffer: BytesMut,
    /// Items that came of the stream that is being answered.
    came: u32,
}

impl<R, W> FramePipe<R, W> {
    /// A client of this connection.
    pub(crate) fn new(input: R, output: W, payload: Bytes, items: u32) -> Self {
        let (out, buffer) = (BytesMut::new(), BytesMut::new());
        Self { input, output, payload, items, out, buffer, came: 0 }
    }
}

impl<R, W> Pipe for FramePipe<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    async fn send(&mut self, ids: &[u64]) -> Result<()> {
        self.out.clear();
        for id in ids {
            put_frame(&mut self.out, self.items, *id, &self.payload);
        }
        self.output.write_all(&self.out).await.context("cannot write")
    }

    async fn receive(&mut self, ids: &mut Vec<u64>) -> Result<()> {
        while ids.is_empty() {
            self.buffer.reserve(room(&self.buffer));
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server has closed the connection");
            }
            let mut taken = 0;
            while let Some((len, _, id)) = first_frame(&self.buffer[taken..]) {
                if len != HEADER_BYTES + self.payload.len() {
                    bail!("an answer of {len} bytes");
                }
                taken += len;
                self.came += 1;
                if self.came >= self.items {
                    self.came = 0;
                    ids.push(id);
                }
            }
            self.buffer.advance(taken);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_seen_once_it_is_whole() {
        let mut frame = BytesMut::new();
        put_frame(&mut frame, 3, 9, b"abc");
        for cut in 0..frame.len() {
            assert_eq!(first_frame(&frame[..cut]), None);
        }
        assert_eq!(first_frame(&frame), Some((19, 3, 9)));
        assert_eq!(room(&frame[..4]), READ_BYTES);
    }

    #[tokio::test]
    async fn echoes_and_streams_come_back_numbered() {
        for (items, payload) in [(0, 100_000), (5, 10)] {
            let (client, server) = tokio::io::duplex(1 << 20);
            let (input, output) = tokio::io::split(server);
            let server = tokio::spawn(answer(input, output));
            let (input, output) = tokio::io::split(client);
            let mut pipe = FramePipe::new(input, output, vec![7; payload].into(), items);
            pipe.send(&[4, 2]).await.unwrap();
            let mut ids = Vec::new();
            while ids.len() < 2 {
                let mut some = Vec::new();
                pipe.receive(&mut some).await.unwrap();
                ids.extend(some);
            }
            assert_eq!(ids, [4, 2]);
            drop(pipe);
            server.await.unwrap().unwrap();
        }
    }
}
