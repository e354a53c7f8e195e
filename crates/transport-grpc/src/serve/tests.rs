//! Clients that do not take what they ask for, over a stream in memory and a clock that stands.

use std::task::Poll;

use convoke_transport::parts::Settings;
use hyper::client::conn::http2::{Builder, SendRequest};
use tokio::io::duplex;
use tokio::task::JoinHandle;
use tonic::body::Body;

use super::*;

/// Answers every request with a word, which may be left unread for an hour where the path says so.
struct Word;

const HOUR: &str = "/hour";

impl Handler for Word {
    async fn handle(self: Arc<Self>, request: Request, _: Ends) -> Response {
        let mut response = Response::new(Body::new("a word".to_owned()));
        if request.uri().path() == HOUR {
            let read_by = Instant::now() + Duration::from_secs(3_600);
            response.extensions_mut().insert(Unread { read_by, place: Arc::new(()) });
        }
        response
    }
}

fn terms() -> Arc<Terms> {
    Arc::new(Terms {
        #[cfg(feature = "tls")]
        tls: None,
        streams_max: 8,
        resets_max: 8,
        stream_window_bytes: 65_535,
        connection_window_bytes: 65_535,
        frame_bytes_max: 16 << 10,
        handshake_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(3_600),
        ping_timeout: Duration::from_secs(20),
        grace: Duration::from_secs(1),
    })
}

/// A client with so much room for each answer, whose connection and that of the server end with
/// these tasks.
async fn client(room: u32) -> (SendRequest<Body>, JoinHandle<()>, JoinHandle<()>) {
    let acceptor = Acceptor {
        handler: Arc::new(Word),
        terms: terms(),
        admission: Arc::new(Settings::default().admission()),
        stop: watch::channel(None).1,
        refusals: Refusals::new(),
    };
    let (near, far) = duplex(64 << 10);
    let local = SocketAddr::from(([127, 0, 0, 1], 1));
    let ends = Ends::new(local, local, Shown::default());
    let serving = tokio::spawn(async move { drop(acceptor.speak(far, ends).await) });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(room);
    let (send, connection) = builder.handshake(TokioIo::new(near)).await.expect("it is served");
    (send, tokio::spawn(async move { drop(connection.await) }), serving)
}

async fn ask(send: &mut SendRequest<Body>) -> hyper::Result<http::Response<Incoming>> {
    ask_at(send, "/").await
}

async fn ask_at(
    send: &mut SendRequest<Body>,
    path: &str,
) -> hyper::Result<http::Response<Incoming>> {
    let request = http::Request::post(format!("http://server{path}"));
    send.send_request(request.body(Body::empty()).unwrap()).await
}

/// Takes all of an answer, and gives the number of its bytes.
async fn take(answer: http::Response<Incoming>) -> usize {
    let (mut body, mut count) = (answer.into_body(), 0);
    while let Some(frame) =
        std::future::poll_fn(|cx| hyper::body::Body::poll_frame(std::pin::Pin::new(&mut body), cx))
            .await
    {
        count += frame.expect("it comes whole").into_data().expect("it is data").len();
    }
    count
}

/// With room for nothing the data waits before HTTP/2, with room for a byte within.
#[tokio::test(start_paused = true)]
async fn a_client_that_answers_pings_and_takes_no_data_is_left_after_a_minute() {
    for room in [0, 1] {
        let (mut send, connection, serving) = client(room).await;
        let unread = ask(&mut send).await.expect("it is answered");
        // Others of its streams change nothing, and are served until then.
        sleep(Duration::from_secs(59)).await;
        drop(ask(&mut send).await.expect("it is answered"));
        let closed = timeout(Duration::from_secs(3), serving).await;
        closed.unwrap_or_else(|_| panic!("it is closed, with room for {room}")).expect("in order");
        connection.await.expect("it ends");
        drop(unread);
    }
}

/// One that may be left unread for an hour was there alone for longer than another has.
#[tokio::test(start_paused = true)]
async fn an_answer_with_more_time_gives_none_to_those_behind_it() {
    let (mut send, connection, serving) = client(1).await;
    let long = ask_at(&mut send, HOUR).await.expect("it is answered");
    sleep(Duration::from_secs(90)).await;
    let began = Instant::now();
    let short = ask(&mut send).await.expect("it is answered");
    serving.await.expect("in order");
    let seconds = began.elapsed().as_secs();
    assert!((60..65).contains(&seconds), "it is closed after {seconds} s");
    connection.await.expect("it ends");
    drop((long, short));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_its_data_late_stays() {
    let (mut send, connection, serving) = client(1).await;
    for _ in 0..10 {
        let answer = ask(&mut send).await.expect("it is answered");
        sleep(Duration::from_secs(59)).await;
        assert_eq!(take(answer).await, 6);
    }
    // Who gives an answer up has nothing to take.
    drop(ask(&mut send).await.expect("it is answered"));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(take(ask(&mut send).await.expect("it is answered")).await, 6);
    drop(send);
    connection.await.expect("it ends");
    serving.await.expect("it ends");
}

/// As where the end of an edge is given up, and the edge goes with it.
#[tokio::test]
async fn a_server_that_has_told_a_grace_keeps_to_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let admission = Arc::new(Settings::default().admission());
    let server = Server::start(listener, Arc::new(Word), terms(), admission);
    let server = server.expect("it listens");
    let hour = Duration::from_secs(3_600);
    let mut draining = Box::pin(server.drain(hour));
    let first = std::future::poll_fn(|cx| Poll::Ready(draining.as_mut().poll(cx).is_ready())).await;
    assert!(!first, "its connections have an hour");
    drop(draining);
    server.stop(Duration::ZERO);
    assert_eq!(*server.stop.borrow(), Some(hour));
}
