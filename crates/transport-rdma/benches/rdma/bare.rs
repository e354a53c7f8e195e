//! The rival: verbs alone, without a line of Convoke, as fast as they allow.
//!
//! Small messages go inline, one send in 16 is signalled, receives are posted ahead and reposted
//! after the answer is on its way.

use std::thread;
use std::time::{Duration, Instant};

use crate::ffi::{self, End};
use crate::node::device_address;

/// Messages of a stream that are timed together.
pub(crate) const BURST: u32 = 256;

/// Two connected ends.
pub(crate) fn pair() -> (End, End) {
    ffi::pair((device_address(), 0).into())
}

/// Round trips, one thread asking both ends in turn; it yields when neither has anything, since the
/// kernel needs the processor to carry the message.
pub(crate) fn polled((near, far): &mut (End, End), bytes: usize, count: usize) -> Vec<Duration> {
    timed(count, || {
        near.send(bytes, 1);
        while receive(far) == 0 {
            thread::yield_now();
        }
        far.send(bytes, 1);
        far.post_receives(1);
        while receive(near) == 0 {
            thread::yield_now();
        }
        near.post_receives(1);
    })
}

/// Round trips between two threads that poll, and yield when there is nothing.
pub(crate) fn polled_by_two(
    (near, far): &mut (End, End),
    bytes: usize,
    count: usize,
) -> Vec<Duration> {
    let until_received = |end: &mut End| {
        while receive(end) == 0 {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count + warm_up(count) {
                until_received(far);
                far.send(bytes, 1);
                far.post_receives(1);
            }
        });
        timed(count, || {
            near.send(bytes, 1);
            until_received(near);
            near.post_receives(1);
        })
    })
}

/// Round trips, one thread that sleeps until the end whose turn it is has an event.
pub(crate) fn by_event((near, far): &mut (End, End), bytes: usize, count: usize) -> Vec<Duration> {
    near.arm();
    far.arm();
    timed(count, || {
        near.send(bytes, 1);
        wait(far);
        far.send(bytes, 1);
        far.post_receives(1);
        wait(near);
        near.post_receives(1);
    })
}

/// One way, at most `window` messages sent and not received; the time of one message, burst by
/// burst.
pub(crate) fn stream(
    (near, far): &mut (End, End),
    bytes: usize,
    window: u32,
    bursts: usize,
) -> Vec<Duration> {
    let burst = || {
        let start = Instant::now();
        let (mut sent, mut received) = (0, 0);
        while received < BURST {
            while sent < BURST && sent - received < window && near.room() > 0 {
                near.send(bytes, 1);
                sent += 1;
            }
            near.poll();
            let count = far.poll();
            far.post_receives(count);
            received += count;
            if count == 0 {
                thread::yield_now();
            }
        }
        start.elapsed() / BURST
    };
    std::iter::repeat_with(burst).take(bursts + 1).skip(1).collect()
}

fn wait(end: &mut End) {
    loop {
        end.wait();
        // Arm, then look: what arrives between would otherwise wait for the next event.
        end.arm();
        if receive(end) > 0 {
            return;
        }
    }
}

/// In a ping-pong at most one message is on its way to an end.
fn receive(end: &mut End) -> u32 {
    let received = end.poll();
    assert!(received <= 1, "more came than was sent");
    received
}

fn timed(count: usize, mut round_trip: impl FnMut()) -> Vec<Duration> {
    let mut one = || {
        let start = Instant::now();
        round_trip();
        start.elapsed()
    };
    let warm_up = warm_up(count);
    (0..warm_up + count).map(|_| one()).skip(warm_up).collect()
}

fn warm_up(count: usize) -> usize {
    count.div_ceil(16)
}
