//! Reloading by itself when the files change.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::identity::pem::{Source, Texts};
use crate::identity::{Identity, IdentityError};

/// Reloads an [`Identity`] when its files change, until it is dropped; made by [`Identity::watch`].
#[derive(Debug)]
#[must_use = "watching ends when this is dropped"]
pub struct IdentityWatch {
    watching: AbortHandle,
}

impl Identity {
    /// Reads the PEM files every `period`, and reloads once they have changed. What cannot be used
    /// is logged as a warning and tried again when the files change further; certificate and key
    /// are often written one after the other.
    ///
    /// # Panics
    /// Outside a tokio runtime, or when `period` is zero.
    pub fn watch(&self, period: Duration) -> IdentityWatch {
        let watching = tokio::spawn(watch(self.clone(), period)).abort_handle();
        IdentityWatch { watching }
    }

    /// Uses what the files hold unless that is `seen`, and answers it. They are read once: what is
    /// remembered as seen must be what was tried.
    pub(super) fn reload_if_changed(&self, seen: Option<&Texts>) -> Result<Texts, IdentityError> {
        let _in_turn = self.shared.reloading.lock();
        let source = &self.shared.source;
        let texts = source.read_texts()?;
        if matches!(source, Source::Files { .. })
            && seen != Some(&texts)
            && let Err(error) = source.parse(&texts).and_then(|credentials| self.put(credentials))
        {
            tracing::warn!(%error, "changed certificates cannot be used: the old ones stay");
        }
        Ok(texts)
    }
}

impl Drop for IdentityWatch {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn watch(identity: Identity, period: Duration) {
    let mut tick = interval_at(Instant::now() + period, period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen: Option<Texts> = None;
    loop {
        tick.tick().await;
        let (identity, before) = (identity.clone(), seen.clone());
        let look = move || identity.reload_if_changed(before.as_ref());
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(texts)) => seen = Some(texts),
            Ok(Err(error)) => tracing::warn!(%error, "certificates cannot be read"),
            // The runtime shuts down.
            Err(_) => return,
        }
    }
}
