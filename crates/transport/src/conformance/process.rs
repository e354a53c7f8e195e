//! A thread that stands for a process: it can hang, and it can end.

use std::future::Future;
use std::sync::mpsc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime of its own, in place of a process.
pub(super) struct Process {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A process that does nothing until this is dropped.
pub(super) struct Hung {
    _resume: mpsc::Sender<()>,
}

impl Process {
    /// A process that does nothing yet.
    pub(super) fn start() -> Self {
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

    /// The runtime of the process.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs something within the process.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        act: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.handle.spawn(act).await.expect("it does not panic")
    }

    /// Blocks its only thread. It is blocked when this returns.
    pub(super) async fn hang(&self) -> Hung {
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
