//! The two directions of an open connection.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use convoke_transport::parts::Mutex;
use tokio::io::ReadBuf;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::tls::session::{Incoming, Opened, Session};

/// The receiving direction.
pub(crate) struct TlsReadHalf {
    half: OwnedReadHalf,
    session: Arc<Mutex<Session>>,
    incoming: Incoming,
}

/// The sending direction.
pub(crate) struct TlsWriteHalf {
    half: OwnedWriteHalf,
    session: Arc<Mutex<Session>>,
}

impl TlsReadHalf {
    pub(crate) fn new(
        half: OwnedReadHalf,
        session: Arc<Mutex<Session>>,
        incoming: Incoming,
    ) -> Self {
        Self { half, session, incoming }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.open(out)? {
                Opened::Ready => return Poll::Ready(Ok(())),
                Opened::NeedsMore => {
                    ready!(self.incoming.poll_fill(&mut self.half, cx))?;
                }
            }
        }
    }

    fn open(&mut self, out: &mut ReadBuf<'_>) -> io::Result<Opened> {
        let mut session = self.session.lock();
        let opened = session.open(&mut self.incoming, out);
        if session.wants_write() {
            // An answer of TLS itself, to a new key of the peer or to a fault. What the socket does
            // not take now goes out before the next write; when it fails, the writer finds out,
            // too.
            let _ = session.drain(self.half.as_ref());
        }
        opened
    }
}

impl TlsWriteHalf {
    pub(crate) fn new(half: OwnedWriteHalf, session: Arc<Mutex<Session>>) -> Self {
        Self { half, session }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.half.writable().await
    }

    pub(crate) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.session.lock().write(self.half.as_ref(), slices)
    }
}

impl Drop for TlsWriteHalf {
    /// Says that nothing follows, if the socket takes it; the connection's own goodbye came before.
    fn drop(&mut self) {
        let mut session = self.session.lock();
        session.close();
        let _ = session.drain(self.half.as_ref());
    }
}

impl fmt::Debug for TlsReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsReadHalf").field("half", &self.half).finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsWriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsWriteHalf").field("half", &self.half).finish_non_exhaustive()
    }
}
