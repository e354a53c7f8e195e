//! Systems that are compared. To add one: an arm in each `match` here, and a file under `systems`.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Form};
use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::flavour::Flavour;
use crate::systems::tonic::Late;
use crate::systems::{
    convoke, convoke_edge, convoke_grpc, convoke_quic, convoke_tcp, convoke_tls, ntex_grpc, quinn,
    tarpc, tcp_blocking, tcp_tokio, tonic, tonic_bidi, tonic_server, volo,
};

/// Something that carries requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Frames over a blocking stream of the standard library.
    TcpBlocking,
    /// Frames over a tokio TCP stream: no calls, no callers, only sockets.
    TcpTokio,
    /// Convoke over TCP.
    ConvokeTcp,
    /// Convoke over TLS, with certificates of both ends.
    ConvokeTls,
    /// Convoke over QUIC, with certificates of both ends.
    ConvokeQuic,
    /// Convoke over one gRPC stream.
    ConvokeGrpc,
    /// The client of `tonic` at the gRPC edge of a Convoke server.
    ConvokeEdge,
    /// gRPC, a call for each request.
    Tonic,
    /// The same over four connections.
    #[value(name = "tonic-4ch")]
    #[serde(rename = "tonic-4ch")]
    Tonic4Channels,
    /// `Tonic`, whose quorums let the calls that are late finish.
    TonicLate,
    /// gRPC, numbered messages over one bidirectional stream.
    TonicBidi,
    /// gRPC by ntex.
    NtexGrpc,
    /// tarpc with bincode.
    Tarpc,
    /// Thrift by volo, over one connection.
    Volo,
    /// The same over a pool of connections.
    VoloPool,
    /// Frames over one stream of bare QUIC.
    #[value(name = "quinn-1stream")]
    #[serde(rename = "quinn-1stream")]
    QuinnOneStream,
    /// Frames over bare QUIC, a stream for each request.
    QuinnStreamPerRequest,
}

impl System {
    /// All, in the order of the table.
    pub const ALL: [Self; 17] = [
        Self::TcpBlocking,
        Self::TcpTokio,
        Self::ConvokeTcp,
        Self::ConvokeTls,
        Self::ConvokeQuic,
        Self::ConvokeGrpc,
        Self::ConvokeEdge,
        Self::Tonic,
        Self::Tonic4Channels,
        Self::TonicLate,
        Self::TonicBidi,
        Self::NtexGrpc,
        Self::Tarpc,
        Self::Volo,
        Self::VoloPool,
        Self::QuinnOneStream,
        Self::QuinnStreamPerRequest,
    ];

