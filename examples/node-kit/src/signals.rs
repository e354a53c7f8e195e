//! The signals by which a process is asked to end.

use std::fmt;
use std::io;

#[cfg(unix)]
use tokio::signal::unix::{self, SignalKind};

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: of a supervisor.
    Terminate,
    /// Ctrl-C, SIGINT: of a terminal.
    Interrupt,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "Ctrl-C",
        })
    }
}

/// The requests to end of this process. From the time that it listens none of them ends the process
/// by itself, also after this was dropped.
#[derive(Debug)]
pub struct StopSignal {
    #[cfg(unix)]
    terminate: unix::Signal,
    #[cfg(unix)]
    interrupt: unix::Signal,
}

impl StopSignal {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system's.
    #[cfg(unix)]
    pub fn listen() -> io::Result<Self> {
        let terminate = unix::signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: unix::signal(SignalKind::interrupt())? })
    }

    /// Listens from now on.
    ///
    /// # Errors
    /// The system's.
    #[cfg(not(unix))]
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// The next request: one that came since it listens, or the one that comes.
    ///
    /// # Cancel safety
    /// Dropped, it has taken none.
    #[cfg(unix)]
    pub async fn received(&mut self) -> Signal {
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => Signal::Terminate,
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            else => std::future::pending().await,
        }
    }

    /// The next request.
    ///
    /// # Cancel safety
    /// Dropped, it has taken none.
    #[cfg(not(unix))]
    pub async fn received(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}
