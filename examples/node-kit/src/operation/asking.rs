//! A question to a [`Listener`](super::Listener), as a probe or a browser asks it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Time between two questions to one that is not ready.
const PAUSE: Duration = Duration::from_millis(10);

/// Most bytes of an answer that are read: pages and metrics are far below.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Waits until the node at this address says that it is ready.
///
/// # Errors
/// Those of [`get`], and `TimedOut` if it does not within this time.
pub async fn ready(address: SocketAddr, within: Duration) -> io::Result<()> {
    let asking = async {
        while get(address, "/readyz").await?.0 != 200 {
            sleep(PAUSE).await;
        }
        Ok(())
    };
    timeout(within, asking).await?
}

/// The status and the body that a listener at this address gives for a path.
///
/// # Errors
/// Those of the system, and `InvalidData` for what is no answer of HTTP.
pub async fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
    let parted = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()?;
        Some((status, body.to_owned()))
    });
    parted.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is no answer of HTTP"))
}
