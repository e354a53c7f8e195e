//! The inline bytes that a device is asked for.

use std::sync::atomic::{AtomicU32, Ordering};

use super::VerbsError;

/// The system's error number for an argument that does not do, `EINVAL`.
pub(crate) const INVALID: i32 = 22;

/// Most inline bytes that a device is asked for.
///
/// A device refuses a queue pair with more than it can send inline, rather than grant less, and
/// says no more than that an argument does not do.
#[derive(Debug)]
pub(crate) struct InlineLimit(AtomicU32);

impl InlineLimit {
    /// Of a device that has refused none yet.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }

    /// Makes a queue pair with so many inline bytes. Where the device refuses that, with half as
    /// many, down to none; it is not asked for more again.
    pub(crate) fn make<T>(
        &self,
        wished: u32,
        mut make: impl FnMut(u32) -> Result<T, VerbsError>,
    ) -> Result<T, VerbsError> {
        let first = wished.min(self.0.load(Ordering::Relaxed));
        let mut bytes = first;
        loop {
            match make(bytes) {
                Err(VerbsError::System { code: INVALID, .. }) if bytes > 0 => bytes /= 2,
                made => {
                    if made.is_ok() && bytes < first {
                        self.0.fetch_min(bytes, Ordering::Relaxed);
                    }
                    return made;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a device with a limit is asked for until it makes a queue pair, or gives up.
    fn asked(limit: &InlineLimit, wished: u32, most: Option<u32>) -> Vec<u32> {
        let mut asked = Vec::new();
        let refused =
            VerbsError::System { call: "create_qp", code: INVALID, message: String::new() };
        let made = limit.make(wished, |bytes| {
            asked.push(bytes);
            if most.is_some_and(|most| bytes <= most) { Ok(()) } else { Err(refused.clone()) }
        });
        assert_eq!(made, if most.is_some() { Ok(()) } else { Err(refused) });
        asked
    }

    #[test]
    fn a_device_that_refuses_is_asked_for_less_and_never_again_for_more() {
        let limit = InlineLimit::new();
        assert_eq!(asked(&limit, 220, Some(101)), [220, 110, 55]);
        assert_eq!(asked(&limit, 220, Some(101)), [55]);
        assert_eq!(asked(&limit, 10, Some(101)), [10]);
        assert_eq!(asked(&limit, 3, Some(0)), [3, 1, 0]);
        assert_eq!(asked(&limit, 220, Some(0)), [0]);
    }

    #[test]
    fn a_refusal_for_another_reason_says_nothing_of_inline_bytes() {
        let limit = InlineLimit::new();
        assert_eq!(asked(&limit, 4, None), [4, 2, 1, 0]);
        assert_eq!(asked(&limit, 4, Some(4)), [4]);
        let error = VerbsError::QueueFull("send");
        assert_eq!(limit.make(4, |_| Err::<(), _>(error.clone())), Err(error));
        assert_eq!(asked(&limit, 4, Some(4)), [4]);
    }
}
