//! The terms of a run's endpoints: their transport, with its defaults, and their cores.

#[cfg(feature = "grpc")]
use convoke::transport::GrpcTransport;
#[cfg(feature = "quic")]
use convoke::transport::QuicTransport;
use convoke::transport::TcpTransport;
use convoke::{Endpoint, EndpointBuilder, NodeId};

use crate::servers::limits;

/// Terms of all endpoints of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) wire: Wire,
    /// Those that endpoints have by themselves, unless they are told.
    pub(crate) cores: Option<u8>,
}

impl Ends {
    /// An endpoint on these terms. It is this node, if one is named, unless its certificate names
    /// it.
    pub(crate) fn endpoint(self, node: Option<NodeId>) -> EndpointBuilder {
        let builder = self.wire.endpoint(node).limits(limits());
        self.cores.into_iter().fold(builder, EndpointBuilder::cores)
    }
}

/// One transport for all endpoints of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Tcp,
    #[cfg(feature = "quic")]
    Quic,
    #[cfg(feature = "grpc")]
    Grpc,
}

/// Those that are built in, by name.
const WIRES: &[(&str, Wire)] = &[
    ("tcp", Wire::Tcp),
    #[cfg(feature = "quic")]
    ("quic", Wire::Quic),
    #[cfg(feature = "grpc")]
    ("grpc", Wire::Grpc),
];

impl Wire {
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let found = WIRES.iter().find(|(name, _)| *name == word);
        found.map(|(_, wire)| *wire).ok_or_else(|| {
            let names: Vec<_> = WIRES.iter().map(|(name, _)| *name).collect();
            format!("{word} is no transport that is built in; choose of {}", names.join(", "))
        })
    }

    /// Address to listen at: loopback, a port that the system chooses.
    pub(crate) fn listen(self) -> &'static str {
        match self {
            Self::Tcp => "tcp://127.0.0.1:0",
            #[cfg(feature = "quic")]
            Self::Quic => "quic://127.0.0.1:0",
            #[cfg(feature = "grpc")]
            Self::Grpc => "grpc://127.0.0.1:0",
        }
    }

    fn endpoint(self, node: Option<NodeId>) -> EndpointBuilder {
        let builder = Endpoint::builder();
        let named = |builder| node.into_iter().fold(builder, EndpointBuilder::node);
        match self {
            Self::Tcp => named(builder.transport(TcpTransport::new())),
            #[cfg(feature = "quic")]
            Self::Quic => builder.transport(QuicTransport::new(quic::identity())),
            #[cfg(feature = "grpc")]
            Self::Grpc => named(builder.transport(GrpcTransport::new())),
        }
    }
}

#[cfg(feature = "quic")]
mod quic {
    use std::sync::LazyLock;

    use convoke::transport::Identity;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    /// The authority that all nodes of the run trust.
    static AUTHORITY: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("the system has random bytes");
        CertifiedIssuer::self_signed(params, key).expect("the key is one that was just made")
    });

    /// Identity of another node, whose id is made of its key.
    pub(super) fn identity() -> Identity {
        let key = KeyPair::generate().expect("the system has random bytes");
        let certificate = CertificateParams::default().signed_by(&key, &*AUTHORITY);
        let certificate = certificate.expect("the authority has a key").pem();
        let identity = Identity::from_pem(certificate, key.serialize_pem(), AUTHORITY.pem());
        identity.expect("key and certificate belong together")
    }
}
