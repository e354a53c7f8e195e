//! Hooks on the frames of a connection: asking them, and what they hold.

use tokio::time::Instant;

use super::super::hook::{self, HookId, SimFrame};
use super::super::pipe::Arrived;
use super::{Side, Wire};

impl Wire {
    /// Asks the next hook about a frame for `side`.
    pub(crate) fn ask_hook(&self, side: Side, frame: &Arrived) -> Option<(HookId, hook::Action)> {
        let (from, to) = self.pair_from(side.other());
        let connection = self.link(side).nonce;
        let seen = SimFrame { from, to, lane: frame.lane, connection, bytes: &frame.bytes };
        hook::ask(&self.network, frame.passed, &seen)
    }

    /// A hook holds a frame for `side`, until then or until it lets it go.
    pub(crate) fn keep_back(&self, side: Side, frame: Arrived, until: Option<Instant>) {
        let mut state = self.state.lock();
        // It may have been removed since it has decided, and then nobody would let it go.
        let is_removed = !self.network.topology.lock().hooks.has(frame.passed);
        let until = if is_removed { Some(Instant::now()) } else { until };
        state.pipes[side.other().at()].keep_back(frame, until);
    }

    /// Lets what a hook holds go on, both ways. How many frames.
    pub(crate) fn let_go(&self, hook: HookId) -> usize {
        let now = Instant::now();
        let mut state = self.state.lock();
        let count = state.pipes.iter_mut().map(|pipe| pipe.let_go(hook, now)).sum();
        drop(state);
        self.notify_both();
        count
    }

    pub(crate) fn held_by(&self, hook: HookId) -> usize {
        self.state.lock().pipes.iter().map(|pipe| pipe.held_by(hook)).sum()
    }

    /// Largest frame that `side` takes.
    pub(crate) fn frame_bytes_max(&self, side: Side) -> usize {
        self.state.lock().pipes[side.other().at()].frame_bytes_max()
    }
}
