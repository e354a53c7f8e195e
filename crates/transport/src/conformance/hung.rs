//! Processes that hang: their system and their adapter go on, and they do not.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread;

use bytes::Bytes;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::recorder::Recorder;
use super::{Setup, send};
use crate::{CloseReason, Lane, Listener};

/// A thread with a runtime of its own, in place of a process.
struct Process {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A process that does nothing until this is dropped.
struct Hung {
    _resume: mpsc::Sender<()>,
}

impl Process {
    fn start() -> Self {
        let (told, handle) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("the system gives a runtime");
            told.send(runtime.handle().clone()).expect("the test waits for it");
            // The sender may be dropped as well.
            let _ = runtime.block_on(stopped);
        });
        let handle = handle.recv().expect("the thread has started");
        Self { handle, stop: Some(stop), thread: Some(thread) }
    }

    async fn run<T: Send + 'static>(&self, act: impl Future<Output = T> + Send + 'static) -> T {
        self.handle.spawn(act).await.expect("it does not panic")
    }

    /// Blocks its only thread. It is blocked when this returns.
    async fn hang(&self) -> Hung {
        let (resume, resumed) = mpsc::channel::<()>();
        let (told, hangs) = oneshot::channel();
        self.handle.spawn(async move {
            told.send(()).expect("the test waits for it");
            // It ends with the sender.
            let _ = resumed.recv();
        });
        hangs.await.expect("the process runs");
        Hung { _resume: resume }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok(), "a process of the test panicked");
        }
    }
}

/// An end whose process hangs, be it the one that dialled or the other, is noticed by the
/// keep-alive timeout, though its system and its adapter go on to answer. Not among those of
/// [`all`](super::all): it takes as long as the timeout, so the setup should have a short one. Each
/// setup must have transports of its own, which run where they first listen or dial.
pub async fn a_hung_process_is_noticed(setup: impl Fn() -> Setup) {
    tokio::join!(hangs(setup(), true), hangs(setup(), false));
}

async fn hangs(setup: Setup, is_dialler: bool) {
    let process = Process::start();
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let (listening, sink) = (setup.clone(), Arc::clone(&b));
    let listen = async move { listening.listen(&sink).await };
    let listener = if is_dialler { listen.await } else { process.run(listen).await };
    let listener: Arc<dyn Listener> = Arc::from(listener);
    let (dialling, sink, at) = (setup, Arc::clone(&a), Arc::clone(&listener));
    let dial = async move { dialling.dial(&*at, &sink).await };
    let dialled = if is_dialler { process.run(dial).await } else { dial.await };
    let to_b = dialled.expect("the other end listens");
    let to_a = b.opened(0).await;
    let nonce = to_b.link().nonce;
    for (from, to) in [(&to_b, &b), (&to_a, &a)] {
        send(from, Lane::Data, &Bytes::from_static(b"alive")).await;
        to.frames(nonce, 1).await;
    }

    let hung = process.hang().await;
    let awake = if is_dialler { &b } else { &a };
    assert_eq!(awake.closed(nonce).await, CloseReason::KeepAlive);
    drop(hung);
    let asleep = if is_dialler { &a } else { &b };
    asleep.closed(nonce).await;
    a.check();
    b.check();
}
