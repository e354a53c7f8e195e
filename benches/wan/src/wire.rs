//! The transports that calls are compared over.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A transport, and the flows of its connections. In text `tcp`, or `tcp:4` with four flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Wire {
    pub(crate) scheme: Scheme,
    pub(crate) flows: u8,
}

/// The scheme of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Tcp,
    Tls,
    Quic,
}

/// Most flows of a connection that the transport takes.
const FLOWS_MAX: u8 = 32;

impl Scheme {
    /// The word for it in addresses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
        }
    }

    /// True for those where each end has a certificate.
    pub(crate) fn has_certificates(self) -> bool {
        self != Self::Tcp
    }
}

impl FromStr for Wire {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, flows) = text.split_once(':').unwrap_or((text, "1"));
        let schemes = [Scheme::Tcp, Scheme::Tls, Scheme::Quic];
        let scheme = schemes.into_iter().find(|scheme| scheme.name() == name);
        let scheme = scheme.ok_or_else(|| format!("{name:?} is none of tcp, tls, quic"))?;
        let flows = flows.parse().ok().filter(|flows| (1..=FLOWS_MAX).contains(flows));
        let flows = flows.ok_or_else(|| format!("give 1 to {FLOWS_MAX} flows"))?;
        if flows > 1 && scheme == Scheme::Quic {
            return Err("QUIC has streams, and no setting for flows".to_owned());
        }
        Ok(Self { scheme, flows })
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flows {
            1 => f.write_str(self.scheme.name()),
            flows => write!(f, "{}:{flows}", self.scheme.name()),
        }
    }
}

impl TryFrom<String> for Wire {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Wire> for String {
    fn from(wire: Wire) -> Self {
        wire.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_is_a_scheme_and_its_flows() {
        for text in ["tcp", "tcp:4", "tls:32", "quic"] {
            assert_eq!(text.parse::<Wire>().map(|wire| wire.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("tcp:1".parse::<Wire>(), "tcp".parse());
        for text in ["", "udp", "tcp:0", "tcp:33", "tcp:x", "quic:2", "TCP"] {
            assert!(text.parse::<Wire>().is_err(), "{text:?}");
        }
    }
}
