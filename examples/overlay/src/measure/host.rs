//! One host while it is measured: it takes bulk, sends back echoes, and sends bulk itself when it
//! is told to, to the hosts of its own list and to nobody else.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::Place;
use super::wire::{BULK, ECHO, RTT, SEND, STOP, message, read_u8, read_u32, read_u64, write_u64};

/// Longest that a host is told to send.
const DURATION_MAX: Duration = Duration::from_secs(600);
/// Most flows between two hosts.
const FLOWS_MAX: u32 = 256;
/// Echoes of which the fastest counts.
const ECHOES: usize = 20;
/// Time that a connection may take to be made, or be silent.
const PATIENCE: Duration = Duration::from_secs(20);

/// Serves whoever connects, until one of the hosts says that it is over.
pub(super) fn serve(listener: TcpListener, places: Arc<Vec<Place>>, over: Sender<()>) {
    thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let (places, over) = (places.clone(), over.clone());
            // A connection that fails is its peer's to report.
            thread::spawn(move || drop(answer(stream, &places, &over)));
        }
    });
}

fn answer(mut stream: TcpStream, places: &[Place], over: &Sender<()>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    match read_u8(&mut stream)? {
        ECHO => loop {
            let number = read_u64(&mut stream)?;
            write_u64(&mut stream, number)?;
        },
        BULK => {
            let duration = Duration::from_millis(read_u32(&mut stream)?.into()).min(DURATION_MAX);
            let count = count(&mut stream, duration)?;
            Ok(write_u64(&mut stream, count)?)
        }
        // The rest is for those that measure, too.
        kind => {
            let peer = stream.peer_addr()?.ip();
            ensure!(is_of(places, peer), "{peer} is none of the hosts");
            match kind {
                SEND => {
                    let duration = Duration::from_millis(read_u32(&mut stream)?.into());
                    let (flows, len) = (read_u32(&mut stream)?, read_u32(&mut stream)?);
                    ensure!(duration <= DURATION_MAX && flows <= FLOWS_MAX, "too much at once");
                    let to = (0..len.min(1_000)).map(|_| read_u32(&mut stream));
                    let to: Vec<u32> = to.collect::<io::Result<_>>()?;
                    Ok(write_u64(&mut stream, send(places, &to, duration, flows)?)?)
                }
                RTT => {
                    let to = read_u32(&mut stream)?;
                    Ok(write_u64(&mut stream, round_trip_us(places, to)?)?)
                }
                STOP => Ok(over.send(())?),
                _ => Ok(()),
            }
        }
    }
}

fn is_of(places: &[Place], peer: IpAddr) -> bool {
    let addresses = places.iter().filter_map(|place| place.address.to_socket_addrs().ok());
    addresses.flatten().any(|address| address.ip().to_canonical() == peer.to_canonical())
}

/// Bytes that come in the last three quarters of a time which begins with the first: a flow takes a
/// while until it is as fast as it can be.
fn count(stream: &mut TcpStream, duration: Duration) -> io::Result<u64> {
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 16]);
    let mut begin = None;
    loop {
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        let now = Instant::now();
        let age = now - *begin.get_or_insert(now);
        if (duration / 4..duration).contains(&age) {
            bytes += read as u64;
        }
    }
}

/// Sends to some hosts at the same time. Rate of all together, kbit/s, as it came there.
fn send(places: &[Place], to: &[u32], duration: Duration, flows: u32) -> anyhow::Result<u64> {
    let mut senders = Vec::new();
    for place in to.iter().map(|to| place(places, *to)) {
        let address = place?.address.clone();
        for _ in 0..flows {
            let address = address.clone();
            senders.push(thread::spawn(move || send_one(&address, duration)));
        }
    }
    let mut bytes = 0;
    for sender in senders {
        bytes += sender.join().map_err(|_| anyhow::anyhow!("a flow ended in a panic"))??;
    }
    let counted_us = u64::try_from((duration * 3 / 4).as_micros())?.max(1);
    Ok(u64::try_from(u128::from(bytes) * 8_000 / u128::from(counted_us))?)
}

fn send_one(address: &str, duration: Duration) -> anyhow::Result<u64> {
    let mut stream = connect(address)?;
    stream.write_all(&message(BULK, [u32::try_from(duration.as_millis())?]))?;
    let (begin, buffer) = (Instant::now(), vec![7; 1 << 16]);
    while begin.elapsed() < duration {
        stream.write_all(&buffer)?;
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(read_u64(&mut stream)?)
}

/// The fastest of some round trips to a host, microseconds.
fn round_trip_us(places: &[Place], to: u32) -> anyhow::Result<u64> {
    let mut stream = connect(&place(places, to)?.address)?;
    stream.write_all(&[ECHO])?;
    let mut fastest = Duration::MAX;
    for number in 0..ECHOES {
        let begin = Instant::now();
        write_u64(&mut stream, number as u64)?;
        read_u64(&mut stream)?;
        fastest = fastest.min(begin.elapsed());
    }
    Ok(u64::try_from(fastest.as_micros())?)
}

fn place(places: &[Place], index: u32) -> anyhow::Result<&Place> {
    places.get(index as usize).context("the hosts have different lists of sites")
}

/// # Errors
/// If nobody listens at any address of the name.
pub(super) fn connect(address: &str) -> anyhow::Result<TcpStream> {
    let found = address.to_socket_addrs().with_context(|| format!("{address} is no address"))?;
    let mut last = None;
    for one in found {
        match TcpStream::connect_timeout(&one, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into());
    Err(error).with_context(|| format!("cannot connect to {address}"))
}
