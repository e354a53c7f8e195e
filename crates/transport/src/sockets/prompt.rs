//! Sockets that send at once what they are given, and are given little that has to wait.

use std::io;

use tokio::net::TcpStream;

/// Bytes that a socket takes beyond those that the network does, where the system can be told. The
/// rest waits with its writer, where small frames pass large ones, a flow that is slow is seen to
/// be, and what nobody needs any more is dropped. A system that is not told takes megabytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 128 << 10;

/// Sets a socket up: small writes are sent at once, and what the network does not take yet is
/// refused but for 128 KiB (Linux and Android).
///
/// # Errors
/// That of the system.
pub fn send_promptly(stream: &TcpStream) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    stream.set_nodelay(true)
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;
    use crate::sockets::bind;

    /// Bytes that a socket takes while its peer reads nothing.
    async fn taken(is_prompt: bool) -> usize {
        let listener = bind(([127, 0, 0, 1], 0).into(), 8).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let peer = listener.accept().await.unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(200 << 10).unwrap();
        if is_prompt {
            send_promptly(&stream).unwrap();
            assert!(stream.nodelay().unwrap());
        }
        let (block, mut taken) = ([0; 16 << 10], 0);
        while let Ok(count) = stream.try_write(&block) {
            taken += count;
        }
        drop(peer);
        taken
    }

    #[tokio::test]
    async fn a_socket_takes_little_that_has_to_wait() {
        let (prompt, usual) = (taken(true).await, taken(false).await);
        assert!(prompt + (128 << 10) < usual, "{prompt} and {usual} bytes");
    }
}
