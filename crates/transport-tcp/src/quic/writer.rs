//! The writer task of a connection: it flushes for callers of a busy connection, writes where there
//! was no credit, and sends large frames.

use std::sync::Arc;

use convoke_transport::Lane;
use convoke_transport::parts::index;
use quinn::{SendStream, WriteError};
use tokio::task::JoinSet;

use crate::quic::connection::{QuicConnection, WriteDuty};
use crate::quic::send_lane::Large;

/// Runs until it is aborted with the connection. No lane waits for another.
pub(crate) async fn run(connection: Arc<QuicConnection>) {
    tokio::join!(
        flush_for_others(&connection),
        write_lane(&connection, Lane::Control),
        write_lane(&connection, Lane::Data),
        send_large(&connection),
    );
}

/// Writes what callers appended at about the same time, with one write.
async fn flush_for_others(connection: &QuicConnection) {
    loop {
        connection.flush_signal.notified().await;
        tokio::task::yield_now().await;
        connection.flush_now();
    }
}

async fn write_lane(connection: &QuicConnection, lane: Lane) {
    loop {
        connection.writer_signals[index(lane)].notified().await;
        if let Some(duty) = connection.take_handed(lane) {
            write_out(connection, lane, duty).await;
        }
    }
}

/// Writes until the lane is empty or its stream fails.
async fn write_out(connection: &QuicConnection, lane: Lane, mut duty: WriteDuty) {
    while let Some(filled) = connection.refill(lane, duty) {
        duty = filled;
        match duty.write().await {
            Ok(written) => connection.count_written(&duty, &written),
            Err(error) => return connection.on_write_error(&error),
        }
        tokio::task::coop::consume_budget().await;
    }
}

/// Opens a stream for every large frame, in order; the streams are then written at the same time.
async fn send_large(connection: &Arc<QuicConnection>) {
    let mut sending = JoinSet::new();
    loop {
        connection.large_signal.notified().await;
        while let Some(large) = connection.next_large() {
            match connection.quic.open_uni().await {
                Ok(stream) => _ = sending.spawn(send_one(Arc::clone(connection), stream, large)),
                Err(lost) => return connection.on_write_error(&WriteError::ConnectionLost(lost)),
            }
            while sending.try_join_next().is_some() {}
        }
    }
}

async fn send_one(connection: Arc<QuicConnection>, mut stream: SendStream, large: Large) {
    if let Err(error) = write_large(&connection, &mut stream, large).await {
        connection.on_write_error(&error);
    }
}

async fn write_large(
    connection: &QuicConnection,
    stream: &mut SendStream,
    mut large: Large,
) -> Result<(), WriteError> {
    let (mut next, mut left) = (0, large.len());
    while left > 0 {
        let written = stream.write_chunks(&mut large.parts[next..]).await?;
        next += written.chunks;
        left -= written.bytes;
        connection.count_large_written(written.bytes, left == 0);
        tokio::task::coop::consume_budget().await;
    }
    // A stream that was stopped meanwhile tells on the next write to the lane.
    let _ = stream.finish();
    let _ = stream.stopped().await;
    connection.on_large_done();
    Ok(())
}
