//! From `scheme://host:port` to socket addresses and back, the addresses to tell a peer, and
//! sockets that connect and accept: for transports over IP.

mod accepting;
mod connecting;
mod lingering;
mod lookups;
mod prompt;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use crate::Address;

use lookups::Lookups;

pub use accepting::{Accepting, Accepts, bind, first, listen};
pub use connecting::{connect_to, dial, dial_at, resolve_to_dial, try_each};
pub use lingering::linger;
pub use prompt::send_promptly;

/// The socket addresses of `host:port`, where host is an IPv4 address, an IPv6 address in brackets,
/// or a name. All who ask for a name while it is looked up share the answer.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] when it begins with a scheme or does not end in a port, the
/// system's error for a name that it cannot resolve, or [`io::ErrorKind::NotFound`] when the name
/// has no address.
pub async fn resolve(host_and_port: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(socket) = host_and_port.parse() {
        return Ok(vec![socket]);
    }
    let refused = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if let Some((scheme, rest)) = host_and_port.split_once("://") {
        let text = format!("a host and a port are expected: leave out `{scheme}://`, as in {rest}");
        return refused(&text);
    }
    let port = host_and_port.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(_))) {
        return refused("a host and a port up to 65535 are expected, such as 127.0.0.1:7000");
    }
    if host_and_port.rsplit_once(':').is_some_and(|(host, _)| host.is_empty()) {
        return refused(
            "the host is missing before the port: 0.0.0.0 to listen at all of this host",
        );
    }
    let look_up = |name: &str| Ok(name.to_socket_addrs()?.collect());
    let found = LOOKUPS.find(host_and_port, look_up).await?;
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

/// Those of this process.
static LOOKUPS: Lookups = Lookups::new();

/// The address of a socket.
///
/// # Panics
/// For a scheme that is empty, or so long that no address fits behind it.
pub fn of_socket(scheme: &str, socket: SocketAddr) -> Address {
    format!("{scheme}://{socket}").parse().expect("a socket address after a scheme is an address")
}

/// The addresses to tell a peer reached from `local`: `0.0.0.0` and `[::]` replaced by it.
///
/// A node listening on IPv4 only cannot be dialled at an IPv6 address, so such a pair is left out.
/// Nor is a local address told that holds for its link alone, `fe80::1%eth0`: the other end has
/// a name of its own for the interface. An address of this process alone, `mem://`, is left out,
/// too, and a private one, `unix://`.
pub fn advertised(addresses: &[Address], local: IpAddr) -> Vec<Address> {
    let local = local.to_canonical();
    addresses.iter().filter_map(|address| advertise(address, local)).collect()
}

fn advertise(address: &Address, local: IpAddr) -> Option<Address> {
    if address.scheme() == "mem" || address.is_private() {
        return None;
    }
    let Some(listening) = unspecified(address) else { return Some(address.clone()) };
    let is_other_family = listening.is_ipv4() && local.is_ipv6();
    let is_of_link = matches!(local, IpAddr::V6(local) if local.is_unicast_link_local());
    if is_other_family || is_of_link || local.is_unspecified() {
        return None;
    }
    let socket = SocketAddr::new(local, listening.port());
    Some(of_socket(address.scheme(), socket))
}

/// The socket of an address that names every interface; `None` for one that can be dialled.
pub fn unspecified(address: &Address) -> Option<SocketAddr> {
    let socket: SocketAddr = address.rest().parse().ok()?;
    socket.ip().is_unspecified().then_some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn an_address_with_a_scheme_or_without_a_port_is_told_how_one_looks() {
        for (given, remedy) in [
            ("http://localhost:7000", "leave out `http://`"),
            ("grpc://127.0.0.1:7000", "leave out `grpc://`"),
            ("localhost", "such as 127.0.0.1:7000"),
            (":7000", "the host is missing"),
        ] {
            let error = resolve(given).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(remedy), "{given}: {error}");
        }
    }

    #[test]
    fn an_address_of_every_interface_becomes_the_local_one() {
        let texts = ["grpc://0.0.0.0:70", "mem://here", "tcp://[::]:71", "tcp://10.1.1.1:72"];
        let private = ["unix:///run/a.sock", "unix://@a"];
        let given = [addresses(&texts), addresses(&private)].concat();
        let v4 = advertised(&given, "192.168.0.5".parse().unwrap());
        let expected = ["grpc://192.168.0.5:70", "tcp://192.168.0.5:71", "tcp://10.1.1.1:72"];
        assert_eq!(v4, addresses(&expected));
        let v6 = advertised(&given, "fd00::5".parse().unwrap());
        assert_eq!(v6, addresses(&["tcp://[fd00::5]:71", "tcp://10.1.1.1:72"]));
        for nowhere in ["0.0.0.0", "fe80::5"] {
            let none = advertised(&given, nowhere.parse().unwrap());
            assert_eq!(none, addresses(&["tcp://10.1.1.1:72"]), "{nowhere} cannot be dialled");
        }
    }
}
