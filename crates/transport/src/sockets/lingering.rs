//! The end of a connection that is given up with words.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// Reads to the peer's end, so that closing with bytes unread does not take the last words back.
pub async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin, grace: Duration) {
    let drained = async {
        stream.shutdown().await?;
        let mut scrap = [0; 1024];
        while stream.read(&mut scrap).await? > 0 {}
        io::Result::Ok(())
    };
    // The connection is given up either way.
    let _ = timeout(grace, drained).await;
}
