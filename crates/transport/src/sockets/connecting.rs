//! Connecting to one of several socket addresses.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::{resolve, send_promptly};
use crate::{Address, DialError};

/// Tries one after the other, until `deadline`. Each gets its share of the time left, so that one
/// which swallows packets leaves some to the next. `none` is the error for no addresses.
///
/// # Errors
/// That of the last attempt.
pub async fn try_each<T, E, F: Future<Output = Result<T, E>>>(
    sockets: &[SocketAddr],
    deadline: Instant,
    none: E,
    mut connect: impl FnMut(SocketAddr, Duration) -> F,
) -> Result<T, E> {
    let mut result = Err(none);
    for (socket, left) in sockets.iter().zip((1..=sockets.len()).rev()) {
        let share = deadline.saturating_duration_since(Instant::now())
            / u32::try_from(left).unwrap_or(u32::MAX);
        result = connect(*socket, share).await;
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Connects over TCP to `host:port` within a time, resolving a name included. The socket sends
/// promptly ([`send_promptly`]).
///
/// # Errors
/// [`io::ErrorKind::TimedOut`], or the system's error.
///
/// # Cancel safety
/// A future dropped before it is ready leaves no connection behind.
pub async fn connect_to(host_and_port: &str, within: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + within;
    let sockets = timeout_at(deadline, resolve(host_and_port)).await??;
    let none = io::ErrorKind::AddrNotAvailable.into();
    let connecting = try_each(&sockets, deadline, none, |socket, share| async move {
        timeout(share, TcpStream::connect(socket)).await?
    });
    let stream = connecting.await?;
    send_promptly(&stream)?;
    Ok(stream)
}

/// As [`connect_to`], for a dial.
///
/// # Errors
/// [`DialError::Timeout`] or [`DialError::Unreachable`].
pub async fn connect(address: &Address, dial_timeout: Duration) -> Result<TcpStream, DialError> {
    let connected = connect_to(address.rest(), dial_timeout).await;
    connected.map_err(|error| unreachable(address, &error))
}

/// Connects over TCP to one socket address of what is dialled within a time. The socket sends
/// promptly ([`send_promptly`]).
///
/// # Errors
/// [`DialError::Timeout`] or [`DialError::Unreachable`].
///
/// # Cancel safety
/// A future dropped before it is ready leaves no connection behind.
pub async fn connect_at(
    address: &Address,
    socket: SocketAddr,
    within: Duration,
) -> Result<TcpStream, DialError> {
    let connected = async {
        let stream = timeout(within, TcpStream::connect(socket)).await??;
        send_promptly(&stream)?;
        Ok(stream)
    };
    connected.await.map_err(|error| unreachable(address, &error))
}

/// The socket addresses of what is dialled, within a time.
///
/// # Errors
/// [`DialError::Timeout`] or [`DialError::Unreachable`].
pub async fn resolve_to_dial(
    address: &Address,
    within: Duration,
) -> Result<Vec<SocketAddr>, DialError> {
    let resolved = async { timeout(within, resolve(address.rest())).await? };
    resolved.await.map_err(|error| unreachable(address, &error))
}

fn unreachable(address: &Address, error: &io::Error) -> DialError {
    match error.kind() {
        io::ErrorKind::TimedOut => DialError::Timeout { address: address.clone() },
        _ => DialError::Unreachable { address: address.clone(), message: error.to_string() },
    }
}
