//! Links between processes that can be cut: each listens at a port of its own, and passes on what
//! comes to the process behind it.
//!
//! ```text
//!   process A ──dials──▶ Link A→B ──dials──▶ process B
//!                  forth ─────▶   ◀───── back
//! ```
//! Two processes that may each dial the other have two links. Whoever knows another address of B
//! goes past its link: B must neither print nor advertise one that answers.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes that are taken at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// Chunks on their way, in each direction of a connection, at most.
const CHUNKS_MAX: usize = 1_024;

/// Pause when the system has no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// State of a link. By default all passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// What the dialler says waits, as in a network that loses it: connections stay, and go on
    /// when this ends.
    pub holds_forth: bool,
    /// Words of the dialled wait.
    pub holds_back: bool,
    /// Connections are closed, and so are new ones.
    pub is_broken: bool,
}

impl Passage {
    /// As bad as both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            holds_forth: self.holds_forth || other.holds_forth,
            holds_back: self.holds_back || other.holds_back,
            is_broken: self.is_broken || other.is_broken,
        }
    }
}

/// A link over TCP on the loopback. Dropping it breaks it.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    passage: watch::Sender<Passage>,
    listening: JoinHandle<()>,
}

impl Link {
    /// A link to a process, which need not listen yet. Within a tokio runtime, on which it runs.
    ///
    /// # Errors
    /// The system's, when there are no more ports.
    pub async fn to(target: SocketAddr) -> io::Result<Self> {
        Self::slow(target, Duration::ZERO).await
    }

    /// As [`to`](Self::to), and what is said takes so long, either way; by the timers of the
    /// runtime, so about a millisecond more.
    ///
    /// # Errors
    /// The system's, when there are no more ports.
    pub async fn slow(target: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (passage, seen) = watch::channel(Passage::default());
        let listening = tokio::spawn(listen(listener, Way { target, delay, passage: seen }));
        Ok(Self { address, passage, listening })
    }

    /// Address that is dialled in place of the target's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets pass from now on what is said here.
    pub fn set(&self, passage: Passage) {
        self.passage.send_replace(passage);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// A link as its connections know it.
#[derive(Clone)]
struct Way {
    target: SocketAddr,
    delay: Duration,
    passage: watch::Receiver<Passage>,
}

async fn listen(listener: TcpListener, way: Way) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((near, _)) => {
                    connections.spawn(carry(near, way.clone()));
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

/// Carries a connection until it ends or the link breaks.
async fn carry(near: TcpStream, way: Way) {
    let mut passage = way.passage.clone();
    let carried = pass_both(near, way);
    tokio::select! {
        biased;
        _ = passage.wait_for(|passage| passage.is_broken) => {}
        _ = carried => {} // both ends hear of its end, however it came
    }
}

async fn pass_both(near: TcpStream, way: Way) -> io::Result<()> {
    let mut passage = way.passage.clone();
    is_free(&mut passage, |passage| !passage.holds_forth && !passage.holds_back).await?;
    let far = TcpStream::connect(way.target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let forth = pass(near_in, far_out, &way, |passage| !passage.holds_forth);
    let back = pass(far_in, near_out, &way, |passage| !passage.holds_back);
    tokio::try_join!(forth, back).map(drop)
}

fn pass(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    way: &Way,
    passes: impl Fn(&Passage) -> bool,
) -> impl Future<Output = io::Result<()>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    let (delay, passage) = (way.delay, way.passage.clone());
    async move {
        tokio::try_join!(take(from, sender, delay), give(receiver, to, passage, passes)).map(drop)
    }
}

/// Takes what comes, with the time at which it is due on the other side.
async fn take(
    mut from: impl AsyncRead + Unpin,
    sender: mpsc::Sender<(Instant, Bytes)>,
    delay: Duration,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        let chunk = Bytes::copy_from_slice(&buffer[..count]);
        let is_sent = sender.send((Instant::now() + delay, chunk)).await.is_ok();
        if count == 0 || !is_sent {
            return Ok(());
        }
    }
}

/// Gives out what is due. The empty chunk is the end.
async fn give(
    mut receiver: mpsc::Receiver<(Instant, Bytes)>,
    mut to: impl AsyncWrite + Unpin,
    mut passage: watch::Receiver<Passage>,
    passes: impl Fn(&Passage) -> bool,
) -> io::Result<()> {
    while let Some((due, chunk)) = receiver.recv().await {
        if due > Instant::now() {
            sleep_until(due).await;
        }
        is_free(&mut passage, &passes).await?;
        to.write_all(&chunk).await?;
    }
    to.shutdown().await
}

async fn is_free(
    passage: &mut watch::Receiver<Passage>,
    passes: impl Fn(&Passage) -> bool,
) -> io::Result<()> {
    let waited = passage.wait_for(passes).await;
    waited.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link, one who has dialled it, and who was dialled.
    async fn linked() -> (Link, TcpStream, TcpStream) {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let link = Link::to(target.local_addr().unwrap()).await.unwrap();
        let near = TcpStream::connect(link.address()).await.unwrap();
        let (far, _) = target.accept().await.unwrap();
        (link, near, far)
    }

    async fn heard(stream: &mut TcpStream) -> u8 {
        stream.read_u8().await.unwrap()
    }

    #[tokio::test]
    async fn what_is_held_one_way_comes_when_it_is_free() {
        let (link, mut near, mut far) = linked().await;
        near.write_u8(1).await.unwrap();
        assert_eq!(heard(&mut far).await, 1);
        link.set(Passage { holds_forth: true, ..Passage::default() });
        near.write_u8(2).await.unwrap();
        far.write_u8(3).await.unwrap();
        assert_eq!(heard(&mut near).await, 3);
        // Nothing is there, though it was said before what has come back.
        assert_eq!(far.try_read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        link.set(Passage::default());
        assert_eq!(heard(&mut far).await, 2);
        drop(near);
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_takes_its_time_both_ways() {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let delay = Duration::from_secs(1000);
        let link = Link::slow(target.local_addr().unwrap(), delay).await.unwrap();
        let mut near = TcpStream::connect(link.address()).await.unwrap();
        let (mut far, _) = target.accept().await.unwrap();
        let begun = Instant::now();
        near.write_u8(1).await.unwrap();
        assert_eq!(heard(&mut far).await, 1);
        far.write_u8(2).await.unwrap();
        assert_eq!(heard(&mut near).await, 2);
        assert!(begun.elapsed() >= 2 * delay);
    }

    #[tokio::test]
    async fn a_broken_link_closes_its_connections_and_new_ones_until_it_is_whole() {
        let (link, mut near, mut far) = linked().await;
        link.set(Passage { is_broken: true, ..Passage::default() });
        assert!(matches!(near.read(&mut [0]).await, Ok(0) | Err(_)));
        assert!(matches!(far.read(&mut [0]).await, Ok(0) | Err(_)));
        let mut again = TcpStream::connect(link.address()).await.unwrap();
        assert!(matches!(again.read(&mut [0]).await, Ok(0) | Err(_)));
    }

    #[tokio::test]
    async fn a_process_that_does_not_listen_is_one_that_closes() {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let link = Link::to(target.local_addr().unwrap()).await.unwrap();
        drop(target);
        let mut near = TcpStream::connect(link.address()).await.unwrap();
        assert!(matches!(near.read(&mut [0]).await, Ok(0) | Err(_)));
    }
}
