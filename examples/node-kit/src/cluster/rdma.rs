//! Connections over RDMA: the settings of a process, and the transport out of them.

use std::net::{IpAddr, SocketAddr};

use convoke::transport::Address;
use convoke::{Endpoint, EndpointBuilder};

use super::ClusterError;

/// The scheme of its addresses.
pub(super) const SCHEME: &str = "rdma";

/// Settings of the `rdma://` connections of a process. Those of others may differ, but for
/// [`Credits::Unlimited`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rdma {
    /// Messages of a peer that may be under way, from 1 to 16,384. Default 32. Each takes 8 KiB of
    /// registered memory for each connection.
    pub window: u16,
    /// Flow control.
    pub credits: Credits,
}

impl Rdma {
    /// Looks whether a node of this machine could listen at an address with these settings.
    ///
    /// # Errors
    /// [`ClusterError::Rdma`].
    pub fn check(self, listen: &Address) -> Result<(), ClusterError> {
        speaking(Endpoint::builder(), self, std::slice::from_ref(listen)).map(drop)
    }

    /// Looks whether a program that takes the address of its device by `--host` could listen there.
    ///
    /// # Errors
    /// [`ClusterError::Rdma`], with that remedy where the address is one of the loopback.
    pub fn check_host(self, host: IpAddr) -> Result<(), ClusterError> {
        let address = format!("{SCHEME}://{}", SocketAddr::new(host, 0));
        let listen =
            address.parse().map_err(|error| ClusterError::Rdma { what: format!("{error}") })?;
        self.check(&listen).map_err(|error| match error {
            ClusterError::Rdma { what } if host.is_loopback() => {
                ClusterError::Rdma { what: what + "; --host takes the address of a device" }
            }
            other => other,
        })
    }
}

impl Default for Rdma {
    fn default() -> Self {
        Self { window: 32, credits: Credits::Counted }
    }
}

/// Flow control of `rdma://` connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credits {
    /// A message waits until the other end has a receive for it.
    #[default]
    Counted,
    /// No message waits, to measure what waiting costs: both ends need it. One that finds no
    /// receive ends the connection.
    Unlimited,
}

/// The reason this program cannot dial or listen over RDMA at all, with the remedy.
pub(super) fn unbuilt() -> Option<&'static str> {
    if !cfg!(feature = "rdma") {
        Some(
            "this program is built without RDMA: build it with `--features rdma`, which takes the \
             headers of libibverbs and librdmacm, or use tcp:// addresses",
        )
    } else if !cfg!(target_os = "linux") {
        Some("RDMA devices are opened on Linux alone: use tcp:// addresses")
    } else {
        None
    }
}

/// Has an endpoint speak over the device of the first address to listen at, or over the first
/// device where no address is numeric.
#[cfg(all(feature = "rdma", target_os = "linux"))]
pub(super) fn speaking(
    builder: EndpointBuilder,
    rdma: Rdma,
    listen: &[Address],
) -> Result<EndpointBuilder, ClusterError> {
    use convoke::rdma::provider::verbs::VerbsDevice;
    use convoke::transport::RdmaTransport;

    let refused = |what: String| ClusterError::Rdma { what };
    let numeric = |address: &Address| {
        let place: Option<std::net::SocketAddr> = address.rest().parse().ok();
        place.filter(|_| address.scheme() == SCHEME).map(|place| place.ip())
    };
    let device = match listen.iter().find_map(numeric) {
        Some(address) => VerbsDevice::of_address(address),
        None => VerbsDevice::first(),
    };
    let remedy = "rdma:// takes the address of a device, and tcp:// takes none";
    let device = device.map_err(|error| refused(format!("{error}; {remedy}")))?;
    let transport = RdmaTransport::builder(device).slots(rdma.window);
    let transport = match rdma.credits {
        Credits::Counted => transport,
        #[cfg(feature = "rdma-unlimited")]
        Credits::Unlimited => transport.defect(convoke::rdma::Defect::IgnoresCredit),
        #[cfg(not(feature = "rdma-unlimited"))]
        Credits::Unlimited => {
            let remedy = "credits are counted: to measure without, build this program with \
                          `--features rdma-unlimited`";
            return Err(refused(remedy.to_owned()));
        }
    };
    let transport = transport.build().map_err(|error| refused(error.to_string()))?;
    Ok(builder.transport(transport))
}

/// Says why this program has no such transport.
#[cfg(not(all(feature = "rdma", target_os = "linux")))]
pub(super) fn speaking(
    _: EndpointBuilder,
    _: Rdma,
    _: &[Address],
) -> Result<EndpointBuilder, ClusterError> {
    Err(ClusterError::Rdma { what: unbuilt().unwrap_or_default().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, NoProtocol};

    const TEXT: &str = "[cluster]\nid = 1\nname = 'a'\n\n[[node]]\nid = 1\nfolder = 'f'\n\
                        addresses = ['rdma://192.0.2.1:7000']\n";

    /// The address is of nobody: it is for documentation.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    #[test]
    fn a_node_without_a_device_is_told_what_to_do() {
        let cluster = Cluster::<NoProtocol>::parse(TEXT).expect("it is well-formed");
        let listening = cluster.endpoint(1).map(drop).expect_err("there is no such device");
        for error in [listening, Rdma::default().check(&address()).expect_err("there is none")] {
            let words = error.to_string();
            assert!(words.starts_with("cannot use rdma:// addresses: "), "{words}");
            assert!(words.ends_with("and tcp:// takes none"), "{words}");
        }
    }

    #[cfg(not(all(feature = "rdma", target_os = "linux")))]
    #[test]
    fn a_program_without_rdma_says_how_to_have_it() {
        let error = Cluster::<NoProtocol>::parse(TEXT).expect_err("it cannot be spoken");
        let words = error.to_string();
        assert!(words.starts_with("line 5: node 1 has rdma://192.0.2.1:7000: "), "{words}");
        assert!(words.ends_with("use tcp:// addresses"), "{words}");
        let unable = Rdma::default().check(&address()).expect_err("it cannot be spoken");
        assert!(unable.to_string().ends_with("use tcp:// addresses"), "{unable}");
    }

    fn address() -> Address {
        "rdma://192.0.2.1:0".parse().expect("it is an address")
    }
}
