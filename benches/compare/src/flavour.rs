//! On which kind of runtime both sides of a case run.

use std::fmt;
use std::io;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

/// A kind of tokio runtime. Clients and servers of a case use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// One thread.
    Ct,
    /// Two worker threads.
    Mt,
}

impl Flavour {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ct, Self::Mt];

    /// As in rows and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ct => "ct",
            Self::Mt => "mt",
        }
    }

    /// A runtime of this kind.
    ///
    /// # Errors
    /// When the system refuses threads or an event queue.
    pub fn runtime(self) -> io::Result<Runtime> {
        match self {
            Self::Ct => Builder::new_current_thread().enable_all().build(),
            Self::Mt => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
