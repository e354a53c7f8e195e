//! A bound on how often something that peers cause is logged.

use std::time::Duration;

use crate::parts::Mutex;
use tokio::time::Instant;

const PERIOD: Duration = Duration::from_secs(1);

/// Lets so many events through in a second, and counts those that it leaves out.
#[derive(Debug)]
pub struct Seldom {
    per_second: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Beginning of the second that is under way; `None` before the first event.
    since: Option<Instant>,
    passed: u32,
    left_out: u64,
}

impl Seldom {
    /// With so many events let through in a second; the first always is.
    pub const fn per_second(count: u32) -> Self {
        let state = State { since: None, passed: 0, left_out: 0 };
        Self { per_second: count, state: Mutex::new(state) }
    }

    /// Lets an event through, with how many before it were left out, or leaves it out.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let is_over = |since| now < since || now - since >= PERIOD;
        if state.since.is_none_or(is_over) {
            state.since = Some(now);
            state.passed = 0;
        }
        if state.passed == self.per_second {
            state.left_out += 1;
            return None;
        }
        state.passed += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_a_second_pass_and_tell_how_many_did_not() {
        let (seldom, begun) = (Seldom::per_second(2), Instant::now());
        let at = |tenths: u32| begun + PERIOD * tenths / 10;
        let passed: Vec<_> = (0..25).filter_map(|tenth| seldom.pass_at(at(tenth))).collect();
        assert_eq!(passed, [0, 0, 8, 0, 8, 0]);
        assert_eq!(seldom.pass_at(at(100)), Some(3));
    }
}
