//! Commands of a node program that are the same whatever its protocol.
//!
//! | module | contents |
//! |---|---|
//! | [`ledger`] | the ledger of a node: opened, printed, its disk measured |
//! | [`load`] | clients of a demonstration, recorded, and all that they wrote read back |
//! | [`local`] | nodes as processes of this machine: started, killed, paused |
//! | [`ranges`] | ranges of arguments, beyond which they are refused |
//! | [`store`] | clients of key-value stores, and the command `client` |
//! | [`torture`] | the command of that name: nodes under load that are hurt at random |

pub mod ledger;
pub mod load;
pub mod local;
pub mod ranges;
pub mod store;
#[cfg(unix)]
pub mod torture;

use std::future::Future;
use std::io;
use std::time::Duration;

use convoke::transport::{Identity, IdentityWatch};

use crate::operation::{Signal, StopSignal};
use crate::processes::Parent;

/// Runs a command on a runtime of its own. What it leaves on other threads is not waited for: a
/// read of the standard input of a child ends with its parent.
///
/// # Errors
/// Those of the system, when there can be no runtime.
pub fn run<T>(command: impl Future<Output = T>) -> io::Result<T> {
    Ok(run_on(tokio::runtime::Runtime::new()?, command))
}

/// Runs a command on this thread alone, with all tasks that it spawns: clients that put load on
/// nodes of the same machine take less of its processors so.
///
/// # Errors
/// Those of [`run`].
pub fn run_on_this_thread<T>(command: impl Future<Output = T>) -> io::Result<T> {
    Ok(run_on(tokio::runtime::Builder::new_current_thread().enable_all().build()?, command))
}

fn run_on<T>(runtime: tokio::runtime::Runtime, command: impl Future<Output = T>) -> T {
    let done = runtime.block_on(command);
    runtime.shutdown_background();
    done
}

/// Has a node prove itself by new files of its certificate, key and authorities once they are
/// there, until what it gives is dropped. They are looked at once a minute.
///
/// # Panics
/// Outside a tokio runtime.
pub fn renewed(identity: &Identity) -> IdentityWatch {
    identity.watch(RENEWED_EVERY)
}

/// A certificate of an hour is renewed some minutes before its end.
const RENEWED_EVERY: Duration = Duration::from_secs(60);

/// Resolves when a node is to stop: by a signal, or, if it is a child, by the end of its standard
/// input, as it comes with the end of its parent.
pub async fn asked_to_stop(stop: &mut StopSignal, is_child: bool) -> Option<Signal> {
    let orphaned = async {
        // An input that cannot be read has ended, too.
        let _ = Parent::silent().wait_for_end().await;
    };
    tokio::select! {
        biased;
        signal = stop.received() => Some(signal),
        () = orphaned, if is_child => None,
    }
}

/// A node that has started. `None` when it was to stop before that was done, as beside a disk that
/// hangs: says so in the log, as of a node that runs.
pub async fn unless_asked_to_stop<T>(
    start: impl Future<Output = T>,
    stop: &mut StopSignal,
    is_child: bool,
) -> Option<T> {
    tokio::select! {
        biased;
        signal = asked_to_stop(stop, is_child) => {
            signal.iter().for_each(|signal| tracing::info!("{signal}, before the start was done"));
            None
        }
        started = start => Some(started),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_hangs_keeps_no_program_from_its_end() {
        let (go_on, hangs) = mpsc::channel::<()>();
        let command = async {
            tokio::task::spawn_blocking(move || hangs.recv().unwrap_err());
            7
        };
        assert_eq!(super::run(command).unwrap(), 7);
        drop(go_on);
    }
}
