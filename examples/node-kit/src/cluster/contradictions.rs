//! Parts of a cluster file that do not go together.

use std::collections::BTreeSet;
use std::net::IpAddr;

use convoke::transport::Address;

use super::text::unknown;
use super::{Cluster, Contradiction, Node, Protocol, is_secure, rdma};

/// Schemes that the endpoint of a node speaks.
const SCHEMES: [&str; 7] = ["tcp", "unix", "tls", "quic", "grpc", "grpcs", rdma::SCHEME];

/// Largest number that TOML has.
const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

/// All that contradicts itself, in the order of the file. `lines` are those of the nodes.
pub(super) fn contradictions<P: Protocol>(
    cluster: &Cluster<P>,
    lines: &[usize],
) -> Vec<Contradiction> {
    let mut found = Vec::new();
    let mut say = |line: Option<usize>, what: String| found.push(Contradiction { line, what });
    for what in of_all(cluster) {
        say(None, what);
    }
    for (index, node) in cluster.nodes.iter().enumerate() {
        let (line, name) = (lines.get(index).copied(), node.id.get());
        for what in alone::<P>(node) {
            say(line, format!("node {name} {what}"));
        }
        for (other_index, other) in cluster.nodes[..index].iter().enumerate() {
            let first = lines.get(other_index).map(|line| format!(" (line {line})"));
            for what in together(other, node) {
                let first = first.as_deref().unwrap_or_default();
                say(line, format!("nodes {}{first} and {name} {what}", other.id.get()));
            }
        }
    }
    for what in cluster.protocol.contradictions(&cluster.nodes) {
        say(None, format!("protocol: {what}"));
    }
    found
}

/// Of the whole cluster.
fn of_all<P: Protocol>(cluster: &Cluster<P>) -> Vec<String> {
    let mut found = Vec::new();
    if cluster.id == 0 || cluster.id > NUMBER_MAX {
        found.push(format!("cluster.id is a number from 1 to {NUMBER_MAX}: draw one at random"));
    }
    if cluster.name.trim().is_empty() {
        found.push("cluster.name is empty".to_owned());
    }
    if cluster.nodes.is_empty() {
        found.push("there is no [[node]]".to_owned());
    }
    found
}

/// Of one node.
fn alone<P: Protocol>(node: &Node<P::Role>) -> Vec<String> {
    let mut found = Vec::new();
    if node.id.get() > NUMBER_MAX {
        found.push(format!("has an id above {NUMBER_MAX}"));
    }
    if node.addresses.is_empty() {
        found.push("has no address: nobody can dial it".to_owned());
    }
    if node.listen.is_empty() {
        found.push("listens nowhere: give `listen` an address, or leave it out".to_owned());
    }
    for address in node.addresses.iter().chain(&node.listen) {
        if let Some(unbuilt) = rdma::unbuilt().filter(|_| address.scheme() == rdma::SCHEME) {
            found.push(format!("has {address}: {unbuilt}"));
        }
        if !SCHEMES.contains(&address.scheme()) && !P::SCHEMES.contains(&address.scheme()) {
            let known = [&SCHEMES[..], P::SCHEMES].concat();
            found.push(format!("has {address}: {}", unknown("scheme", address.scheme(), &known)));
        }
    }
    found.extend(node.addresses.iter().filter_map(undialable));
    found.extend(of_listening(node));
    found.extend(of_keys(node));
    if let Some(operation) = node.operation.filter(|operation| !operation.ip().is_loopback()) {
        found.push(format!(
            "serves its metrics at {operation}, to whoever comes: only a loopback address, such as \
             127.0.0.1:{}, is allowed",
            operation.port()
        ));
    }
    found.sort();
    found.dedup();
    found
}

