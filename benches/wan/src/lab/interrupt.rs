//! An end to measurements by a signal, in order.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// The exit code after an interrupt, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;

/// Measures, until it is done or interrupted. What it had made by then is dropped, and so removed.
pub(super) fn until_interrupted(
    measure: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = interrupted() => {
                eprintln!("interrupted: removing the network");
                Ok(ExitCode::from(EXIT_INTERRUPTED))
            }
            done = measure => done.map(|()| ExitCode::SUCCESS),
        }
    })
}

async fn interrupted() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut hangup] = match signals.map(signal) {
        [Ok(interrupt), Ok(terminate), Ok(hangup)] => [interrupt, terminate, hangup],
        // Without handlers a signal ends the process, as it would have without this.
        _ => return std::future::pending().await,
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
