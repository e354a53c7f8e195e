//! Accepting connections until that is closed.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::parts::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::resolve;

/// Pause of accepting when the process has no file descriptor or memory for one more.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens.
pub trait Accepts: Send + Sync + 'static {
    /// A connection that it accepts.
    type Stream: Send;

    /// The next connection, once there is one.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Stream>>;
}

impl Accepts for TcpListener {
    type Stream = TcpStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        self.poll_accept(cx).map_ok(|(stream, _)| stream)
    }
}

/// A socket that is accepted from until this is closed or dropped.
#[derive(Debug)]
pub struct Accepting<L> {
    socket: Arc<ListeningSocket<L>>,
    task: AbortHandle,
}

/// The socket, gone once it is closed: so that nobody is accepted after `close` returned.
#[derive(Debug)]
struct ListeningSocket<L>(Mutex<Option<L>>);

impl<L: Accepts> Accepting<L> {
    /// Gives every connection to `admit`, which does not wait: in a task of the current runtime.
    pub fn start(listener: L, admit: impl Fn(L::Stream) + Send + 'static) -> Self {
        let socket = Arc::new(ListeningSocket(Mutex::new(Some(listener))));
        let task = tokio::spawn(accept(Arc::clone(&socket), admit)).abort_handle();
        Self { socket, task }
    }
}

impl<L> Accepting<L> {
    /// Accepts no further connection; open ones stay. Answers whether it was open.
    pub fn close(&self) -> bool {
        let socket = self.socket.0.lock().take();
        self.task.abort();
        socket.is_some()
    }
}

impl<L> Drop for Accepting<L> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<L: Accepts> ListeningSocket<L> {
    /// `None` once it is closed.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<L::Stream>>> {
        match &*self.0.lock() {
            Some(listener) => listener.poll_accept(cx).map(Some),
            None => Poll::Ready(None),
        }
    }
}

async fn accept<L: Accepts>(socket: Arc<ListeningSocket<L>>, admit: impl Fn(L::Stream)) {
    while let Some(accepted) = poll_fn(|cx| socket.poll_accept(cx)).await {
        match accepted {
            Ok(stream) => admit(stream),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept: raise the limit of open files?");
                sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// True when accepting the next one may well work.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Binds the first socket address of `host:port` that can be bound, and has the system queue so
/// many connections.
///
/// # Errors
/// Those of resolving it, or of the last attempt.
pub async fn listen(host_and_port: &str, backlog: u16) -> io::Result<TcpListener> {
    first(&resolve(host_and_port).await?, |socket| bind(socket, backlog))
}

/// The first of the socket addresses that `bind` can bind.
///
/// # Errors
/// That of the last attempt, with what can be done about it.
pub fn first<T>(
    sockets: &[SocketAddr],
    mut bind: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for socket in sockets {
        result = bind(*socket);
        if result.is_ok() {
            break;
        }
    }
    result.map_err(|error| with_remedy(&error))
}

/// The error of binding a socket with what can be done about it.
fn with_remedy(error: &io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another socket has this port: end its program, or take another port; port 0 is any \
             free one"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this host has no such address: listen at one of its own, or at 0.0.0.0 for all of \
             them, and advertise the other"
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not have this port: take one from 1024 on"
        }
        _ => return io::Error::new(error.kind(), error.to_string()),
    };
    io::Error::new(error.kind(), format!("{error}: {remedy}"))
}

/// Binds a TCP socket and has the system queue so many connections.
///
/// # Errors
/// The system's.
pub fn bind(address: SocketAddr, backlog: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted node gets its port back at once. Windows means something else by the option.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // `[::]` is every interface, IPv4 included, whatever the system's default.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog.into())?;
    TcpListener::from_std(socket.into())
}
