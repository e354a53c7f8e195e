//! Log lines of a node, to be waited for.

use std::io;
use std::sync::{Arc, LazyLock};

use convoke_transport::conformance::PATIENCE;
use convoke_transport::parts::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The log of this thread, which runs the whole of a test but for its raw peers.
pub(crate) struct Log {
    written: Written,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<(Mutex<String>, Notify)>);

/// A subscriber that hears nothing. While there is only one, tracing asks the thread that first
/// comes to a line whether it is wanted, and keeps the answer for all: mostly that of a test
/// without a log.
static SECOND: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish()));

impl Log {
    pub(crate) fn start() -> Self {
        LazyLock::force(&SECOND);
        let written = Written::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(written.clone())
            .finish();
        Self { written, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Number of lines that hold this text, among those since the last that was waited for.
    #[allow(dead_code, reason = "most tests wait for one line")]
    pub(crate) fn count(&self, text: &str) -> u64 {
        self.written.0.0.lock().lines().map(|line| u64::from(line.contains(text))).sum()
    }

    /// Waits until a refused connection is logged with this reason, and forgets what was logged.
    pub(crate) async fn refused(&self, reason: &str) {
        let (text, changed) = &*self.written.0;
        let found = async {
            loop {
                let change = changed.notified();
                let is_refusal =
                    |line: &str| line.contains("connection refused") && line.contains(reason);
                if text.lock().lines().any(is_refusal) {
                    return text.lock().clear();
                }
                change.await;
            }
        };
        if timeout(PATIENCE, found).await.is_err() {
            panic!("waited in vain for {reason:?} in the log:\n{}", text.lock());
        }
    }
}

impl<'a> MakeWriter<'a> for Written {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().push_str(&String::from_utf8_lossy(bytes));
        self.0.1.notify_one();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
