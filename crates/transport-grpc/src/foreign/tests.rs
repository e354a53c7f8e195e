//! A server over a pipe, in virtual time.

use convoke_core::RawMessage;
use tokio::time::sleep;

use super::*;

const SAY: Method<RawMessage, RawMessage> = Method::new("edge.test.Echo/Say");
const SECOND: Duration = Duration::from_secs(1);

/// The rest of its deadline has passed for the server, too: who works beyond it works for nobody.
#[tokio::test(start_paused = true)]
async fn a_server_is_told_the_time_that_is_left_once_its_connection_is_there() {
    let server = ForeignServer::new("prices:1");
    let (opens, attempt) = watch::channel(None);
    *server.inner.connection.lock() = Some(attempt);
    let call = server.call(SAY, &RawMessage::new(Bytes::new())).deadline(10 * SECOND);
    let calling = tokio::spawn(call.into_future());
    sleep(2 * SECOND).await;

    let (near, far) = tokio::io::duplex(64 << 10);
    let (http2, kept) = http2::speak(near, terms()).await.expect("it speaks HTTP/2");
    let opened = Instant::now();
    let line = Line { http2, opened, heard: Mutex::new(opened), _kept: kept };
    opens.send_replace(Some(Ok(Arc::new(line))));
    let mut far = h2::server::handshake(far).await.expect("it speaks HTTP/2");
    let (request, _answer) = far.accept().await.expect("a request").expect("in order");
    let told = request.headers().get("grpc-timeout").expect("it is told");
    assert_eq!(told, "8000000u");
    calling.abort();
}
