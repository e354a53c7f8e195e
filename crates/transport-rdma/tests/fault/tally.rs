//! A sink that checks numbered frames as they come, and may send them back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::id::NodeId;
use convoke_transport::id::{Incarnation, LinkNonce};
use convoke_transport::{CloseReason, Connection, Hello, Link, Received, Sink};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::frames;

/// Habit with frames, beside checking them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Nothing.
    Take,
    /// Send them back.
    Echo,
    /// Keep the newest for a while, and look at them again then: nobody may have changed them.
    Hold,
}

/// The sink.
#[derive(Debug)]
pub(crate) struct Tally {
    hello: Hello,
    habit: Habit,
    state: Mutex<BTreeMap<LinkNonce, Seen>>,
    changed: Notify,
}

/// Of one connection.
#[derive(Debug)]
struct Seen {
    connection: Arc<dyn Connection>,
    count: u64,
    held: VecDeque<(u64, Bytes)>,
    complaint: Option<String>,
    closed: Option<CloseReason>,
}

impl Tally {
    pub(crate) fn new(node: u64, habit: Habit) -> Arc<Self> {
        let hello = Hello {
            node: NodeId::new(node),
            incarnation: Incarnation(u64::from(std::process::id())),
            advertised: Vec::new(),
            frame_bytes_max: 1 << 20,
        };
        Arc::new(Self { hello, habit, state: Mutex::default(), changed: Notify::new() })
    }

    /// Number of frames of a connection that have come, all of them right.
    pub(crate) fn count(&self, nonce: LinkNonce) -> u64 {
        let state = self.state.lock();
        let Some(seen) = state.get(&nonce) else { return 0 };
        assert_eq!(seen.complaint, None);
        seen.count
    }

    /// Number of frames of all connections that have come, all of them right.
    pub(crate) fn total(&self) -> u64 {
        let nonces: Vec<_> = self.state.lock().keys().copied().collect();
        nonces.into_iter().map(|nonce| self.count(nonce)).sum()
    }

    /// True when a peer has said goodbye.
    pub(crate) fn has_goodbye(&self) -> bool {
        let is_goodbye = |seen: &Seen| matches!(seen.closed, Some(CloseReason::Peer(_)));
        self.state.lock().values().any(is_goodbye)
    }

    /// Waits for a connection that somebody dialled.
    pub(crate) async fn opened(&self, nonce: LinkNonce) -> Arc<dyn Connection> {
        self.until(|| Some(Arc::clone(&self.state.lock().get(&nonce)?.connection))).await
    }

    /// Waits until so many frames of a connection have come. After its end no more do.
    pub(crate) async fn received(&self, nonce: LinkNonce, count: u64) {
        let has_come = || {
            // First, so that all that came before the end is counted.
            let closed = self.state.lock().get(&nonce).and_then(|seen| seen.closed.clone());
            let has_come = self.count(nonce) >= count;
            assert!(has_come || closed.is_none(), "it ended before {count} had come: {closed:?}");
            has_come.then_some(())
        };
        self.until(has_come).await;
    }

    /// Waits for the end of a connection.
    pub(crate) async fn closed(&self, nonce: LinkNonce) -> CloseReason {
        self.until(|| self.state.lock().get(&nonce)?.closed.clone()).await
    }

    /// Waits for something to come true; a hang is a failure.
    pub(crate) async fn until<T>(&self, is_true: impl Fn() -> Option<T>) -> T {
        let waited = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(value) = is_true() {
                    return value;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waited).await;
        waited.unwrap_or_else(|_| panic!("nothing new for long: {:?}", self.state.lock()))
    }
}

/// Far longer than anything here takes, the seconds in which a silent peer is given up included,
/// and so short that the reason is told before the suite ends a case.
const PATIENCE: Duration = Duration::from_secs(50);

/// As many as the receive slots of a connection, so that holding them is felt.
const HELD_MAX: usize = 32;

impl Seen {
    fn new(connection: Arc<dyn Connection>) -> Self {
        Self { connection, count: 0, held: VecDeque::new(), complaint: None, closed: None }
    }

    fn take(&mut self, habit: Habit, frame: Bytes) {
        let number = self.count;
        self.count += 1;
        let mut complaint = frames::complaint(number, &frame);
        if habit == Habit::Hold {
            self.held.push_back((number, frame));
            if self.held.len() > HELD_MAX {
                let (number, frame) = self.held.pop_front().expect("there are some");
                complaint = complaint.or_else(|| frames::complaint(number, &frame));
            }
        }
        self.complaint = self.complaint.take().or(complaint);
    }
}

impl Sink for Tally {
    fn hello(&self) -> Hello {
        self.hello.clone()
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        self.state.lock().insert(connection.link().nonce, Seen::new(connection));
        self.changed.notify_waiters();
        Ok(())
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        batch: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let mut state = self.state.lock();
        let seen =
            state.get_mut(&from.link().nonce).ok_or("a batch before the connection opened")?;
        for frame in batch {
            if self.habit == Habit::Echo {
                let echoed = from.append_bytes(frame.lane, &[], frame.bytes.clone());
                // Whoever wants an echo leaves room for it, or is gone.
                seen.complaint = seen.complaint.take().or(match echoed {
                    Err(error @ convoke_transport::NotWritable::Full) => Some(error.to_string()),
                    _ => None,
                });
            }
            seen.take(self.habit, frame.bytes);
        }
        let complaint = seen.complaint.clone();
        drop(state);
        from.flush();
        self.changed.notify_waiters();
        complaint.map_or(Ok(()), Err)
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        let mut state = self.state.lock();
        let seen = state.get_mut(&link.nonce).expect("a connection opens before it ends");
        if let Some(first) = seen.closed.replace(reason) {
            seen.complaint = Some(format!("it ended twice, first: {first}"));
        }
        drop(state);
        self.changed.notify_waiters();
    }
}
