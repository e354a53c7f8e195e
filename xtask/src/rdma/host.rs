//! The device of a host that has one: where it is, and what the suite must know of it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, bail};

/// A device with an address to reach it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

impl Device {
    /// The first device of this host that has an address, or the one of this name or address.
    ///
    /// # Errors
    /// There is no such device.
    pub(crate) fn find(name: Option<&str>, address: Option<Ipv4Addr>) -> anyhow::Result<Self> {
        find_in(Path::new("/sys/class/infiniband"), name, address)
    }
}

fn find_in(folder: &Path, name: Option<&str>, address: Option<Ipv4Addr>) -> anyhow::Result<Device> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .context("this host has no RDMA device: leave --host out to run in a virtual machine")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|found| name.is_none_or(|name| name == found))
        .collect();
    names.sort();
    for name in &names {
        let addresses = addresses(&folder.join(name).join("ports/1/gids"));
        let fits = |found: &&Ipv4Addr| address.is_none_or(|address| address == **found);
        if let Some(&address) = addresses.iter().find(fits) {
            return Ok(Device { name: name.clone(), address });
        }
    }
    // Over InfiniBand proper, addresses are those of the IP interface beside it.
    if let ([name], Some(address)) = (&names[..], address) {
        return Ok(Device { name: name.clone(), address });
    }
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    bail!(
        "no RDMA device with an IPv4 address (devices: {names}): name both, --device and --address"
    )
}

/// The addresses in the table of a port, of which each entry is a file.
fn addresses(table: &Path) -> Vec<Ipv4Addr> {
    let mut files: Vec<_> = fs::read_dir(table)
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    files.sort();
    files.iter().filter_map(|file| address_of(&fs::read_to_string(file).ok()?)).collect()
}

/// The IPv4 address that an entry stands for, if it is one.
fn address_of(gid: &str) -> Option<Ipv4Addr> {
    let address: std::net::Ipv6Addr = gid.trim().parse().ok()?;
    address.to_ipv4_mapped()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_an_address_when_it_is_mapped() {
        let address = address_of("0000:0000:0000:0000:0000:ffff:0a00:0102\n");
        assert_eq!(address, Some(Ipv4Addr::new(10, 0, 1, 2)));
        assert_eq!(address_of("fe80:0000:0000:0000:5054:00ff:fe00:0001"), None);
        assert_eq!(address_of("0000:0000:0000:0000:0000:0000:0000:0000"), None);
    }

    #[test]
    fn a_host_without_devices_is_told_what_else_to_do() {
        let error = find_in(Path::new("no/such/folder"), None, None).expect_err("there is none");
        assert!(error.to_string().contains("virtual machine"));
    }
}
