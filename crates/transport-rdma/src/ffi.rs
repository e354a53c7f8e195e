//! All that needs `unsafe`: memory that is shared with a device.
//!
//! Nothing in here hands out a pointer, and every function is safe to call from the rest of the
//! crate.

pub mod slab;
#[cfg(all(feature = "verbs", target_os = "linux"))]
pub(crate) mod verbs;
