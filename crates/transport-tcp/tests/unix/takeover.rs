//! Many that want one path, and queues that are full.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use convoke_transport::conformance::Recorder;
use convoke_transport::{DialError, DialLimit, Listener, Transport};
use convoke_transport_tcp::TcpTransport;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::runtime::Handle;

use crate::{at, dial, files, listen, place};

/// Of those that start at the very same time, one listens; and whoever it is, is reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_find_a_dead_socket_one_gets_it() {
    const CROWD: usize = 8;
    let (folder, path) = place();
    for round in 0..50 {
        drop(UnixListener::bind(&path).expect("nobody is there"));
        let (start, runtime) = (Barrier::new(CROWD), Handle::current());
        let address = at(&path);
        let one = || {
            start.wait();
            runtime.block_on(listen(&address))
        };
        let crowd: Vec<Result<Box<dyn Listener>, _>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CROWD).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (winners, losers): (Vec<_>, Vec<_>) = crowd.into_iter().partition(Result::is_ok);
        assert_eq!(winners.len(), 1, "round {round}: {losers:?}");
        for loser in losers {
            let message = loser.expect_err("it lost").to_string();
            assert!(message.contains("in use"), "{message}");
        }
        dial(&address).await.expect("the winner is there");
        drop(winners);
        assert!(files(folder.path()).is_empty());
    }
}

/// A listener with a queue for one connection.
fn busy(path: &Path) -> UnixListener {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("there are sockets");
    socket.bind(&SockAddr::unix(path).expect("it is short")).expect("nobody is there");
    socket.listen(0).expect("it is bound");
    socket.into()
}

/// Linux does not wait for room in the queue of a listener.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_dial_waits_for_room_in_the_queue_within_its_time() {
    let (_folder, path) = place();
    let listener = busy(&path);
    let _first = std::os::unix::net::UnixStream::connect(&path).expect("one fits");

    let transport = TcpTransport::builder().dial_timeout(Duration::from_millis(100)).build();
    let transport = transport.expect("the settings are legal");
    let dialled = transport.dial(&at(&path), None, Arc::new(Recorder::new(1))).await;
    let limit = DialLimit::Connect(Duration::from_millis(100));
    assert_eq!(dialled.err(), Some(limit.passed(&at(&path))));

    // Once there is room it gets on: to the end of the stream in place of a hello.
    let dialling = tokio::spawn(async move { dial(&at(&path)).await });
    let accepting = tokio::task::spawn_blocking(move || {
        for _ in 0..2 {
            listener.accept().expect("it is dialled");
        }
    });
    accepting.await.expect("both came");
    let dialled = dialling.await.expect("no panic");
    assert!(!matches!(dialled, Ok(()) | Err(DialError::Timeout { .. })), "{dialled:?}");
}
