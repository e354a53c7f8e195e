//! Operation of a node: its logs, its metrics and health for others to read, and its orderly end.
//!
//! ```text
//!   start    logs ─ Metrics::install ─ StopSignal::listen ─ Listener::start     not ready
//!   run      NodeHealth::ready                                                  ready
//!   SIGTERM  or Ctrl-C
//!   end      not ready ─▶ hand leadership over ─▶ drain ─▶ close                Shutdown::run
//! ```
//! ```no_run
//! use std::time::Duration;
//!
//! use node_kit::operation::{self, Listener, Metrics, NodeHealth, Shutdown, StopSignal};
//!
//! # async fn hand_over() {}
//! # async fn close_ledger() -> Result<(), std::io::Error> { Ok(()) }
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! operation::logs("info")?;
//! let metrics = Metrics::install()?;
//! let mut stop = StopSignal::listen()?;
//! let health = NodeHealth::new("replaying the ledger");
//! let _listener = Listener::start("127.0.0.1:9001".parse()?, metrics, health.clone()).await?;
//! // With `metrics()`, too, where convoke has its feature of that name.
//! let node = convoke::endpoint().health(health.endpoint()).start().await?;
//! health.ready();
//! let signal = stop.received().await;
//! let shutdown = Shutdown::new(&health).drain_within(Duration::from_secs(10));
//! let ended = shutdown.run(&mut stop, hand_over(), node, close_ledger()).await;
//! println!("{signal}: {ended}");
//! # Ok(())
//! # }
//! ```

use std::str::FromStr as _;

use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, fmt};

mod answers;
mod asking;
mod health;
mod listener;
mod metrics;
mod page;
mod shutdown;
mod spans;
#[cfg(test)]
mod tests;
mod traffic;

pub use self::asking::{get, ready};
pub use self::health::{NodeHealth, State};
pub use self::listener::{ListenError, Listener, ListenerBuilder};
pub use self::metrics::{Metrics, MetricsError};
pub use self::page::Page;
pub use self::shutdown::{Ended, Shutdown};
pub use self::spans::Spans;
pub use self::traffic::{Frames, NotTraffic, Traffic};
pub use crate::signals::{Signal, StopSignal};

/// Variable of the environment that says which lines the log has, such as `info,paxos=debug`.
pub const LOG_VARIABLE: &str = "RUST_LOG";

/// Reason why there are no logs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogsError {
    /// The words for what to log cannot be read.
    #[error("{from} {text:?} does not say what to log: {why}")]
    Filter {
        /// The source of the words.
        from: &'static str,
        /// The words.
        text: String,
        /// The defect.
        why: String,
    },
    /// The program has logs already.
    #[error(transparent)]
    Already(#[from] TryInitError),
}

/// Sends the logs of this process to its standard error: what [`LOG_VARIABLE`] says, or else these
/// words.
///
/// Words of the variable may ask for spans of calls and handlers, too, which then stand before the
/// text of what happens inside. The default has events alone: an endpoint makes a span for each call
/// and each handler, and its fields are text that somebody has to write.
///
/// # Errors
/// [`LogsError`]: a variable that cannot be read is not passed over.
pub fn logs(default: &str) -> Result<(), LogsError> {
    let variable = std::env::var(LOG_VARIABLE).ok();
    let lines = lines(variable.as_deref(), default)?;
    Ok(tracing_subscriber::registry().with(lines).try_init()?)
}

/// The same, and keeps the spans of endpoints for a [`Page`], whatever the logs have.
///
/// # Errors
/// [`LogsError`].
pub fn logs_and_spans(default: &str, spans: &Spans) -> Result<(), LogsError> {
    let variable = std::env::var(LOG_VARIABLE).ok();
    let lines = lines(variable.as_deref(), default)?;
    Ok(tracing_subscriber::registry().with(lines).with(spans.layer()).try_init()?)
}

/// [`logs`] of a program, and a [`Page`] where it is to have one.
///
/// # Errors
/// [`LogsError`].
pub fn logs_and_page(default: &str, has_page: bool) -> Result<Option<Page>, LogsError> {
    if !has_page {
        return logs(default).map(|()| None);
    }
    let spans = Spans::new();
    logs_and_spans(default, &spans)?;
    Ok(Some(Page::new(&spans)))
}

/// Lines of the log; with spans only where the variable asks for something.
fn lines<S>(variable: Option<&str>, default: &str) -> Result<impl Layer<S> + use<S>, LogsError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let has_spans = variable.is_some();
    let filter = filter(variable, default)?;
    let filter = filter.and(filter_fn(move |metadata| has_spans || metadata.is_event()));
    Ok(fmt::layer().with_writer(std::io::stderr).with_filter(filter))
}

fn filter(variable: Option<&str>, default: &str) -> Result<EnvFilter, LogsError> {
    let (from, text) = match variable {
        Some(text) => (LOG_VARIABLE, text),
        None => ("the default", default),
    };
    EnvFilter::from_str(text).map_err(|error| {
        let (text, why) = (text.to_owned(), error.to_string());
        LogsError::Filter { from, text, why }
    })
}
