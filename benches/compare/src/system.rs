//! What is compared. To add a system: an arm in each `match` here, and a file under `systems`.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Form};
use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::flavour::Flavour;
use crate::systems::{convoke, convoke_tcp, tcp_tokio, tonic_bidi, tonic_server};

/// Something that carries requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Length-prefixed frames over a tokio TCP stream: no calls, no callers, only sockets.
    TcpTokio,
    /// Convoke over TCP.
    ConvokeTcp,
    /// gRPC: messages with numbers over one bidirectional stream.
    TonicBidi,
}

impl System {
    /// All, in the order of the table.
    pub const ALL: [Self; 3] = [Self::TcpTokio, Self::ConvokeTcp, Self::TonicBidi];

    /// As in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpTokio => "tcp-tokio",
            Self::ConvokeTcp => "convoke-tcp",
            Self::TonicBidi => "tonic-bidi",
        }
    }

    /// Whether it can do this, in this form, on this runtime.
    pub fn applies(self, bench: Bench, form: Form, flavour: Flavour) -> bool {
        let _ = flavour;
        match self {
            Self::ConvokeTcp => bench.has_forms() || form == Form::Client,
            Self::TcpTokio | Self::TonicBidi => {
                matches!(bench, Bench::UnaryLatency | Bench::UnaryThroughput)
                    && form == Form::Client
            }
        }
    }

    /// Whether it is this project's.
    pub fn is_convoke(self) -> bool {
        match self {
            Self::ConvokeTcp => true,
            Self::TcpTokio | Self::TonicBidi => false,
        }
    }

    /// Whether its servers are told of each other.
    pub fn joins_peers(self) -> bool {
        match self {
            Self::ConvokeTcp | Self::TonicBidi => true,
            Self::TcpTokio => false,
        }
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn serve(self, control: Control, delay: Duration) -> Result<()> {
        match self {
            Self::TcpTokio => tcp_tokio::serve(control).await,
            Self::ConvokeTcp => convoke::serve(&convoke_tcp::WIRE, control, delay).await,
            Self::TonicBidi => tonic_server::serve(control).await,
        }
    }

    /// Measures its client against running servers.
    ///
    /// # Errors
    /// When the client cannot connect, or the connection broke.
    pub async fn measure(self, bencher: Bencher<'_>, delay: Duration) -> Result<Sample> {
        match self {
            Self::TcpTokio => tcp_tokio::measure(bencher).await,
            Self::ConvokeTcp => convoke::measure(&convoke_tcp::WIRE, bencher, delay).await,
            Self::TonicBidi => tonic_bidi::measure(bencher).await,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
