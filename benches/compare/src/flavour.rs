//! Kinds of runtime that the two sides of a case run on.

use std::fmt;
use std::io;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

/// Tokio runtimes of a case: that of its client, and that of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// One thread each.
    Ct,
    /// Two worker threads each.
    Mt,
    /// The client of `ct`, and servers with one worker thread.
    #[value(name = "1w")]
    #[serde(rename = "1w")]
    OneWorker,
    /// The client of `ct`, and servers with two worker threads.
    #[value(name = "2w")]
    #[serde(rename = "2w")]
    TwoWorkers,
}

impl Flavour {
    /// All, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Ct, Self::Mt, Self::OneWorker, Self::TwoWorkers];

    /// As in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ct => "ct",
            Self::Mt => "mt",
            Self::OneWorker => "1w",
            Self::TwoWorkers => "2w",
        }
    }

    /// True when servers have another runtime than their client.
    pub fn has_own_servers(self) -> bool {
        matches!(self, Self::OneWorker | Self::TwoWorkers)
    }

    /// The one with fewer threads to compare it with.
    pub fn baseline(self) -> Option<Self> {
        match self {
            Self::Ct | Self::OneWorker => None,
            Self::Mt => Some(Self::Ct),
            Self::TwoWorkers => Some(Self::OneWorker),
        }
    }

    /// A runtime for the client.
    ///
    /// # Errors
    /// When the system refuses threads or an event queue.
    pub fn runtime(self) -> io::Result<Runtime> {
        match self {
            Self::Ct | Self::OneWorker | Self::TwoWorkers => one_thread(),
            Self::Mt => workers(2),
        }
    }

    /// A runtime for a server.
    ///
    /// # Errors
    /// When the system refuses threads or an event queue.
    pub fn server_runtime(self) -> io::Result<Runtime> {
        match self {
            Self::Ct => one_thread(),
            Self::OneWorker => workers(1),
            Self::Mt | Self::TwoWorkers => workers(2),
        }
    }
}

fn one_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn workers(count: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(count).enable_all().build()
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::RuntimeFlavor;

    use super::*;

    #[test]
    fn rows_and_arguments_have_the_same_names() {
        for flavour in Flavour::ALL {
            let argument = flavour.to_possible_value().expect("none is hidden");
            assert_eq!(argument.get_name(), flavour.name());
            assert_eq!(serde_json::to_value(flavour).unwrap(), flavour.name());
        }
        assert_eq!(Flavour::value_variants(), Flavour::ALL);
    }

    #[test]
    fn servers_have_the_workers_and_their_client_stays_what_it_is() {
        let shape = |runtime: io::Result<Runtime>| {
            let runtime = runtime.unwrap();
            let kind = runtime.handle().runtime_flavor();
            (kind == RuntimeFlavor::MultiThread).then(|| runtime.metrics().num_workers())
        };
        for (flavour, client, server) in [
            (Flavour::Ct, None, None),
            (Flavour::Mt, Some(2), Some(2)),
            (Flavour::OneWorker, None, Some(1)),
            (Flavour::TwoWorkers, None, Some(2)),
        ] {
            let shapes = (shape(flavour.runtime()), shape(flavour.server_runtime()));
            assert_eq!(shapes, (client, server), "{flavour}");
        }
    }
}
