//! Timers for callers without a runtime.

use tokio::runtime::Handle;

/// Makes a timer, of the endpoint's runtime where the caller has none. It may be polled anywhere.
pub(crate) fn in_runtime<T>(runtime: &Handle, make: impl FnOnce() -> T) -> T {
    let _entered = Handle::try_current().is_err().then(|| runtime.enter());
    make()
}
