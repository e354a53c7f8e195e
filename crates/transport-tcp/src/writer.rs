//! The writer task of a connection: it writes while the socket is slow, and keeps the peer sure
//! that this end is alive.

use std::time::Duration;

use convoke_transport::parts::keep_alive;

use crate::connection::{TcpConnection, WriteDuty, Written};
use crate::platform::Platform;

/// Runs until it is aborted with the connection.
pub(crate) async fn run(connection: std::sync::Arc<TcpConnection>, keep_alive_interval: Duration) {
    let write = async {
        loop {
            connection.writer_signal.notified().await;
            write_handed(&connection).await;
        }
    };
    tokio::join!(write, keep_alive(&*connection, keep_alive_interval));
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
