//! Connections and their sink: what a transport gives, and what it hands its frames to.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::{Hello, Lane, Link};

/// A frame as it came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The lane it took.
    pub lane: Lane,
    /// Its bytes; shares the receive buffer where the transport can.
    pub bytes: Bytes,
}

/// Order that a received frame keeps with others of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// With all: it passes none, and none passes it. Where a connection has several flows, a
    /// frame of another [`Sink::group`] that was sent after it may.
    Lane,
    /// With those of the same number, such as the frames of one call, and with those of
    /// [`Order::Lane`].
    Group(u64),
}

/// A frame was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// There is room for more.
    Writable,
    /// Taken, but whoever can wait should now wait for [`Connection::poll_writable`].
    Full,
}

/// A frame was not taken: the lane's buffer is at its hard bound, or the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWritable {
    /// The peer grants no credit and the send buffer is full.
    #[error("the send buffer of the connection is full: the peer does not read")]
    Full,
    /// The frame is larger than the peer takes, or than this end's transport sends.
    #[error("a frame of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// The frame.
        size: usize,
        /// The smaller of what the peer takes and what this end's transport sends.
        limit: usize,
    },
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

/// Reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This end shut down or no longer needed it.
    #[error("closed by this end")]
    Local,
    /// The other end said goodbye, with this text.
    #[error("closed by the peer: {0}")]
    Peer(String),
    /// Nothing came for the keep-alive timeout.
    #[error("nothing received for the keep-alive timeout")]
    KeepAlive,
    /// The other end broke the transport's rules.
    #[error("the peer broke the protocol: {0}")]
    Fault(String),
    /// The network or the operating system.
    #[error("the network failed: {0}")]
    Network(String),
    /// The peer does not read, and the send buffer is at its bound; or others do not, and leave no
    /// room of all send buffers for its next frame.
    #[error("the peer does not read")]
    Overloaded,
    /// Frames over it may be stale: this process was paused for longer than the keep-alive timeout,
    /// or the peer has started again since, as far as can be told: another process under its number
    /// looks the same.
    #[error(
        "stale: this process was paused for too long, or the peer has restarted, or another \
         process has connected under its number: each needs one of its own"
    )]
    Stale,
    /// The peer had only claimed to be a node, and another connection has proven to be that node.
    #[error("another connection has proven to be the node that this one claimed to be")]
    Unproven,
}

impl CloseReason {
    /// True when what was appended is still sent and what still comes is still delivered.
    pub fn is_gentle(&self) -> bool {
        matches!(self, Self::Local | Self::Overloaded)
    }

    /// Name of its kind, as metrics label it; the text that goes with some is for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Peer(_) => "peer",
            Self::KeepAlive => "keep_alive",
            Self::Fault(_) => "fault",
            Self::Network(_) => "network",
            Self::Overloaded => "overloaded",
            Self::Stale => "stale",
            Self::Unproven => "unproven",
        }
    }

    /// Text of the goodbye to the other end.
    pub fn goodbye_text(&self) -> String {
        match self {
            Self::Local => "it shuts down or no longer needs the connection".into(),
            Self::Overloaded => "this end did not read what it sent".into(),
            Self::KeepAlive => "it heard nothing for its keep-alive timeout".into(),
            Self::Stale => "it was paused for too long, or the other has restarted, or another \
                            process has connected under its number: each needs one of its own"
                .into(),
            Self::Unproven => self.to_string(),
            Self::Fault(text) | Self::Peer(text) | Self::Network(text) => text.clone(),
        }
    }
}

/// Traffic of a connection since it opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed to the network.
    pub frames_sent: u64,
    /// Frames handed to the sink.
    pub frames_received: u64,
    /// Bytes handed to the network, headers included.
    pub bytes_sent: u64,
    /// Bytes taken from the network, headers included.
    pub bytes_received: u64,
    /// Write calls to the operating system, where there are any.
    pub writes: u64,
    /// Read calls to the operating system, where there are any.
    pub reads: u64,
    /// The transport's own frames sent (credit, keep-alive), not counted in `frames_sent`.
    pub transport_frames_sent: u64,
}

impl std::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            frames_sent: self.frames_sent + other.frames_sent,
            frames_received: self.frames_received + other.frames_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            writes: self.writes + other.writes,
            reads: self.reads + other.reads,
            transport_frames_sent: self.transport_frames_sent + other.transport_frames_sent,
        }
    }
}

