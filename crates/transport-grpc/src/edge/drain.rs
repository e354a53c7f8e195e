//! Reading for a while what nobody wants any more.
//!
//! A handler may answer, and a request be refused, before its client has sent all. To reset such a
//! stream would count each frame that is on its way as an error of the connection, which ends for
//! some of these, with all calls on it.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use tokio::time::timeout;
use tonic::Streaming;

/// Time and bytes that a client has to notice.
const TIME_MAX: Duration = Duration::from_secs(5);
const BYTES_MAX: usize = 1 << 20;

/// Drops the messages that still come.
pub(super) async fn messages(mut messages: Streaming<Bytes>) {
    let mut bytes = 0;
    let dropping = async {
        while let Ok(Some(message)) = messages.message().await {
            bytes += message.len();
            if bytes > BYTES_MAX {
                return;
            }
        }
    };
    // Who goes on is reset.
    let _ = timeout(TIME_MAX, dropping).await;
}

/// Drops what still comes of a request, in a task of its own.
pub(super) fn spawn_body<B>(body: B)
where
    B: Body<Data = Bytes> + Send + 'static,
{
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let (mut body, mut bytes) = (pin!(body), 0);
        let dropping = async {
            while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > BYTES_MAX {
                    return;
                }
            }
        };
        let _ = timeout(TIME_MAX, dropping).await;
    });
}
