//! Uplinks, downlinks and latencies between real hosts, measured and written as the file that
//! `overlay plan` reads.
//!
//! Every host runs the program with the same list. The first of the list tells the others, one
//! after the other, to send to all others at once, then has all others send to each: what comes is
//! the uplink, and the downlink.

mod host;
mod wire;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use console::say;
use convoke_overlay::SITES_MAX;

use self::host::{AGAIN_AFTER, DURATION_MAX, FLOWS_IN_ALL_MAX, FLOWS_MAX, PATIENCE};
use self::wire::{RTT, SEND, STOP, message, read_u64};

/// Arguments of the command.
#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// Which of the sites this host is.
    #[arg(long, value_name = "NAME")]
    me: String,
    /// Every site with the host and port at which its program listens, in the same order
    /// everywhere. The first one measures and writes the file.
    #[arg(long = "site", value_name = "NAME=HOST:PORT", required = true)]
    sites: Vec<Place>,
    /// Address to listen at, if not the one in the list.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Time that each host sends, in seconds: 600 at most.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Connections between each two hosts: 256 at most, and 4,000 from a host to all others.
    #[arg(long, default_value_t = 4)]
    flows: u32,
    /// File to write; at the first site. Default: it is printed.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A site and where its program listens.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    name: String,
    address: String,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').ok_or("give NAME=HOST:PORT")?;
        let is_complete = !name.is_empty() && address.contains(':');
        let place = Self { name: name.into(), address: address.into() };
        if is_complete { Ok(place) } else { Err("give NAME=HOST:PORT".into()) }
    }
}

/// Figures that were found.
#[derive(Debug)]
struct Found {
    /// kbit/s, by site.
    uplink: Vec<u64>,
    downlink: Vec<u64>,
    /// Microseconds, from each to each.
    round_trip: Vec<Vec<u64>>,
}

/// Time in which the programs of the other hosts have to be started.
const START: Duration = Duration::from_secs(300);

impl Measure {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let me = self.sites.iter().position(|place| place.name == self.me);
        let me = me.with_context(|| format!("{:?} is none of the sites", self.me))?;
        self.check()?;
        let places = Arc::new(self.sites.clone());
        let listen = self.listen.as_ref().unwrap_or(&places[me].address);
        let listener =
            TcpListener::bind(listen).with_context(|| format!("cannot listen at {listen}"))?;
        let (over, is_over) = mpsc::channel();
        host::serve(listener, places.clone(), over);
        if me > 0 {
            eprintln!("ready: {} measures", places[0].name);
            return host::wait_for_end(&places[0], &is_over);
        }
        let found = self.measure(&places);
        // Whatever became of it, the others need not wait.
        for place in &places[1..] {
            let stopped = host::connect(&place.address, PATIENCE);
            drop(stopped.and_then(|mut stream| Ok(stream.write_all(&[STOP])?)));
        }
        let text = toml(&places, &found?);
        match &self.out {
            None => say(text.trim_end()),
            Some(path) => std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display())),
        }
    }

    /// Refuses at the start what a host would refuse when all are up.
    fn check(&self) -> anyhow::Result<()> {
        let (sites, seconds, flows) = (&self.sites, self.seconds, self.flows);
        let count = sites.len();
        ensure!(count >= 2, "there is one site: nothing to measure");
        ensure!(count <= SITES_MAX, "there are {count} sites, and {SITES_MAX} at most");
        for (index, place) in sites.iter().enumerate() {
            let is_new = sites[..index].iter().all(|other| other.name != place.name);
            ensure!(is_new, "two sites are named {:?}: give each --site another name", place.name);
        }
        let longest = DURATION_MAX.as_secs_f64();
        ensure!(
            0.0 < seconds && seconds <= longest,
            "--seconds {seconds} is not a time above 0 s, and {longest} s at most"
        );
        ensure!(
            (1..=FLOWS_MAX).contains(&flows),
            "--flows {flows} is not a number from 1 to {FLOWS_MAX}"
        );
        let all = flows as usize * (sites.len() - 1);
        ensure!(
            all <= FLOWS_IN_ALL_MAX,
            "--flows {flows} are {all} from a site to all others: {FLOWS_IN_ALL_MAX} at most"
        );
        Ok(())
    }

    fn measure(&self, places: &[Place]) -> anyhow::Result<Found> {
        for place in places {
            wait_for(place)?;
        }
        let all: Vec<u32> = (0..u32::try_from(places.len())?).collect();
        let (mut uplink, mut downlink, mut round_trip) = (Vec::new(), Vec::new(), Vec::new());
        for (place, me) in places.iter().zip(&all) {
            let mut row = Vec::new();
            for to in &all {
                row.push(if to == me { 0 } else { ask(place, &message(RTT, [*to]), PATIENCE)? });
            }
            round_trip.push(row);
        }
        for (place, me) in places.iter().zip(&all) {
            let others: Vec<u32> = all.iter().copied().filter(|other| other != me).collect();
            let rate = ask(place, &self.send_to(&others), self.sent_within())?;
            eprintln!("{} sends {} Mbit/s to all others", place.name, mbit(rate));
            uplink.push(rate);
        }
        for (to, me) in places.iter().zip(&all) {
            let asked = places.iter().filter(|place| place.name != to.name).map(|place| {
                let (place, request) = (place.clone(), self.send_to(&[*me]));
                let within = self.sent_within();
                thread::spawn(move || ask(&place, &request, within))
            });
            let asked: Vec<_> = asked.collect();
            let mut rate = 0;
            for one in asked {
                rate += one.join().map_err(|_| anyhow::anyhow!("a question panicked"))??;
            }
            eprintln!("{} receives {} Mbit/s of all others", to.name, mbit(rate));
            downlink.push(rate);
        }
        Ok(Found { uplink, downlink, round_trip })
    }

    /// Longest time until a host has sent and says how much.
    fn sent_within(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX).saturating_add(PATIENCE)
    }

    fn send_to(&self, to: &[u32]) -> Vec<u8> {
        #[expect(clippy::cast_possible_truncation, reason = "longer times are refused")]
        #[expect(clippy::cast_sign_loss, reason = "checked to be above 0")]
        let ms = (self.seconds * 1e3).ceil() as u32;
        let count = u32::try_from(to.len()).expect("sites are few");
        message(SEND, [ms, self.flows, count].into_iter().chain(to.iter().copied()))
    }
}

