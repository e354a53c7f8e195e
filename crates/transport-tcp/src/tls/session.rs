//! Sealing and opening, without waiting.

use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::Connection;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

/// One read takes up to this much: two of the largest records.
const INCOMING_BYTES: usize = 32 * 1024;

/// The state of TLS, and how much of the current write it has sealed.
pub(crate) struct Session {
    connection: Connection,
    sealed: usize,
}

/// Sealed bytes that came and are not yet opened.
pub(crate) struct Incoming {
    buffer: Box<[u8]>,
    unread: Range<usize>,
    is_ended: bool,
    is_fresh: bool,
}

/// Outcome of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// There are bytes, or the peer has ended its direction.
    Ready,
    /// The socket must give more first.
    NeedsMore,
}

impl Session {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, sealed: 0 }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The peer's own first; verified.
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.connection.peer_certificates().unwrap_or_default()
    }

    /// Goes on with the handshake. What follows it stays in `incoming`.
    pub(crate) fn handshake(&mut self, incoming: &mut Incoming) -> Result<(), rustls::Error> {
        while !incoming.unread.is_empty() && self.connection.is_handshaking() {
            self.take_in(incoming)?;
        }
        Ok(())
    }

    /// Opens what has come into `out`, as far as there is room.
    pub(crate) fn open(
        &mut self,
        incoming: &mut Incoming,
        out: &mut ReadBuf<'_>,
    ) -> io::Result<Opened> {
        let before = out.filled().len();
        loop {
            let mut reader = self.connection.reader();
            match reader.fill_buf() {
                Ok([]) => return Ok(Opened::Ready),
                Ok(plain) => {
                    let count = plain.len().min(out.remaining());
                    out.put_slice(&plain[..count]);
                    reader.consume(count);
                }
                // It hung up without saying so, which the connection's own goodbye tells better.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Opened::Ready);
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if incoming.unread.is_empty() && !incoming.is_ended => {
                    let has_grown = out.filled().len() > before;
                    return Ok(if has_grown { Opened::Ready } else { Opened::NeedsMore });
                }
                Err(_) => self.take_in(incoming).map_err(io::Error::other)?,
            }
            if out.remaining() == 0 {
                return Ok(Opened::Ready);
            }
        }
    }

    /// Gives the session some of what has come, or its end.
    fn take_in(&mut self, incoming: &mut Incoming) -> Result<(), rustls::Error> {
        let mut unread = &incoming.buffer[incoming.unread.clone()];
        let count = self.connection.read_tls(&mut unread);
        // It fails only when what was opened is not read, and every caller reads first.
        let count = count.map_err(|error| rustls::Error::General(error.to_string()))?;
        incoming.unread.start += count;
        if count == 0 {
            // The peer has ended its direction; what may follow is not for TLS.
            incoming.unread = 0..0;
        }
        self.connection.process_new_packets().map(|_| ())
    }

    /// Seals `slices` and hands them to the socket. Answers how much of them went out once all that
    /// was sealed has; when it would block, the next write must begin with the same bytes.
    pub(crate) fn write(
        &mut self,
        stream: &TcpStream,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if self.sealed == 0 {
            self.sealed = self.connection.writer().write_vectored(slices)?;
        }
        self.drain(stream)?;
        Ok(std::mem::take(&mut self.sealed))
    }

    /// True when something sealed waits for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Hands what is sealed to the socket.
    pub(crate) fn drain(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut Unblocking(stream))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Tells the peer that nothing follows.
    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

impl Incoming {
    pub(crate) fn new() -> Self {
        let buffer = vec![0; INCOMING_BYTES].into_boxed_slice();
        Self { buffer, unread: 0..0, is_ended: false, is_fresh: true }
    }

    /// True when nothing has come yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    /// Reads more, after all of the last was opened; how much, 0 at the end.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        debug_assert!(self.unread.is_empty(), "what is not opened would be lost");
        let mut out = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(stream).poll_read(cx, &mut out))?;
        let count = out.filled().len();
        self.unread = 0..count;
        self.is_fresh = false;
        self.is_ended = count == 0;
        Poll::Ready(Ok(count))
    }
}

/// The socket as rustls writes to it.
struct Unblocking<'a>(&'a TcpStream);

impl io::Write for Unblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
