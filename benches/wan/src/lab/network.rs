//! Namespaces and devices of the sites. What is made is remembered first, and removed by its own
//! name.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use convoke_overlay::HoseModel;

use super::ADDRESS_NET;

/// The namespaces of a lab. Dropped, they are removed; the devices in them go with the router.
#[derive(Debug)]
pub(super) struct Network {
    names: Names,
    made: Vec<String>,
}

/// Names of the parts of one lab. Two labs on one machine have different names.
#[derive(Clone, Debug)]
pub(super) struct Names {
    id: u32,
}

/// Bytes that may wait for an uplink, beside those that the kernel holds back at the sender, and
/// for a downlink.
pub(super) const QUEUE_BYTES: u64 = 1 << 20;

/// Bytes that tbf may send at once: some packets, or a timer that is late costs throughput.
const BURST_BYTES: u32 = 32 << 10;

impl Names {
    pub(super) fn of_this_process() -> Self {
        Self { id: std::process::id() }
    }

    pub(super) fn namespace(&self, site: usize) -> String {
        format!("convoke-wan-{}-{site}", self.id)
    }

    /// At most 15 characters.
    pub(super) fn device(&self, site: usize) -> String {
        format!("cvw{}s{site}", self.id)
    }

    pub(super) fn address(site: usize) -> String {
        let [a, b, c] = ADDRESS_NET;
        format!("{a}.{b}.{c}.{}", site + 1)
    }
}

impl Network {
    /// Makes a namespace for each site.
    pub(super) fn new(names: &Names, sites: usize) -> anyhow::Result<Self> {
        let mut network = Self { names: names.clone(), made: Vec::new() };
        for site in 0..sites {
            let name = names.namespace(site);
            run("ip", &["netns", "add", &name])?;
            network.made.push(name);
        }
        Ok(network)
    }

    /// Moves the device of each site into its namespace, and gives it address, uplink and
    /// congestion control.
    pub(super) fn connect(&self, model: &HoseModel, congestion: &str) -> anyhow::Result<()> {
        for site in 0..model.sites() {
            let (namespace, device) = (self.names.namespace(site), self.names.device(site));
            let address = format!("{}/24", Names::address(site));
            let rate = format!("{}kbit", model.uplink[site]);
            let (burst, limit) = (BURST_BYTES.to_string(), QUEUE_BYTES.to_string());
            run("ip", &["link", "set", &device, "netns", &namespace])?;
            let inside = |arguments: &[&str]| run("ip", &[&["-n", &namespace], arguments].concat());
            inside(&["address", "add", &address, "dev", &device])?;
            inside(&["link", "set", &device, "up"])?;
            let [a, b, c] = ADDRESS_NET;
            let net = format!("{a}.{b}.{c}.0/24");
            inside(&["route", "replace", &net, "dev", &device, "congctl", congestion])?;
            let tbf = ["tbf", "rate", &rate, "burst", &burst, "limit", &limit];
            let at_root = ["-n", &namespace, "qdisc", "replace", "dev", &device, "root"];
            run("tc", &[&at_root[..], &tbf].concat())?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.made.drain(..) {
            if let Err(error) = run("ip", &["netns", "delete", &name]) {
                eprintln!("left behind: {error:#}");
            }
        }
    }
}

/// Runs a program to its end.
fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let line = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("`{line}` could not be started"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_are_of_one_lab() {
        let names = Names { id: 4_194_304 };
        assert_eq!(names.device(8), "cvw4194304s8");
        assert!(names.device(8).len() <= 15, "longer names are refused by the kernel");
        assert_ne!(names.namespace(1), Names { id: 4 }.namespace(1));
        assert_eq!(Names::address(8), "10.213.77.9");
    }
}
