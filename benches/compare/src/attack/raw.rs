//! A connection without manners: a socket that says what it is told, from an address of its own.
//!
//! It keeps the transport's rules of credit, which cost a peer its connection and nobody else
//! anything; what it says within them is another's choice.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use convoke::transport::Lane;
use convoke_proto::id::{Incarnation, NodeId};
use convoke_proto::wire::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;

use super::class::grant_for;

/// Address that a hostile peer dials from: its share is another one than that of 127.0.0.1.
fn from(peer: usize) -> Ipv4Addr {
    let number = u32::try_from(peer).expect("hostile peers are few");
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 2).to_bits() + number)
}

/// The kind of a frame of the transport that gives credit back.
const CREDIT: u32 = 3;
/// Bytes that a sender may have on their way at first, by the hello: control and data.
const WINDOWS: [u32; 2] = [64 << 10, 1 << 20];
/// Credit goes back when so much has come.
const RETURN_BYTES: u64 = 32 << 10;

/// A connection after its hello.
#[derive(Debug)]
pub(super) struct Raw {
    to: OwnedWriteHalf,
    shared: Arc<Shared>,
    out: BytesMut,
    /// The node at the other end.
    pub(super) peer: NodeId,
    pub(super) life: Incarnation,
}

#[derive(Debug, Default)]
struct Shared {
    credit: [AtomicI64; 2],
    /// Bytes that came and are to be given back, by lane.
    owed: [AtomicU64; 2],
    is_over: AtomicBool,
    /// Credit for replies of which the first part has come, to be sent.
    grants: Mutex<Vec<Bytes>>,
    changed: Notify,
}

/// Treatment of what comes over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// It leaves that in the socket.
    Nothing,
    /// It reads that and drops it.
    Everything,
    /// It reads that, and grants every reply as a whole.
    AndGrants,
}

