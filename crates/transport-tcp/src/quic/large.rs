//! Large frames as they arrive, each on a stream of its own.
//!
//! Streams are accepted in the order in which their frames were announced on the lane, one for
//! each, and read at the same time: at most so many, and of so many bytes together. The oldest is
//! always read, so that whatever waits for it goes on in the end. What is not read stays with QUIC,
//! within the window of its stream.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quinn::{ConnectionError, ReadError, RecvStream};
use tokio::task::JoinSet;

use crate::quic::connection::QuicConnection;
use crate::quic::framing::Fault;

/// Number of pieces that one read takes at most.
const PIECES: usize = 32;

/// Reason why a large frame did not arrive.
#[derive(Debug)]
pub(crate) enum LargeError {
    Fault(Fault),
    Lost(ConnectionError),
}

/// A large frame that is here whole, and the number of its place on the lane.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) number: u64,
    pub(crate) frame: Bytes,
}

/// Large frames that were announced, and what of them is being read.
#[derive(Debug)]
pub(crate) struct LargeFrames {
    connection: Arc<QuicConnection>,
    announced: VecDeque<Announced>,
    reading: JoinSet<Result<Arrived, LargeError>>,
    reading_bytes: usize,
    reading_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Announced {
    number: u64,
    head: Bytes,
    len: usize,
}

impl LargeFrames {
    /// Reads at most `reading_max` frames at once, of at most `bytes_max` bytes unless it is one.
    pub(crate) fn new(
        connection: Arc<QuicConnection>,
        reading_max: usize,
        bytes_max: usize,
    ) -> Self {
        Self {
            connection,
            announced: VecDeque::new(),
            reading: JoinSet::new(),
            reading_bytes: 0,
            reading_max,
            bytes_max,
        }
    }

    /// A frame of `len` bytes that begins with `head` comes on the next stream.
    pub(crate) fn announce(&mut self, number: u64, head: &Bytes, len: usize) {
        // Its own copy, since a slice would keep the datagram it came in.
        let head = Bytes::copy_from_slice(head);
        self.announced.push_back(Announced { number, head, len });
    }

    /// True when there is nothing to wait for.
    pub(crate) fn is_idle(&self) -> bool {
        self.announced.is_empty() && self.reading.is_empty()
    }

    /// The next frame that is whole. `held_bytes` is what is here already and waits for others; it
    /// counts against the bound. Pending for ever when there is nothing to wait for.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped before it is ready.
    pub(crate) async fn next(&mut self, held_bytes: usize) -> Result<Arrived, LargeError> {
        loop {
            let may_start = self.may_start(held_bytes);
            tokio::select! {
                biased;
                Some(joined) = self.reading.join_next() => return self.on_joined(joined),
                stream = self.connection.quic.accept_uni(), if may_start => {
                    self.start(stream.map_err(LargeError::Lost)?);
                }
                else => std::future::pending().await,
            }
        }
    }

    /// No further stream comes: what is being read is the last.
    pub(crate) fn accept_no_more(&mut self) {
        self.announced.clear();
    }

    fn may_start(&self, held_bytes: usize) -> bool {
        let Some(next) = self.announced.front() else { return false };
        let bytes = self.reading_bytes + held_bytes + next.len;
        self.reading.is_empty()
            || (self.reading.len() < self.reading_max && bytes <= self.bytes_max)
    }

    fn start(&mut self, stream: RecvStream) {
        let next = self.announced.pop_front().expect("a stream is accepted for what was announced");
        self.reading_bytes += next.len;
        self.reading.spawn(read(Arc::clone(&self.connection), stream, next));
    }

    fn on_joined(
        &mut self,
        joined: Result<Result<Arrived, LargeError>, tokio::task::JoinError>,
    ) -> Result<Arrived, LargeError> {
        // A task fails to be joined only when the runtime shuts down, and the connection with it.
        let arrived = joined.unwrap_or(Err(LargeError::Lost(ConnectionError::LocallyClosed)))?;
        self.reading_bytes -= arrived.frame.len();
        Ok(arrived)
    }
}

async fn read(
    connection: Arc<QuicConnection>,
    mut stream: RecvStream,
    Announced { number, head, len }: Announced,
) -> Result<Arrived, LargeError> {
    let mut frame = BytesMut::from(&head[..]);
    let mut pieces = [const { Bytes::new() }; PIECES];
    while let Some(count) = stream.read_chunks(&mut pieces).await.map_err(of_read)? {
        let bytes = pieces[..count].iter().map(Bytes::len).sum();
        connection.count_read(bytes);
        if frame.len() + bytes > len {
            let len_there = frame.len() + bytes;
            let fault = Fault::WrongLength { announced: len, len: len_there };
            return Err(LargeError::Fault(fault));
        }
        reserve(&mut frame, bytes, len);
        pieces[..count].iter_mut().for_each(|piece| {
            frame.extend_from_slice(&std::mem::take(piece));
        });
        tokio::task::coop::consume_budget().await;
    }
    if frame.len() != len {
        let fault = Fault::WrongLength { announced: len, len: frame.len() };
        return Err(LargeError::Fault(fault));
    }
    Ok(Arrived { number, frame: frame.freeze() })
}

/// Grows by doubling, never for what is only announced, and never beyond the frame.
fn reserve(frame: &mut BytesMut, bytes: usize, len: usize) {
    if frame.capacity() - frame.len() < bytes {
        let room = len - frame.len();
        frame.reserve(frame.len().max(bytes).min(room));
    }
}

fn of_read(error: ReadError) -> LargeError {
    match error {
        ReadError::ConnectionLost(lost) => LargeError::Lost(lost),
        _ => LargeError::Fault(Fault::GivenUp),
    }
}
