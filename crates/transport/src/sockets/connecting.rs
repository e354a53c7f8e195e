//! Connecting to one of several socket addresses.

use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::{resolve, send_promptly};
use crate::{Address, DialError, DialLimit};

/// Tries one after the other until `shake_hands` meets who is wanted at one: at another there may
/// be nobody, another node, another program, or a process that hangs. Each has its share of the
/// time to connect that is left, so that one which swallows packets leaves some to the next;
/// shaking hands, which has a bound of its own, takes none of it. `none` is the error for no
/// addresses.
///
/// # Errors
/// That of the last that took the connection, if any did; else that of the last.
pub async fn try_each<C, T, E, Connects, Shakes>(
    sockets: &[SocketAddr],
    mut within: Duration,
    none: E,
    mut connect: impl FnMut(SocketAddr, Duration) -> Connects,
    mut shake_hands: impl FnMut(C) -> Shakes,
) -> Result<T, E>
where
    Connects: Future<Output = Result<C, E>>,
    Shakes: Future<Output = Result<T, E>>,
{
    let (mut answered, mut failed) = (None, none);
    for (socket, left) in sockets.iter().zip((1..=sockets.len()).rev()) {
        let share = within / u32::try_from(left).unwrap_or(u32::MAX);
        let begun = Instant::now();
        let connected = connect(*socket, share).await;
        within = within.saturating_sub(begun.elapsed());
        match connected {
            Ok(connected) => match shake_hands(connected).await {
                Ok(met) => return Ok(met),
                Err(error) => answered = Some(error),
            },
            Err(error) => failed = error,
        }
    }
    Err(answered.unwrap_or(failed))
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
    let begun = Instant::now();
    let sockets = timeout(within, resolve(host_and_port)).await??;
    let none = io::ErrorKind::AddrNotAvailable.into();
    let connect = |socket, share| async move { timeout(share, connect_one(socket)).await? };
    let left = within.saturating_sub(begun.elapsed());
    try_each(&sockets, left, none, connect, |stream| ready(Ok(stream))).await
}

async fn connect_one(socket: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(socket).await?;
    send_promptly(&stream)?;
    Ok(stream)
}

/// Dials over TCP: resolves a name, then connects and shakes hands at one address after the other,
/// as [`try_each`]. The sockets send promptly ([`send_promptly`]).
///
/// # Errors
/// [`DialError`].
///
/// # Cancel safety
/// A future dropped before it is ready leaves no connection behind that has not shaken hands.
pub async fn dial<T, Shakes: Future<Output = Result<T, DialError>>>(
    address: &Address,
    dial_timeout: Duration,
    shake_hands: impl FnMut(TcpStream) -> Shakes,
) -> Result<T, DialError> {
    let begun = Instant::now();
    let sockets = resolve_to_dial(address, dial_timeout).await?;
    let left = dial_timeout.saturating_sub(begun.elapsed());
    dial_at(address, &sockets, (left, dial_timeout), shake_hands).await
}

/// As [`dial`], at these addresses, within what is left of the dial timeout.
///
/// # Errors
/// [`DialError`].
pub async fn dial_at<T, Shakes: Future<Output = Result<T, DialError>>>(
    address: &Address,
    sockets: &[SocketAddr],
    (left, dial_timeout): (Duration, Duration),
    shake_hands: impl FnMut(TcpStream) -> Shakes,
) -> Result<T, DialError> {
    let connect = |socket, share| async move {
        match timeout(share, connect_one(socket)).await {
            Ok(connected) => connected.map_err(|error| unreachable(address, error.to_string())),
            Err(_) => Err(DialLimit::Connect(dial_timeout).passed(address)),
        }
    };
    let none = unreachable(address, "the name has no address".to_owned());
    try_each(sockets, left, none, connect, shake_hands).await
}

/// The socket addresses of what is dialled, within its dial timeout.
///
/// # Errors
/// [`DialError::Unreachable`].
pub async fn resolve_to_dial(
    address: &Address,
    dial_timeout: Duration,
) -> Result<Vec<SocketAddr>, DialError> {
    match timeout(dial_timeout, resolve(address.rest())).await {
        Ok(resolved) => resolved.map_err(|error| unreachable(address, error.to_string())),
        Err(_) => {
            let message = format!("its name could not be resolved within {dial_timeout:?}");
            Err(unreachable(address, message))
        }
    }
}

fn unreachable(address: &Address, message: String) -> DialError {
    DialError::Unreachable { address: address.clone(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts at so many addresses, of which each takes this long to connect; those in `take`
    /// take the connection, and then an hour to refuse it.
    async fn attempts(count: u16, each: Duration, take: &[u16]) -> (Vec<Duration>, u16) {
        let sockets: Vec<SocketAddr> =
            (0..count).map(|port| ([127, 0, 0, 1], port).into()).collect();
        let mut shares = Vec::new();
        let connect = |socket: SocketAddr, share| {
            shares.push(share);
            async move {
                tokio::time::sleep(each.min(share)).await;
                let port = socket.port();
                if take.contains(&port) { Ok(port) } else { Err(port) }
            }
        };
        let refuse = |port| async move {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            Err::<(), _>(port)
        };
        let within = Duration::from_secs(12);
        let met = try_each(&sockets, within, count, connect, refuse).await;
        (shares, met.expect_err("none is the one"))
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_share_of_what_the_others_have_left_of_the_time_to_connect() {
        let seconds = Duration::from_secs;
        let (shares, last) = attempts(3, seconds(60), &[]).await;
        assert_eq!((shares, last), ([seconds(4); 3].into(), 2), "each waits as long as it may");
        let (shares, last) = attempts(3, seconds(0), &[]).await;
        assert_eq!((shares, last), ([4, 6, 12].map(seconds).into(), 2));
        let (shares, answered) = attempts(3, seconds(0), &[0, 1]).await;
        assert_eq!((shares, answered), ([4, 6, 12].map(seconds).into(), 1), "a hello takes none");
        assert_eq!(attempts(0, seconds(0), &[]).await, (Vec::new(), 0));
    }
}
