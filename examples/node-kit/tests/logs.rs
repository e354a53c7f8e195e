//! Logs of a process, of which it has one: so this is a test of its own.

use node_kit::operation::{LOG_VARIABLE, logs};
use tracing::Level;

/// Spans of calls are not written unless they are asked for, and so nobody makes their fields.
#[test]
fn the_default_log_has_events_and_no_spans() {
    if std::env::var(LOG_VARIABLE).is_ok() {
        eprintln!("skipped: {LOG_VARIABLE} is set");
        return;
    }
    logs("info").unwrap();
    assert!(tracing::event_enabled!(target: "convoke", Level::INFO));
    assert!(!tracing::event_enabled!(target: "convoke", Level::DEBUG));
    assert!(tracing::info_span!(target: "convoke", "call").is_disabled());
}