/// Send buffer of a connection, while whoever appends has it alone: see
/// [`Connection::with_buffer`].
pub trait Buffer {
    /// Appends a frame made of copies of `head` and `body`.
    ///
    /// # Errors
    /// [`NotWritable`]; then nothing was taken.
    fn append_copy(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable>;

    /// Appends a frame made of `head` and `body`, without copying a large body where the transport
    /// can.
    ///
    /// # Errors
    /// [`NotWritable`]; then nothing was taken.
    fn append_bytes(
        &mut self,
        lane: Lane,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable>;
}

/// Send buffer of a connection that has ended.
#[derive(Debug)]
pub struct NoBuffer;

impl Buffer for NoBuffer {
    fn append_copy(&mut self, _: Lane, _: &[u8], _: &[u8]) -> Result<Appended, NotWritable> {
        Err(NotWritable::Closed)
    }

    fn append_bytes(&mut self, _: Lane, _: &[u8], _: Bytes) -> Result<Appended, NotWritable> {
        Err(NotWritable::Closed)
    }
}

/// One connection to one peer. Dropping the last handle does not close it; [`Connection::close`]
/// does.
pub trait Connection: Send + Sync + fmt::Debug {
    /// Name, life and bounds of the other end.
    fn link(&self) -> &Link;

    /// Has `act` append frames, one behind the other: it is called once, with the send buffer of
    /// the connection, which nobody else has meanwhile. It calls no connection.
    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer));

    /// Appends one frame, as [`Buffer::append_bytes`].
    ///
    /// # Errors
    /// [`NotWritable`]; then nothing was taken.
    fn append_bytes(
        &self,
        lane: Lane,
        head: &[u8],
        mut body: Bytes,
    ) -> Result<Appended, NotWritable> {
        let mut appended = Err(NotWritable::Closed);
        self.with_buffer(&mut |buffer| {
            appended = buffer.append_bytes(lane, head, std::mem::take(&mut body));
        });
        appended
    }

    /// Appends one frame, as [`Buffer::append_copy`].
    ///
    /// # Errors
    /// [`NotWritable`]; then nothing was taken.
    fn append_copy(&self, lane: Lane, head: &[u8], body: &[u8]) -> Result<Appended, NotWritable> {
        let mut appended = Err(NotWritable::Closed);
        self.with_buffer(&mut |buffer| appended = buffer.append_copy(lane, head, body));
        appended
    }

    /// Sends what was appended, as far as that goes without waiting; the connection sends the rest
    /// by itself. The driver calls it once per batch.
    fn flush(&self);

    /// Ready once everything appended before has been handed to the network, or on close.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready while the lane has room, or on close. Several tasks may wait. The waker of each is
    /// kept until then, also of one that waits no longer: many who come and go wait for one task
    /// that waits here.
    fn poll_writable(&self, lane: Lane, cx: &mut Context<'_>) -> Poll<()>;

    /// Closes: sends what was appended and the reason if the peer takes them within the transport's
    /// grace, then ends. That holds also when both ends close. The sink hears `on_closed` once.
    fn close(&self, reason: CloseReason);

    /// Traffic so far.
    fn counters(&self) -> Counters;
}

/// Receiver of connections and their frames: the endpoint.
pub trait Sink: Send + Sync + fmt::Debug {
    /// Hello of this node to its peers.
    fn hello(&self) -> Hello;

    /// A connection is open, dialled or accepted. Comes before its first batch.
    ///
    /// # Errors
    /// A text when the endpoint does not want it (it shuts down, or the peer claims this node's own
    /// name, or without proof that of a node which is known by proof); the transport then closes it
    /// with that text, and no `on_closed` follows.
    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String>;

    /// Frames of one read, in order; at least one. Never waits on a network or an application. What
    /// it leaves in the iterator is dropped.
    ///
    /// # Errors
    /// A text when the peer broke the call protocol; the transport then closes the connection with
    /// it.
    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String>;

    /// Order that a frame of the data lane keeps, told by its first
    /// [`ORDER_HEAD_BYTES`](crate::ORDER_HEAD_BYTES). Asked only while a frame before it is not
    /// complete: a large one, or one that takes another flow.
    fn order(&self, head: &[u8]) -> Order {
        let _ = head;
        Order::Lane
    }

    /// Group of a frame of the data lane that this end sends, told by its first bytes: frames of
    /// one group keep their order where a connection has several flows. Not asked of one that has
    /// a single flow. Default: that of [`Order::Group`], else one for all.
    fn group(&self, head: &[u8]) -> u64 {
        match self.order(head) {
            Order::Group(group) => group,
            Order::Lane => 0,
        }
    }

    /// The connection ended; nothing follows.
    fn on_closed(&self, link: &Link, reason: CloseReason);

    /// The node is to be as if its process had been killed: it does nothing any more, for itself
    /// neither. Its connections have ended. Only a simulated network says so. Default: nothing.
    fn on_crash(&self) {}
}
