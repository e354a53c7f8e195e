use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use proptest::prelude::*;

use super::super::{Ends, Fault, LiveCounters, Mutex};
use super::*;
use crate::id::{Incarnation, LinkNonce, NodeId};
use crate::{Buffer, Connection, Counters, Hello, Lane, Link, NoBuffer, Received, Sink};

const TERMS: LifeTerms =
    LifeTerms { keep_alive_timeout: Duration::from_secs(10), close_grace: Duration::from_secs(1) };

/// A connection that knows why it closes, and nothing else.
#[derive(Debug)]
struct Ended {
    link: Link,
    counts: LiveCounters,
    closing: Mutex<Option<CloseReason>>,
    is_all_sent: AtomicBool,
}

impl Connection for Ended {
    fn link(&self) -> &Link {
        &self.link
    }
    fn with_buffer(&self, act: &mut dyn FnMut(&mut dyn Buffer)) {
        act(&mut NoBuffer);
    }
    fn flush(&self) {}
    fn poll_flush(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn poll_writable(&self, _: Lane, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
    fn close(&self, reason: CloseReason) {
        self.closing.lock().get_or_insert(reason);
    }
    fn counters(&self) -> Counters {
        self.counts.snapshot()
    }
}

impl Ends for Ended {
    fn end(&self, reason: CloseReason) {
        self.close(reason);
    }
}

impl Carrier for Ended {
    fn counts(&self) -> &LiveCounters {
        &self.counts
    }
    fn closing(&self) -> Option<Closing> {
        self.closing.lock().clone().map(Closing::new)
    }
    fn is_all_sent(&self) -> bool {
        self.is_all_sent.load(Ordering::Relaxed)
    }
    fn grant(&self, _: Lane, _: u32) -> Result<(), Fault> {
        Err(Fault::NoCredit)
    }
    fn return_credit(&self, _: Lane, bytes: u32) -> u32 {
        bytes
    }
    fn keep_alive(&self) {}
}

/// Reasons of the ends that it was told of.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<CloseReason>>);

impl Sink for Told {
    fn hello(&self) -> Hello {
        hello()
    }
    fn on_open(&self, _: Arc<dyn Connection>) -> Result<(), String> {
        Ok(())
    }
    fn on_batch(
        &self,
        _: &Arc<dyn Connection>,
        _: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        Ok(())
    }
    fn on_closed(&self, _: &Link, reason: CloseReason) {
        self.0.lock().push(reason);
    }
}

fn hello() -> Hello {
    Hello {
        node: NodeId::new(1),
        incarnation: Incarnation(1),
        advertised: Vec::new(),
        frame_bytes_max: 1,
    }
}

fn life(now: Instant) -> (Life<Ended>, Arc<Ended>, Arc<Told>) {
    let link = Link {
        peer: hello(),
        nonce: LinkNonce::of(1, 2),
        is_dialler: true,
        scheme: "test",
        principal: None,
        remote: None,
    };
    let (counts, closing) = (LiveCounters::default(), Mutex::default());
    let is_all_sent = AtomicBool::new(false);
    let connection = Arc::new(Ended { link, counts, closing, is_all_sent });
    let told = Arc::new(Told::default());
    let lifetime = Lifetime::new(Arc::clone(&connection), Arc::clone(&told) as _, None);
    (Life::new(lifetime, TERMS, now), connection, told)
}

#[test]
fn who_says_nothing_for_the_timeout_is_dead_and_who_says_anything_is_not() {
    let start = Instant::now();
    let (mut life, connection, _) = life(start);
    assert_eq!(life.on_timer(start + TERMS.keep_alive_timeout - Duration::from_nanos(1)), None);
    let late = start + Duration::from_secs(9);
    assert_eq!(life.on_bytes(late), Verdict::Deliver);
    assert_eq!(life.delivered(None, late), None);
    assert_eq!(life.on_timer(start + TERMS.keep_alive_timeout), None);
    let end = late + TERMS.keep_alive_timeout;
    assert_eq!(life.deadline(), end);
    assert_eq!(life.on_timer(end), Some(CloseReason::KeepAlive));
    assert_eq!(connection.closing().map(|closing| closing.reason), Some(CloseReason::KeepAlive));
}

#[test]
fn what_waited_while_the_process_was_paused_is_stale() {
    let start = Instant::now();
    let (mut life, ..) = life(start);
    let after = start + TERMS.keep_alive_timeout + Duration::from_nanos(1);
    assert_eq!(life.on_bytes(after), Verdict::End(CloseReason::Stale));
}

#[test]
fn the_time_that_the_sink_takes_is_not_the_peers() {
    let start = Instant::now();
    let (mut life, ..) = life(start);
    assert_eq!(life.on_bytes(start), Verdict::Deliver);
    let after = start + 5 * TERMS.keep_alive_timeout;
    assert_eq!(life.delivered(None, after), None);
    assert_eq!(life.on_bytes(after + Duration::from_secs(1)), Verdict::Deliver);
}

#[test]
fn a_fault_ends_after_the_grace_and_delivers_nothing_more() {
    let start = Instant::now();
    let (mut life, ..) = life(start);
    assert_eq!(life.delivered(Some(Stop::Fault("bad".into())), start), None);
    assert_eq!(life.on_bytes(start), Verdict::Drop);
    let end = start + TERMS.close_grace;
    assert_eq!(life.on_timer(end), Some(CloseReason::Fault("bad".into())));
}

#[test]
fn what_comes_after_a_gentle_close_is_delivered_until_the_goodbye() {
    let start = Instant::now();
    let (mut life, connection, told) = life(start);
    connection.close(CloseReason::Local);
    life.on_signal(start);
    assert_eq!(life.on_bytes(start), Verdict::Deliver);
    assert_eq!(life.delivered(Some(Stop::Goodbye("bye".into())), start), None);
    assert_eq!(life.on_bytes(start), Verdict::Drop);
    connection.is_all_sent.store(true, Ordering::Relaxed);
    assert_eq!(life.on_end_of_peer(start), Some(CloseReason::Local));
    life.end(CloseReason::Local);
    assert_eq!(*told.0.lock(), [CloseReason::Local]);
}

#[test]
fn a_goodbye_does_not_cut_short_what_a_gentle_close_still_sends() {
    let start = Instant::now();
    let (mut life, connection, _) = life(start);
    connection.close(CloseReason::Local);
    assert_eq!(life.delivered(Some(Stop::Goodbye("bye".into())), start), None);
    assert_eq!(life.on_end_of_peer(start), None);
    assert!(!life.is_reading());
    assert_eq!(life.on_signal(start), None);
    connection.is_all_sent.store(true, Ordering::Relaxed);
    assert_eq!(life.on_signal(start), Some(CloseReason::Local));
}

#[test]
fn what_a_gentle_close_still_sends_has_no_more_than_its_grace() {
    let start = Instant::now();
    let (mut life, connection, _) = life(start);
    connection.close(CloseReason::Local);
    assert_eq!(life.delivered(Some(Stop::Goodbye("bye".into())), start), None);
    assert_eq!(life.deadline(), start + TERMS.close_grace);
    assert_eq!(life.on_timer(start + TERMS.close_grace), Some(CloseReason::Local));
}

#[test]
fn a_goodbye_says_better_why_than_a_write_that_failed() {
    let start = Instant::now();
    let (mut life, connection, _) = life(start);
    connection.close(CloseReason::Network("broken pipe".into()));
    assert_eq!(life.on_bytes(start), Verdict::Deliver);
    let end = life.delivered(Some(Stop::Goodbye("enough".into())), start);
    assert_eq!(end, Some(CloseReason::Peer("enough".into())));
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Bytes(Option<Stop>),
    Close(CloseReason),
    Signal,
    Timer,
    Sent,
    End,
    Network,
}

fn step() -> impl Strategy<Value = Step> {
    let reason = prop_oneof![
        Just(CloseReason::Local),
        Just(CloseReason::Overloaded),
        Just(CloseReason::Fault("a".into())),
        Just(CloseReason::Network("b".into())),
    ];
    let stop = prop_oneof![
        8 => Just(None),
        1 => Just(Some(Stop::Fault("c".into()))),
        1 => Just(Some(Stop::Goodbye("d".into()))),
    ];
    prop_oneof![
        4 => (0_u64..4_000).prop_map(Step::Wait),
        4 => stop.prop_map(Step::Bytes),
        1 => reason.prop_map(Step::Close),
        2 => Just(Step::Signal),
        3 => Just(Step::Timer),
        1 => Just(Step::Sent),
        1 => Just(Step::End),
        1 => Just(Step::Network),
    ]
}

proptest! {
    /// Any life is over in time, the sink is told once, and a closed connection keeps the reason
    /// that it was closed with, unless the peer said better.
    #[test]
    fn every_life_ends_once_and_in_time(steps in prop::collection::vec(step(), 0..60)) {
        let start = Instant::now();
        let (mut life, connection, told) = life(start);
        let (mut now, mut end) = (start, None);
        for step in steps {
            end = match step {
                Step::Wait(ms) => { now += Duration::from_millis(ms); None }
                Step::Close(reason) => { connection.close(reason); None }
                Step::Signal => life.on_signal(now),
                Step::Sent => { connection.is_all_sent.store(true, Ordering::Relaxed); None }
                Step::End if life.is_reading() => life.on_end_of_peer(now),
                Step::End => None,
                Step::Timer => life.on_timer(now),
                Step::Network => Some(life.end_by_network("e".into(), now)),
                Step::Bytes(stop) => match life.on_bytes(now) {
                    Verdict::End(reason) => Some(reason),
                    Verdict::Drop => life.delivered(None, now),
                    Verdict::Deliver => life.delivered(stop, now),
                },
            };
            prop_assert!(life.deadline() <= now + TERMS.keep_alive_timeout);
            if end.is_some() {
                break;
            }
        }
        let reason = end.unwrap_or_else(|| {
            life.on_signal(now).unwrap_or_else(|| {
                let deadline = life.deadline();
                life.on_timer(deadline).expect("the deadline has come")
            })
        });
        if let Some(closing) = connection.closing()
            && !matches!(closing.reason, CloseReason::Network(_))
            && !matches!(reason, CloseReason::Peer(_))
        {
            prop_assert_eq!(&closing.reason, &reason);
        }
        life.end(reason.clone());
        prop_assert_eq!(&*told.0.lock(), &[reason]);
    }
}