/// A socket of a hostile peer that has said nothing.
pub(super) async fn dial(peer: usize, to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from(peer), 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Raw {
    /// Says hello as whom it likes. Reads what comes, unless it is one of those who do not.
    pub(super) async fn open(
        (peer, to): (usize, SocketAddr),
        node: u64,
        life: Incarnation,
        reads: Reads,
    ) -> Result<(Self, Option<OwnedReadHalf>)> {
        let mut stream = dial(peer, to).await?;
        stream.write_all(&hello(node, life)).await?;
        let mut head = [0; 14];
        stream.read_exact(&mut head).await?;
        let mut body = vec![0; usize::from(u16::from_le_bytes([head[12], head[13]]))];
        stream.read_exact(&mut body).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        ensure!(head[10] == 0, "refused: {text}");
        let mut body = &body[..];
        let peer = NodeId::try_from(body.get_u64_le()).context("a hello has a node")?;
        let life = Incarnation(body.get_u64_le());
        let (from, to) = stream.into_split();
        let shared = Arc::new(Shared::default());
        for (credit, window) in shared.credit.iter().zip(WINDOWS) {
            credit.store(window.into(), Ordering::Relaxed);
        }
        let unread = match reads {
            Reads::Nothing => Some(from),
            Reads::Everything | Reads::AndGrants => {
                tokio::spawn(read(from, Arc::clone(&shared), reads));
                None
            }
        };
        Ok((Self { to, shared, out: BytesMut::new(), peer, life }, unread))
    }

    /// Appends a frame, for as much credit as it needs. False when the other end has closed.
    pub(super) async fn append(&mut self, lane: Lane, frame: &Frame) -> bool {
        let bytes = frame.to_bytes();
        let cost = cost(&bytes);
        while !self.shared.is_over.load(Ordering::Relaxed) {
            if self.shared.may_send(lane, cost) {
                put(&mut self.out, 0, lane, &bytes);
                return true;
            }
            if !self.flush().await {
                return false;
            }
            // What came meanwhile has left a permit.
            self.shared.changed.notified().await;
        }
        false
    }

    /// Sends what was appended, and credit for what came. False when the other end has closed.
    pub(super) async fn flush(&mut self) -> bool {
        self.put_grants();
        for lane in [Lane::Control, Lane::Data] {
            let owed = self.shared.owed[index(lane)].swap(0, Ordering::Relaxed);
            if let Ok(owed @ 1..) = u32::try_from(owed) {
                put(&mut self.out, CREDIT, lane, &owed.to_le_bytes());
            }
        }
        let written = self.to.write_all(&self.out).await;
        self.out.clear();
        written.is_ok() && !self.shared.is_over.load(Ordering::Relaxed)
    }

    /// Appends what replies are granted, as far as there is room for it.
    fn put_grants(&mut self) {
        let mut grants = self.shared.grants.lock().expect("nobody panics");
        while let Some(grant) = grants.pop() {
            if !self.shared.may_send(Lane::Control, cost(&grant)) {
                return grants.push(grant);
            }
            put(&mut self.out, 0, Lane::Control, &grant);
        }
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.out.len()
    }
}

impl Shared {
    /// Takes credit for a frame, if there is as much.
    fn may_send(&self, lane: Lane, cost: i64) -> bool {
        let credit = &self.credit[index(lane)];
        let is_enough = credit.fetch_sub(cost, Ordering::Relaxed) >= cost;
        if !is_enough {
            credit.fetch_add(cost, Ordering::Relaxed);
        }
        is_enough
    }

    /// A frame has come.
    fn grant(&self, frame: Bytes) {
        let grant = Frame::decode(frame).ok().and_then(grant_for);
        if let Some(grant) = grant {
            self.grants.lock().expect("nobody panics").push(grant.to_bytes());
            self.changed.notify_one();
        }
    }
}

/// Credit that a frame needs.
fn cost(frame: &[u8]) -> i64 {
    i64::try_from(4 + frame.len()).expect("a frame is small")
}

async fn read(mut from: OwnedReadHalf, shared: Arc<Shared>, reads: Reads) {
    // Lanes on which the last chunk was not that of its frame.
    let mut is_within = [false; 2];
    let mut buffer = BytesMut::with_capacity(64 << 10);
    while from.read_buf(&mut buffer).await.is_ok_and(|count| count > 0) {
        while buffer.len() >= 4 {
            let word = u32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            let (kind, lane) = (word >> 29, (word >> 28 & 1) as usize);
            let len = (word & 0xfff_ffff) as usize;
            if buffer.len() < 4 + len {
                buffer.reserve(4 + len);
                break;
            }
            let mut frame = buffer.split_to(4 + len);
            frame.advance(4);
            match kind {
                CREDIT => {
                    let bytes = i64::from(frame.get_u32_le());
                    shared.credit[lane].fetch_add(bytes, Ordering::Relaxed);
                    shared.changed.notify_one();
                }
                0 | 1 => {
                    let cost = 4 + len as u64;
                    let owed = shared.owed[lane].fetch_add(cost, Ordering::Relaxed) + cost;
                    if owed >= RETURN_BYTES {
                        shared.changed.notify_one();
                    }
                    let is_whole = kind == 0 && !is_within[lane];
                    is_within[lane] = kind == 1;
                    if is_whole && reads == Reads::AndGrants {
                        shared.grant(frame.freeze());
                    }
                }
                _ => {}
            }
        }
    }
    shared.is_over.store(true, Ordering::Relaxed);
    shared.changed.notify_one();
}

fn index(lane: Lane) -> usize {
    usize::from(lane == Lane::Data)
}

fn put(out: &mut BytesMut, kind: u32, lane: Lane, body: &[u8]) {
    let len = u32::try_from(body.len()).expect("a frame is small");
    let lane = u32::from(lane == Lane::Data);
    out.put_u32_le(kind << 29 | lane << 28 | len);
    out.put_slice(body);
}

/// A hello with the usual limits.
fn hello(node: u64, life: Incarnation) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u64_le(node);
    body.put_u64_le(life.0);
    body.put_u64_le(node ^ 0x5555_5555);
    for limit in [1 << 20, 64 << 10, WINDOWS[0], WINDOWS[1], 10_000] {
        body.put_u32_le(limit);
    }
    body.put_u8(0);
    let mut message = b"\x93convoke\x01\0\0\0".to_vec();
    message.put_u16_le(u16::try_from(body.len()).expect("a hello is short"));
    message.put_slice(&body);
    message
}
