//! CANCELs that find a connection's control lane full wait here, so that who gives up many calls at
//! once does not lose the others together with the connection.
//!
//! They may: a CANCEL has no order to keep, and one that comes late only lets its tasks run longer.
//! One that finds no room here either is forgotten, for its tasks end by their deadline at the
//! latest.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::key::Key;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{Cancel, Frame, Head, Header, Message};

use crate::transport::{Appended, Connection, Lane, NotWritable};

use super::Driver;

/// Most that wait for one connection: as many as a node has calls by default, about 12 MiB.
const HELD_MAX: usize = 1 << 17;

/// The cancels that wait for one connection, oldest first.
#[derive(Debug, Default)]
pub(super) struct HeldCancels(VecDeque<Held>);

#[derive(Debug)]
struct Held {
    header: Header,
    key: Option<Key>,
    cancel: Cancel,
    /// Until when what it cancels may run.
    ends: Timestamp,
}

impl HeldCancels {
    /// Keeps one that could not be sent. True when it is the first, and somebody must see to it
    /// that they leave.
    pub(super) fn hold(
        &mut self,
        now: Timestamp,
        header: Header,
        key: Option<Key>,
        cancel: Cancel,
    ) -> bool {
        if self.0.len() == HELD_MAX {
            return false;
        }
        let ends = now + Duration::from_micros(cancel.budget_us);
        self.0.push_back(Held { header, key, cancel, ends });
        self.0.len() == 1
    }

    /// Sends them in order while `append` takes them, each with the time that its call has left by
    /// now. True when some have to wait on.
    fn send(
        &mut self,
        now: Timestamp,
        mut append: impl FnMut(Frame) -> Result<Appended, NotWritable>,
    ) -> bool {
        while let Some(Held { header, key, cancel, ends }) = self.0.front() {
            // Rounded up, as for any frame that waited: no mark goes before what it cancels.
            let left_us = ends.since(now).as_nanos().div_ceil(1_000);
            let budget_us = u64::try_from(left_us).unwrap_or(u64::MAX).min(cancel.budget_us);
            if budget_us > 0 {
                let message = Message::Cancel(Cancel { budget_us, ..cancel.clone() });
                let frame = Frame { key: *key, ..Frame::new(header.clone(), message) };
                match append(frame) {
                    Ok(Appended::Writable) => {}
                    Ok(Appended::Full) => {
                        // The reserve is for others.
                        self.0.pop_front();
                        break;
                    }
                    Err(NotWritable::Full) => break,
                    // The connection is over, and what ran because of it with it.
                    Err(_) => self.0.clear(),
                }
            }
            self.0.pop_front();
        }
        !self.0.is_empty()
    }
}

impl Driver {
    /// Sends the cancels that wait in a core for a connection whenever it takes some, until none
    /// waits.
    pub(super) fn send_held(&self, core: usize, connection: Arc<dyn Connection>) {
        let driver = self.me.clone();
        self.runtime.spawn(async move {
            loop {
                poll_fn(|cx| connection.poll_writable(Lane::Control, cx)).await;
                let Some(driver) = driver.upgrade() else { return };
                if !driver.release_held(core, connection.as_ref()) {
                    return;
                }
                // A lane may be writable and yet too small for the next one.
                tokio::task::yield_now().await;
            }
        });
    }

    fn release_held(&self, core: usize, connection: &dyn Connection) -> bool {
        let (now, link) = (self.now(), connection.link());
        let (to, nonce) = (link.peer.node, link.nonce);
        let has_more = {
            let mut core = self.cores.lock(core);
            let id = core.connections().id(to, nonce);
            let attached = id.and_then(|id| core.connections_mut().get_mut(id));
            attached.is_some_and(|attached| {
                attached.held.send(now, |frame| {
                    let append = |head: Head<'_>| {
                        connection.append_bytes(Lane::Control, head.as_bytes(), Bytes::new())
                    };
                    frame.with_head(append)
                })
            })
        };
        connection.flush();
        has_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_proto::id::{CallId, Incarnation, Path, TaskKey};
    use convoke_proto::wire::CancelReason;

    const LATER: Timestamp = Timestamp::from_nanos(1_500);

    fn hold(held: &mut HeldCancels, seq: u64, budget_us: u64) -> bool {
        let call = CallId { origin: Incarnation(1), seq };
        let header = Header { call, task: TaskKey { path: Path::root(), hop: 0 } };
        let cancel = Cancel { reason: CancelReason::Caller, budget_us };
        held.hold(Timestamp::ZERO, header, None, cancel)
    }

    /// The call and the budget of what is sent, until one is answered so.
    fn sent(
        held: &mut HeldCancels,
        mut answers: Vec<Result<Appended, NotWritable>>,
    ) -> (Vec<(u64, u64)>, bool) {
        let mut sent = Vec::new();
        answers.reverse();
        let has_more = held.send(LATER, |frame| {
            let answer = answers.pop().expect("nothing is sent after a lane is full");
            if let (Ok(_), Message::Cancel(cancel)) = (&answer, &frame.message) {
                sent.push((frame.header.call.seq, cancel.budget_us));
            }
            answer
        });
        (sent, has_more)
    }

    #[test]
    fn they_leave_in_order_as_far_as_there_is_room_with_the_time_that_is_left() {
        let mut held = HeldCancels::default();
        assert!(hold(&mut held, 1, 1_000));
        assert!(!hold(&mut held, 2, 1_000), "somebody sees to it already");
        hold(&mut held, 3, 1_000);
        let answers = vec![Ok(Appended::Writable), Err(NotWritable::Full)];
        assert_eq!(sent(&mut held, answers), (vec![(1, 999)], true));
        assert_eq!(sent(&mut held, vec![Ok(Appended::Full)]), (vec![(2, 999)], true));
        assert_eq!(sent(&mut held, vec![Ok(Appended::Full)]), (vec![(3, 999)], false));
        assert!(hold(&mut held, 4, 1_000), "it is the first again");
    }

    #[test]
    fn what_is_past_its_deadline_is_not_sent() {
        let mut held = HeldCancels::default();
        hold(&mut held, 1, 1);
        hold(&mut held, 2, 2);
        assert_eq!(sent(&mut held, vec![Ok(Appended::Writable)]), (vec![(2, 1)], false));
    }

    #[test]
    fn a_connection_that_is_over_takes_them_along() {
        let mut held = HeldCancels::default();
        hold(&mut held, 1, 1_000);
        hold(&mut held, 2, 1_000);
        assert_eq!(sent(&mut held, vec![Err(NotWritable::Closed)]), (Vec::new(), false));
    }

    #[test]
    fn what_finds_no_room_is_forgotten() {
        let mut held = HeldCancels::default();
        (0..HELD_MAX as u64 + 10).for_each(|seq| {
            hold(&mut held, seq, 1_000);
        });
        assert_eq!(held.0.len(), HELD_MAX);
        assert!(size_of::<Held>() * HELD_MAX <= 12 << 20);
    }
}
