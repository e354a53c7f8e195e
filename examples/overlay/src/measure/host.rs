//! One host while it is measured: it takes bulk, sends back echoes, and sends bulk itself when it
//! is told to, to the hosts of its own list and to nobody else.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use convoke_overlay::SITES_MAX;

use super::wire::{BULK, ECHO, RTT, SEND, STOP, message, read_u8, read_u32, read_u64, write_u64};
use super::{Place, START};

/// Longest that a host is told to send.
pub(super) const DURATION_MAX: Duration = Duration::from_secs(600);
/// Most flows between two hosts.
pub(super) const FLOWS_MAX: u32 = 256;
/// Most flows from a host to all others, or from all others to it: each is a thread at both ends.
pub(super) const FLOWS_IN_ALL_MAX: usize = 4_000;
/// Most connections that a host serves at once: the flows, a question of each site, and room for
/// strangers.
const CONNECTIONS_MAX: usize = FLOWS_IN_ALL_MAX + SITES_MAX + 96;
/// Echoes of which the fastest counts.
const ECHOES: usize = 20;
/// Time that a connection may take to be made, or be silent, or take nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two attempts to reach a host that may not have started.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Time between two questions whether the first host is still there: 8 bytes each.
const BEAT: Duration = Duration::from_secs(1);
/// Rest after the system had no descriptor for a connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Serves whoever connects, until one of the hosts says that it is over.
pub(super) fn serve(listener: TcpListener, places: Arc<Vec<Place>>, over: Sender<()>) {
    thread::spawn(move || accept(&listener, &places, &over, CONNECTIONS_MAX));
}

/// Takes connections, and closes those that come while `served_max` are served, or that the system
/// has no thread for: the port is open to all.
fn accept(listener: &TcpListener, places: &Arc<Vec<Place>>, over: &Sender<()>, served_max: usize) {
    // One for each connection that is served, and this.
    let served = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(ACCEPT_AGAIN_AFTER);
            continue;
        };
        if Arc::strong_count(&served) > served_max {
            continue;
        }
        let (places, over, served) = (places.clone(), over.clone(), served.clone());
        let answering = thread::Builder::new().spawn(move || {
            if let Err(error) = answer(stream, &places, &over) {
                eprintln!("refused or failed: {error:#}");
            }
            drop(served);
        });
        if let Err(error) = answering {
            eprintln!("no thread for a connection: {error}");
            thread::sleep(ACCEPT_AGAIN_AFTER);
        }
    }
}

/// Waits until the first host says that it is over.
///
/// # Errors
/// It has not started in time, or has gone without a word.
pub(super) fn wait_for_end(first: &Place, is_over: &Receiver<()>) -> anyhow::Result<()> {
    let (begin, mut stream) = (Instant::now(), None);
    let mut was_there = false;
    loop {
        match is_over.recv_timeout(if was_there { BEAT } else { AGAIN_AFTER }) {
            Ok(()) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => bail!("nobody listens any more"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_there(first, &mut stream) {
            was_there = true;
        } else if was_there {
            // Its word may be on its way to the thread that hears it.
            let said = is_over.recv_timeout(BEAT);
            return said.with_context(|| format!("{} has gone without a word", first.name));
        } else if begin.elapsed() > START {
            bail!("{} has not started the program", first.name);
        }
    }
}

/// True when a host sends back an echo. Where a connection was lost, a new one decides.
fn is_there(place: &Place, known: &mut Option<TcpStream>) -> bool {
    if known.as_mut().is_some_and(|stream| echo(stream, 0).is_ok()) {
        return true;
    }
    let connected = || -> anyhow::Result<TcpStream> {
        let mut stream = connect(&place.address, PATIENCE)?;
        stream.write_all(&[ECHO])?;
        echo(&mut stream, 0)?;
        Ok(stream)
    };
    *known = connected().ok();
    known.is_some()
}

fn answer(mut stream: TcpStream, places: &[Place], over: &Sender<()>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // Who goes without a word has seen that this host is there.
    let Ok(kind) = read_u8(&mut stream) else { return Ok(()) };
    match kind {
        ECHO => {
            while let Ok(number) = read_u64(&mut stream) {
                write_u64(&mut stream, number)?;
            }
            Ok(())
        }
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
                    ensure!(len as usize <= SITES_MAX, "too many sites at once");
                    let to = (0..len).map(|_| read_u32(&mut stream));
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
    ensure!(to.len() * flows as usize <= FLOWS_IN_ALL_MAX, "too many flows at once");
    let mut senders = Vec::new();
    for place in to.iter().map(|to| place(places, *to)) {
        let address = place?.address.clone();
        for _ in 0..flows {
            let address = address.clone();
            let sender = thread::Builder::new().spawn(move || send_one(&address, duration));
            senders.push(sender.context("no thread for a flow")?);
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
    let mut stream = connect(address, PATIENCE)?;
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
    let mut stream = connect(&place(places, to)?.address, PATIENCE)?;
    stream.write_all(&[ECHO])?;
    let mut fastest = Duration::MAX;
    for number in 0..ECHOES {
        let begin = Instant::now();
        echo(&mut stream, number as u64)?;
        fastest = fastest.min(begin.elapsed());
    }
    Ok(u64::try_from(fastest.as_micros())?)
}

fn echo(stream: &mut TcpStream, number: u64) -> io::Result<u64> {
    write_u64(stream, number)?;
    read_u64(stream)
}

fn place(places: &[Place], index: u32) -> anyhow::Result<&Place> {
    places.get(index as usize).context("the hosts have different lists of sites")
}

/// A connection that waits so long for an answer.
///
/// # Errors
/// If nobody listens at any address of the name.
pub(super) fn connect(address: &str, answer_within: Duration) -> anyhow::Result<TcpStream> {
    let found = address.to_socket_addrs().with_context(|| format!("{address} is no address"))?;
    let mut last = None;
    for one in found {
        match TcpStream::connect_timeout(&one, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(answer_within))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into());
    Err(error).with_context(|| format!("cannot connect to {address}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn connections_above_the_limit_are_closed_until_one_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (over, _is_over) = mpsc::channel();
        thread::spawn(move || accept(&listener, &Arc::default(), &over, 2));
        let open = || -> anyhow::Result<TcpStream> {
            let mut stream = connect(&address, PATIENCE)?;
            stream.write_all(&[ECHO])?;
            ensure!(echo(&mut stream, 7)? == 7, "another echo");
            Ok(stream)
        };
        let (first, _second) = (open().expect("there is room"), open().expect("there is room"));
        open().expect_err("there is none");
        drop(first);
        // Its thread ends when that has heard of it.
        let end = Instant::now() + PATIENCE;
        while open().is_err() {
            assert!(Instant::now() < end, "no room again");
        }
    }
}