    /// As in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpBlocking => "tcp-blocking",
            Self::TcpTokio => "tcp-tokio",
            Self::ConvokeTcp => "convoke-tcp",
            Self::ConvokeTls => "convoke-tls",
            Self::ConvokeQuic => "convoke-quic",
            Self::ConvokeGrpc => "convoke-grpc",
            Self::ConvokeEdge => "convoke-edge",
            Self::Tonic => "tonic",
            Self::Tonic4Channels => "tonic-4ch",
            Self::TonicLate => "tonic-late",
            Self::TonicBidi => "tonic-bidi",
            Self::NtexGrpc => "ntex-grpc",
            Self::Tarpc => "tarpc",
            Self::Volo => "volo",
            Self::VoloPool => "volo-pool",
            Self::QuinnOneStream => "quinn-1stream",
            Self::QuinnStreamPerRequest => "quinn-stream-per-request",
        }
    }

    /// True when it can do this, in this form, on this runtime.
    pub fn applies(self, bench: Bench, form: Form, flavour: Flavour) -> bool {
        let is_throughput = matches!(bench, Bench::UnaryThroughput | Bench::UnaryThroughput4Kib);
        let is_single = matches!(bench, Bench::UnaryLatency | Bench::Large);
        let is_echo = is_throughput || is_single;
        if flavour.has_own_servers() && bench != Bench::UnaryThroughput {
            return false;
        }
        // Its clients stay on one thread, and so do the callers that share one.
        if self == Self::NtexGrpc && flavour == Flavour::Mt {
            return false;
        }
        if bench == Bench::UnaryErrors {
            return matches!(
                self,
                Self::ConvokeTcp
                    | Self::Tonic
                    | Self::NtexGrpc
                    | Self::Tarpc
                    | Self::Volo
                    | Self::VoloPool
            );
        }
        match self {
            // It has no runtime, and a thread that waits for one answer at a time.
            Self::TcpBlocking => is_single && flavour == Flavour::Ct,
            Self::TcpTokio
            | Self::QuinnOneStream
            | Self::ConvokeTls
            | Self::ConvokeQuic
            | Self::ConvokeGrpc => is_echo || bench == Bench::StreamItems,
            Self::ConvokeTcp => true,
            Self::ConvokeEdge => matches!(bench, Bench::UnaryLatency | Bench::UnaryThroughput),
            Self::Tonic => form != Form::Tree,
            Self::TonicLate => bench == Bench::Quorum,
            // One call at a time has one connection either way.
            Self::Tonic4Channels | Self::VoloPool => is_throughput,
            Self::TonicBidi
            | Self::NtexGrpc
            | Self::Tarpc
            | Self::Volo
            | Self::QuinnStreamPerRequest => is_echo,
        }
    }

    /// True when it is this project's.
    pub fn is_convoke(self) -> bool {
        match self {
            Self::ConvokeTcp
            | Self::ConvokeTls
            | Self::ConvokeQuic
            | Self::ConvokeGrpc
            | Self::ConvokeEdge => true,
            Self::TcpBlocking
            | Self::TcpTokio
            | Self::Tonic
            | Self::Tonic4Channels
            | Self::TonicLate
            | Self::TonicBidi
            | Self::NtexGrpc
            | Self::Tarpc
            | Self::Volo
            | Self::VoloPool
            | Self::QuinnOneStream
            | Self::QuinnStreamPerRequest => false,
        }
    }

    /// The one system to compare it with, where that says more than all the others: what it adds
    /// to, or the same protocol without it.
    pub fn yardstick(self) -> Option<Self> {
        match self {
            Self::ConvokeTls => Some(Self::ConvokeTcp),
            Self::ConvokeQuic => Some(Self::QuinnOneStream),
            Self::ConvokeGrpc => Some(Self::TonicBidi),
            Self::ConvokeEdge => Some(Self::Tonic),
            Self::TcpBlocking
            | Self::TcpTokio
            | Self::ConvokeTcp
            | Self::Tonic
            | Self::Tonic4Channels
            | Self::TonicLate
            | Self::TonicBidi
            | Self::NtexGrpc
            | Self::Tarpc
            | Self::Volo
            | Self::VoloPool
            | Self::QuinnOneStream
            | Self::QuinnStreamPerRequest => None,
        }
    }

    /// True when its processes issue themselves certificates, with an authority that all of them
    /// trust.
    pub fn has_certificates(self) -> bool {
        match self {
            Self::ConvokeTls | Self::ConvokeQuic => true,
            Self::TcpBlocking
            | Self::TcpTokio
            | Self::ConvokeTcp
            | Self::ConvokeGrpc
            | Self::ConvokeEdge
            | Self::Tonic
            | Self::Tonic4Channels
            | Self::TonicLate
            | Self::TonicBidi
            | Self::NtexGrpc
            | Self::Tarpc
            | Self::Volo
            | Self::VoloPool
            | Self::QuinnOneStream
            | Self::QuinnStreamPerRequest => false,
        }
    }

    /// True when its servers are told of each other.
    pub fn joins_peers(self) -> bool {
        match self {
            Self::ConvokeTcp
            | Self::ConvokeTls
            | Self::ConvokeQuic
            | Self::ConvokeGrpc
            | Self::Tonic
            | Self::Tonic4Channels
            | Self::TonicLate
            | Self::TonicBidi => true,
            Self::TcpBlocking
            | Self::TcpTokio
            | Self::ConvokeEdge
            | Self::NtexGrpc
            | Self::Tarpc
            | Self::Volo
            | Self::VoloPool
            | Self::QuinnOneStream
            | Self::QuinnStreamPerRequest => false,
        }
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn serve(self, control: Control, delay: Duration) -> Result<()> {
        match self {
            Self::TcpBlocking => tcp_blocking::serve(control).await,
            Self::TcpTokio => tcp_tokio::serve(control).await,
            Self::ConvokeTcp => convoke::serve(&convoke_tcp::WIRE, control, delay).await,
            Self::ConvokeTls => convoke::serve(&convoke_tls::WIRE, control, delay).await,
            Self::ConvokeQuic => convoke::serve(&convoke_quic::WIRE, control, delay).await,
            Self::ConvokeGrpc => convoke::serve(&convoke_grpc::WIRE, control, delay).await,
            Self::ConvokeEdge => convoke_edge::serve(control).await,
            Self::Tonic | Self::Tonic4Channels | Self::TonicLate | Self::TonicBidi => {
                tonic_server::serve(control).await
            }
            Self::NtexGrpc => ntex_grpc::serve(control).await,
            Self::Tarpc => tarpc::serve(control).await,
            Self::Volo => volo::serve(control, volo::Sharing::Multiplex).await,
            Self::VoloPool => volo::serve(control, volo::Sharing::Pool).await,
            Self::QuinnOneStream | Self::QuinnStreamPerRequest => quinn::serve(control).await,
        }
    }

    /// Measures its client against running servers.
    ///
    /// # Errors
    /// When the client cannot connect, or the connection broke.
    pub async fn measure(self, bencher: Bencher<'_>, delay: Duration) -> Result<Sample> {
        match self {
            Self::TcpBlocking => tcp_blocking::measure(bencher).await,
            Self::TcpTokio => tcp_tokio::measure(bencher).await,
            Self::ConvokeTcp => convoke::measure(&convoke_tcp::WIRE, bencher, delay).await,
            Self::ConvokeTls => convoke::measure(&convoke_tls::WIRE, bencher, delay).await,
            Self::ConvokeQuic => convoke::measure(&convoke_quic::WIRE, bencher, delay).await,
            Self::ConvokeGrpc => convoke::measure(&convoke_grpc::WIRE, bencher, delay).await,
            Self::Tonic | Self::ConvokeEdge => tonic::measure(bencher, 1, Late::Dropped).await,
            Self::Tonic4Channels => tonic::measure(bencher, 4, Late::Dropped).await,
            Self::TonicLate => tonic::measure(bencher, 1, Late::Finished).await,
            Self::TonicBidi => tonic_bidi::measure(bencher).await,
            Self::NtexGrpc => ntex_grpc::measure(bencher).await,
            Self::Tarpc => tarpc::measure(bencher).await,
            Self::Volo => volo::measure(bencher, volo::Sharing::Multiplex).await,
            Self::VoloPool => volo::measure(bencher, volo::Sharing::Pool).await,
            Self::QuinnOneStream => quinn::measure_one_stream(bencher).await,
            Self::QuinnStreamPerRequest => quinn::measure_stream_per_request(bencher).await,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_arguments_have_the_same_names() {
        for system in System::ALL {
            let argument = system.to_possible_value().expect("no system is hidden");
            assert_eq!(argument.get_name(), system.name());
            assert_eq!(serde_json::to_value(system).unwrap(), system.name());
        }
        assert_eq!(System::value_variants(), System::ALL);
    }

    #[test]
    fn a_client_that_stays_on_its_thread_has_no_rows_of_two_workers() {
        let applies = |system: System, flavour| {
            let can = |bench: &Bench| system.applies(*bench, Form::Client, flavour);
            Bench::ALL.iter().filter(|bench| can(bench)).count()
        };
        for flavour in [Flavour::Ct, Flavour::OneWorker, Flavour::TwoWorkers] {
            let counts = (applies(System::NtexGrpc, flavour), applies(System::Volo, flavour));
            assert_eq!(counts.0, counts.1, "{flavour}");
        }
        assert_eq!(applies(System::NtexGrpc, Flavour::Mt), 0);
    }
}