fn wait_for(place: &Place) -> anyhow::Result<TcpStream> {
    let begin = Instant::now();
    while begin.elapsed() < START {
        if let Ok(stream) = host::connect(&place.address, PATIENCE) {
            return Ok(stream);
        }
        thread::sleep(AGAIN_AFTER);
    }
    let connected = host::connect(&place.address, PATIENCE);
    connected.with_context(|| format!("{} has not started the program", place.name))
}

fn ask(place: &Place, request: &[u8], within: Duration) -> anyhow::Result<u64> {
    let asked = || -> anyhow::Result<u64> {
        let mut stream = host::connect(&place.address, within)?;
        stream.write_all(request)?;
        Ok(read_u64(&mut stream)?)
    };
    asked().with_context(|| format!("{} cannot measure: see there", place.name))
}

/// The file that `overlay plan` reads.
fn toml(places: &[Place], found: &Found) -> String {
    let mut text = "# Measured by `overlay measure`. Demands are for you to fill in.\n".to_owned();
    for (index, place) in places.iter().enumerate() {
        let (uplink, downlink) = (mbit(found.uplink[index]), mbit(found.downlink[index]));
        let _ = write!(
            text,
            "\n[[sites]]\nname = {}\nuplink_mbit = {uplink}\ndownlink_mbit = {downlink}\n\
             demand_mbit = 0\n",
            quoted(&place.name)
        );
    }
    text += "\n[latency_ms]\n";
    for (from, row) in places.iter().zip(&found.round_trip) {
        let far = places.iter().zip(row).filter(|(to, _)| to.name != from.name);
        // One way, as half of the round trip.
        let far = far.map(|(to, us)| format!("{} = {:.3}", quoted(&to.name), *us as f64 / 2e3));
        let _ =
            writeln!(text, "{} = {{ {} }}", quoted(&from.name), far.collect::<Vec<_>>().join(", "));
    }
    text
}

/// A name as TOML has it, which takes all that JSON escapes.
fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Never 0: a site that receives nothing is not to be one.
fn mbit(kbit: u64) -> String {
    format!("{:.3}", kbit.max(1) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Network;

    #[test]
    fn the_file_is_read_again_whatever_the_sites_are_called() {
        let names = ["Zu\u{308}rich", "a \"b\" \\c", "\u{a0}\u{200d}"];
        let places = names.map(|name| Place { name: name.to_owned(), address: String::new() });
        let found = Found {
            uplink: vec![1_000; 3],
            downlink: vec![2_000; 3],
            round_trip: vec![vec![500; 3]; 3],
        };
        let network = Network::parse(&toml(&places, &found), false).expect("it is a network");
        assert_eq!(network.names, names);
    }
}
