//! The core of the WAN: takes packets from the tun device of each site, and gives them to the
//! device of their receiver when they have passed the way and the downlink. Some are lost, where
//! the lab wants that.
//!
//! Uplinks are no business of the router: tbf on the device holds packets back where the kernel can
//! tell the sender, as a real link does. One thread does all, since it should run at real-time
//! priority and take little time from the sites.

mod losses;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use convoke_core::time::Timestamp;
use convoke_sim::hose::{Hose, Limits, Sharing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::{DeviceBuilder, SyncDevice};

use self::losses::Losses;
use crate::lab::ADDRESS_NET;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Names of the devices to make, one for each site.
    #[arg(long, value_delimiter = ',')]
    devices: Vec<String>,
    /// One-way latency of each pair of sites, microseconds.
    #[arg(long, value_delimiter = ',')]
    latency_us: Vec<u32>,
    /// Downlink of each site, kbit/s.
    #[arg(long)]
    downlink: u64,
    /// Bytes that may wait for a downlink; more is dropped.
    #[arg(long)]
    queue_bytes: u64,
    /// Probability with which a packet is lost, from 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// The losses that are drawn.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Most packets read from a device before the others get their turn.
const READS_MAX: usize = 64;

/// Largest packet: the MTU of a tun device, with room to spare.
const PACKET_BYTES_MAX: usize = 2_048;

struct Router {
    devices: Vec<SyncDevice>,
    latencies: Vec<Duration>,
    losses: Losses,
    hose: Hose<usize, Vec<u8>>,
    start: Instant,
    /// Buffers to be used again.
    spare: VecDeque<Vec<u8>>,
    late: Lateness,
    unroutable: u64,
}

/// How much later than planned packets were handed over.
#[derive(Default)]
struct Lateness {
    count: u64,
    sum: Duration,
    max: Duration,
}

/// Makes the devices, says `ready`, waits for the first byte on standard input, and routes until it
/// ends.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut router = Router::new(options)?;
    println!("ready");
    io::stdout().flush()?;
    let mut first = [0; 1];
    if rustix::io::read(io::stdin(), &mut first)? == 1 {
        router.route()?;
    }
    let (count, counters) = (router.late.count.max(1), router.hose.counters());
    println!(
        "{} packets and {} lost ones, {} dropped at downlinks, {} not for a site; \
         late by {:?} in the mean, {:?} at most",
        counters.sent,
        router.losses.count(),
        counters.dropped_downlink,
        router.unroutable,
        router.late.sum / u32::try_from(count).unwrap_or(u32::MAX),
        router.late.max,
    );
    Ok(())
}

impl Router {
    fn new(options: &Options) -> anyhow::Result<Self> {
        let sites = options.devices.len();
        anyhow::ensure!(options.latency_us.len() == sites * sites, "a latency for each pair");
        let devices = options.devices.iter().map(|name| open(name)).collect::<Result<_, _>>()?;
        let latencies = options.latency_us.iter().map(|us| Duration::from_micros((*us).into()));
        let mut hose = Hose::new();
        for site in 0..sites {
            let (queue_bytes_max, sharing) = (options.queue_bytes, Sharing::FirstCome);
            let kbit_per_s = Some(options.downlink);
            hose.downlink(site, Limits { kbit_per_s, queue_bytes_max, sharing });
        }
        Ok(Self {
            devices,
            latencies: latencies.collect(),
            losses: Losses::new(options.loss, options.seed, sites * sites),
            hose,
            start: Instant::now(),
            spare: VecDeque::new(),
            late: Lateness::default(),
            unroutable: 0,
        })
    }

    fn route(&mut self) -> anyhow::Result<()> {
        loop {
            self.deliver();
            let ready = self.wait()?;
            if ready.last() == Some(&true) {
                return Ok(());
            }
            for (from, _) in ready.iter().enumerate().filter(|(_, is_ready)| **is_ready) {
                self.read(from);
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    fn deliver(&mut self) {
        let now = self.now();
        while let Some(arrival) = self.hose.poll_arrival(now) {
            self.late.note(now.since(arrival.at));
            // What a device does not take is lost, as on any network.
            let _ = self.devices[arrival.to].send(&arrival.item);
            self.spare.push_back(arrival.item);
        }
    }

    /// Waits for packets. True for each device that has some; the last one stands for the end of
    /// the input.
    fn wait(&self) -> anyhow::Result<Vec<bool>> {
        let until = self.hose.poll_timeout().map(|at| at.since(self.now()));
        let timeout = until.map(Timespec::try_from).transpose().context("a wait has a length")?;
        let stdin = io::stdin();
        let mut polled: Vec<_> =
            self.devices.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
        polled.push(PollFd::new(&stdin, PollFlags::IN));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for packets"),
        }
        Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    fn read(&mut self, from: usize) {
        for _ in 0..READS_MAX {
            let mut packet = self.spare.pop_front().unwrap_or_default();
            packet.resize(PACKET_BYTES_MAX, 0);
            let Ok(len) = self.devices[from].recv(&mut packet) else {
                self.spare.push_back(packet);
                return;
            };
            packet.truncate(len);
            let Some(to) = receiver(&packet).filter(|to| *to < self.devices.len()) else {
                self.unroutable += 1;
                continue;
            };
            let pair = from * self.devices.len() + to;
            if self.losses.take(pair) {
                self.spare.push_back(packet);
                continue;
            }
            let latency = self.latencies[pair];
            self.hose.send(self.now(), from, to, len as u64, latency, packet);
        }
    }
}

impl Lateness {
    fn note(&mut self, late: Duration) {
        self.count += 1;
        self.sum += late;
        self.max = self.max.max(late);
    }
}

fn open(name: &str) -> anyhow::Result<SyncDevice> {
    let builder = DeviceBuilder::new().name(name).enable(false).offload(false);
    let device = builder.build_sync().with_context(|| format!("making the tun device {name}"))?;
    device.set_nonblocking(true)?;
    Ok(device)
}

/// The site that an IPv4 packet is for: its address is the net's and its index plus one.
fn receiver(packet: &[u8]) -> Option<usize> {
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    let [a, b, c, host] = Ipv4Addr::from(address).octets();
    let is_site = packet[0] >> 4 == 4 && [a, b, c] == ADDRESS_NET;
    is_site.then(|| usize::from(host).checked_sub(1)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_to_sites_have_a_receiver() {
        let [a, b, c] = ADDRESS_NET;
        let packet = |version: u8, to: [u8; 4]| {
            let mut packet = vec![0; 40];
            packet[0] = version << 4 | 5;
            packet[16..20].copy_from_slice(&to);
            packet
        };
        assert_eq!(receiver(&packet(4, [a, b, c, 1])), Some(0));
        assert_eq!(receiver(&packet(4, [a, b, c, 9])), Some(8));
        assert_eq!(receiver(&packet(4, [a, b, c, 0])), None);
        assert_eq!(receiver(&packet(4, [224, 0, 0, 22])), None);
        assert_eq!(receiver(&packet(6, [a, b, c, 1])), None);
        assert_eq!(receiver(&[0x45; 19]), None);
    }
}
