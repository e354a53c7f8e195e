//! The writer task of a connection: it writes while the socket is slow, and keeps the peer sure
//! that this end is alive.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::connection::{TcpConnection, WriteDuty, Written};
use crate::platform::Platform;

/// Runs until it is aborted with the connection.
///
/// A keep-alive goes out when nothing was sent between two ticks, so a tick is half the interval.
pub(crate) async fn run(connection: Arc<TcpConnection>, keep_alive_interval: Duration) {
    let period = (keep_alive_interval / 2).max(Duration::from_millis(1));
    let mut tick = interval_at(Instant::now() + period, period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut bytes_sent_before = 0;
    loop {
        tokio::select! {
            biased;
            () = connection.writer_signal.notified() => {
                write_handed(&connection).await;
            }
            _ = tick.tick() => {
                if connection.bytes_sent() == bytes_sent_before {
                    connection.keep_alive();
                }
                bytes_sent_before = connection.bytes_sent();
            }
        }
    }
}

/// Writes what was handed over, if it was.
pub(crate) async fn write_handed<P: Platform>(connection: &TcpConnection<P>) {
    if let Some(duty) = connection.take_handed() {
        write_out(connection, duty).await;
    }
}

/// Writes until the queue is empty or the socket fails.
async fn write_out<P: Platform>(connection: &TcpConnection<P>, mut duty: WriteDuty<P::Half>) {
    while let Some(filled) = connection.refill(duty) {
        duty = filled;
        let written = match connection.write_batch(&mut duty) {
            Ok(Written::All) => {
                tokio::task::coop::consume_budget().await;
                Ok(())
            }
            Ok(Written::WouldBlock) => duty.writable().await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            return connection.on_write_error(&error);
        }
    }
}
