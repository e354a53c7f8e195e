//! A node under attack, with one honest connection.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use convoke_transport::conformance::{self, Setup};
use convoke_transport_grpc::{GrpcTransport, GrpcTransportBuilder};

use crate::over::Over;

pub(crate) struct Victim {
    pub(crate) over: Over,
    victim: conformance::Victim,
}

impl Deref for Victim {
    type Target = conformance::Victim;

    fn deref(&self) -> &conformance::Victim {
        &self.victim
    }
}

impl Victim {
    pub(crate) async fn new(over: Over, builder: GrpcTransportBuilder) -> Self {
        let setup = Setup {
            listening: Arc::new(over.transport(builder, &[1])),
            dialling: Arc::new(over.transport(GrpcTransport::builder(), &[2, 3])),
            listen: over.any(),
        };
        Self { over, victim: conformance::Victim::new(setup).await }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.victim.address().rest().parse().expect("it is a socket address")
    }

    pub(crate) async fn lives_on(self) {
        self.victim.lives_on().await;
    }
}
