//! Calls into code of an application, which may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Seldom;

/// Code that an application has given, such as wakers and what observes its endpoints. A panic of
/// it is logged, once a second, and goes no further: whoever called it has others to see to.
#[derive(Debug)]
pub struct Guest {
    name: &'static str,
    panics: Seldom,
}

impl Guest {
    /// With the name that it has in the log.
    pub const fn new(name: &'static str) -> Self {
        Self { name, panics: Seldom::per_second(1) }
    }

    /// Result of calling it, unless it panics.
    #[inline]
    pub fn call<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(act)).inspect_err(|_| self.on_panic()).ok()
    }

    #[cold]
    fn on_panic(&self) {
        if let Some(left_out) = self.panics.pass() {
            // Who takes the line is of the application, too.
            let _ = catch_unwind(|| tracing::error!(left_out, "the {} panicked", self.name));
        }
    }
}
