//! Processors that client and servers run on. A wake from one virtual processor to another costs
//! 2 to 80 µs, as the machine likes; on one processor figures repeat.

use std::fmt;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::flavour::Flavour;

/// Processors that the processes of a case run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// Client and servers on one processor.
    One,
    /// The client on one, the servers on another.
    Split,
    /// As the system likes.
    None,
}

impl Pin {
    /// The default: one processor where the system can be told so.
    #[must_use]
    pub fn usual() -> Self {
        if cfg!(target_os = "linux") { Self::One } else { Self::None }
    }

    /// For a runtime: only those of one thread at both ends are pinned.
    #[must_use]
    pub fn of(self, flavour: Flavour) -> Self {
        if flavour == Flavour::Ct { self } else { Self::None }
    }

    /// Checks that this machine can do it.
    ///
    /// # Errors
    /// It has too few processors for it, or they cannot be chosen on this system.
    pub fn check(self) -> Result<()> {
        Pinned::servers(self)?.client()
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Split => "split",
            Self::None => "none",
        })
    }
}

/// This thread, and what it starts, on the processors of a [`Pin`]. Dropping it gives the thread
/// back all that it had.
#[derive(Debug)]
pub(crate) struct Pinned {
    pin: Pin,
    all: Vec<usize>,
}

impl Pinned {
    /// Moves the thread to where servers are to be started.
    pub(crate) fn servers(pin: Pin) -> Result<Self> {
        let all = if pin == Pin::None { Vec::new() } else { system::allowed()? };
        let pinned = Self { pin, all };
        match pin {
            Pin::One => pinned.go_to(0)?,
            Pin::Split => pinned.go_to(1)?,
            Pin::None => {}
        }
        Ok(pinned)
    }

    /// Moves it to where the client is to run.
    pub(crate) fn client(&self) -> Result<()> {
        if self.pin == Pin::None { Ok(()) } else { self.go_to(0) }
    }

    fn go_to(&self, index: usize) -> Result<()> {
        let Some(processor) = self.all.get(index) else {
            bail!("--pin {} needs {} processors; there is one", self.pin, index + 1);
        };
        system::restrict(&[*processor]).with_context(|| format!("cannot pin to {processor}"))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.all.is_empty() {
            // It was allowed them a moment ago.
            let _ = system::restrict(&self.all);
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use anyhow::{Context as _, Result};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// The processors that this thread may run on.
    pub(super) fn allowed() -> Result<Vec<usize>> {
        let set = sched_getaffinity(None).context("cannot ask for the processors")?;
        Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
    }

    /// Lets this thread, and what it starts from now on, run on these alone.
    pub(super) fn restrict(processors: &[usize]) -> Result<()> {
        let mut set = CpuSet::new();
        processors.iter().for_each(|&processor| set.set(processor));
        Ok(sched_setaffinity(None, &set)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use anyhow::{Result, bail};

    pub(super) fn allowed() -> Result<Vec<usize>> {
        bail!("processors can be chosen on Linux alone: use --pin none")
    }

    pub(super) fn restrict(_: &[usize]) -> Result<()> {
        allowed().map(|_| ())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_processors_back_in_the_end() {
        let before = system::allowed().unwrap();
        let pinned = Pinned::servers(Pin::One).unwrap();
        assert_eq!(system::allowed().unwrap(), before[..1]);
        pinned.client().unwrap();
        assert_eq!(system::allowed().unwrap(), before[..1]);
        drop(pinned);
        assert_eq!(system::allowed().unwrap(), before);
    }

    #[test]
    fn split_needs_a_second_processor() {
        let before = system::allowed().unwrap();
        system::restrict(&before[..1]).unwrap();
        let error = Pin::Split.check().unwrap_err();
        assert!(error.to_string().contains("needs 2 processors"), "{error}");
        system::restrict(&before).unwrap();
        assert!(before.len() < 2 || Pin::Split.check().is_ok());
    }

    #[test]
    fn a_runtime_of_workers_runs_where_it_likes() {
        for flavour in [Flavour::Mt, Flavour::OneWorker, Flavour::TwoWorkers] {
            assert_eq!(Pin::One.of(flavour), Pin::None);
        }
        assert_eq!(Pin::One.of(Flavour::Ct), Pin::One);
    }
}