/// The reason an address cannot be dialled from elsewhere, as what a node "has".
pub fn undialable(address: &Address) -> Option<String> {
    let rest = address.rest();
    if !matches!(address.scheme(), "tcp" | "tls" | "quic" | "grpc" | "grpcs" | "rdma") {
        return None;
    }
    let (host, port) = rest.rsplit_once(':').unwrap_or((rest, ""));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip = bare.parse::<IpAddr>().ok();
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_odd = host.contains(char::is_whitespace) || host.split('.').all(is_number);
    if matches!(host, "*" | "") || ip.is_some_and(|ip| ip.is_unspecified()) {
        return Some(format!(
            "has {address}, which is every address: others need one, this is for `listen`"
        ));
    }
    match port.parse::<u16>() {
        _ if ip.is_none() && is_odd => {
            Some(format!("has {address}, whose host is no name and no IP address"))
        }
        Ok(0) => {
            Some(format!("has {address}, whose port the system chooses: others cannot know it"))
        }
        Ok(_) => None,
        Err(_) => Some(format!("has {address}, without a port: a number from 1 to 65535")),
    }
}

fn of_listening<R>(node: &Node<R>) -> Vec<String> {
    let schemes = |addresses: &[Address]| -> BTreeSet<String> {
        addresses.iter().map(|address| address.scheme().to_owned()).collect()
    };
    let dialled = schemes(&node.addresses);
    let listening = schemes(&node.listen);
    let missing = dialled.difference(&listening);
    let words = |scheme| format!("is dialled over {scheme}://, and `listen` has no such address");
    missing.map(words).collect()
}

fn of_keys<R>(node: &Node<R>) -> Vec<String> {
    let all: Vec<&Address> = node.addresses.iter().chain(&node.listen).collect();
    let secure = all.iter().find(|address| is_secure(address.scheme()));
    let plain = all.iter().find(|address| !is_secure(address.scheme()));
    let mut found = Vec::new();
    match (secure, &node.keys) {
        (Some(address), None) => {
            found.push(format!("has {address} and no `keys` to prove itself with"));
        }
        (None, Some(keys)) => {
            found.push(format!("has keys in {} and no address that uses them", keys.display()));
        }
        _ => {}
    }
    if let (Some(secure), Some(plain)) = (secure, plain) {
        found.push(format!(
            "has {secure}, where it proves who it is, and {plain}, where anybody can claim its name"
        ));
    }
    found
}

/// Of two nodes.
fn together<R>(first: &Node<R>, second: &Node<R>) -> Vec<String> {
    let mut found = Vec::new();
    if first.id == second.id {
        found.push("have one id".to_owned());
    }
    if let Some(address) = first.addresses.iter().find(|one| second.addresses.contains(one)) {
        found.push(format!("have one address, {address}"));
    }
    let is_secure = |node: &Node<R>| node.addresses.iter().any(|one| is_secure(one.scheme()));
    if is_secure(first) != is_secure(second) {
        found.push("differ in that one proves who it is and the other does not".to_owned());
    }
    if !hosts(first).is_disjoint(&hosts(second)) {
        if first.folder == second.folder {
            found.push(format!("have one folder on one host, {}", first.folder.display()));
        }
        if let Some(operation) = first.operation.filter(|_| first.operation == second.operation) {
            found.push(format!("have one address of operation on one host, {operation}"));
        }
    }
    found
}

/// Hosts of the addresses of a node. Sockets of the file system count as one host.
fn hosts<R>(node: &Node<R>) -> BTreeSet<&str> {
    let host = |address| match Address::scheme(address) {
        "unix" => "",
        _ => address.rest().rsplit_once(':').map_or(address.rest(), |(host, _)| host),
    };
    node.addresses.iter().map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_nobody_can_dial_are_told() {
        let told = [
            ("tcp://0.0.0.0:7000", "every address"),
            ("tcp://[::0]:7000", "every address"),
            ("tls://*:7000", "every address"),
            ("tcp://host:0", "the system chooses"),
            ("tcp://10.0.0.1", "without a port"),
            ("quic://host:99999", "without a port"),
            ("tcp://host:http", "without a port"),
            ("tcp://0:7000", "no name and no IP address"),
            ("tcp://00.0.0.0:7000", "no name and no IP address"),
        ];
        for (address, words) in told {
            let reason = undialable(&address.parse().unwrap());
            assert!(reason.as_ref().is_some_and(|reason| reason.contains(words)), "{reason:?}");
        }
        let good = ["tcp://10.0.0.1:7000", "tls://[::1]:7", "quic://host-1.example:7", "unix:///a"];
        for address in good {
            assert_eq!(undialable(&address.parse().unwrap()), None);
        }
    }
}
