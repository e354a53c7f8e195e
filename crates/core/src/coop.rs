//! Turns of tasks: who reads or writes one item after the other lets the other tasks of its thread
//! have theirs, though each item is there at once.

use std::task::{Context, Poll};

use tokio::task::coop::{has_budget_remaining, poll_proceed};

/// Polls what may be ready again and again, as far as the budget of the task lasts.
#[inline]
pub(crate) fn poll_in_budget<T>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    if !has_budget_remaining() && poll_proceed(cx).is_pending() {
        return Poll::Pending;
    }
    let polled = poll(cx);
    // Afterwards, so that one that has to wait pays nothing.
    if polled.is_ready()
        && let Poll::Ready(taken) = poll_proceed(cx)
    {
        taken.made_progress();
    }
    polled
}
