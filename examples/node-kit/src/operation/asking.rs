//! A question to a [`Listener`](super::Listener), as a probe or a browser asks it.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Most bytes of an answer that are read: pages and metrics are far below.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

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
