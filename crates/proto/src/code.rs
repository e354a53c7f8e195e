//! The kinds of a service's errors.

use std::fmt;

/// Kind of a service's error: the codes of gRPC, with its numbers. Prints as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Code {
    /// The caller gave up.
    Cancelled = 1,
    /// Something else.
    Unknown = 2,
    /// The caller's argument is wrong, whatever the state of the service.
    InvalidArgument = 3,
    /// Too late.
    DeadlineExceeded = 4,
    /// The thing that was asked for does not exist.
    NotFound = 5,
    /// The thing to be made exists already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// Out of room, quota or patience.
    ResourceExhausted = 8,
    /// The service is not in a state for this.
    FailedPrecondition = 9,
    /// Given up for a conflict; repeat at a higher level.
    Aborted = 10,
    /// Beyond what exists.
    OutOfRange = 11,
    /// Not offered.
    Unimplemented = 12,
    /// The service's own bug.
    Internal = 13,
    /// Not at the moment; repeat.
    Unavailable = 14,
    /// Data is lost or corrupt.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl Code {
    const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code with this number, if there is one.
    pub fn known(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as u32 == number)
    }

    /// The code with this number; [`Code::Unknown`] for numbers without one.
    pub fn from_number(number: u32) -> Self {
        Self::known(number).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
