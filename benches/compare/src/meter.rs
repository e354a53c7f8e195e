//! Processor time and allocations that this process spends between two moments.

use std::time::Duration;

use alloc_tracker::{ProcessSpan, Session};
use cpu_time::ProcessTime;

/// Resources that one process spent, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, of user and system.
    pub cpu: Duration,
    /// Allocations; none are seen unless the program has [`alloc_tracker::Allocator`] as its global
    /// one, as `compare-counted` has.
    pub allocations: u64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, allocations: self.allocations + other.allocations }
    }
}

/// Runs from its start to its stop.
#[derive(Debug)]
pub struct Meter {
    session: Session,
    span: ProcessSpan,
    cpu: ProcessTime,
}

impl Meter {
    /// Starts to count.
    pub fn start() -> Self {
        let session = Session::new();
        let span = session.operation("measured").measure_process();
        Self { session, span, cpu: ProcessTime::now() }
    }

    /// Ends the count. Returns the resources spent since it began.
    pub fn stop(self) -> Usage {
        let cpu = self.cpu.elapsed();
        // A span reports to its session when it is dropped.
        drop(self.span);
        let report = self.session.to_report();
        let allocations = report.operations().map(|(_, spent)| spent.total_allocations_count());
        Usage { cpu, allocations: allocations.sum() }
    }
}
