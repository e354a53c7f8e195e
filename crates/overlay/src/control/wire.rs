//! The messages of the control part, as bytes.
//!
//! ```text
//! message  = version and kind u8 | sites u16 | fields
//! REPORT   = site u16 | incarnation u64 | sequence u32 | plan epoch u32 | uplink, downlink, demand u64
//!            | suspects u128 | latency u32 for each site
//! SNAPSHOT = epoch u32 | excluded u128 | (uplink, downlink, demand u64) for each site
//!            | latency u32 for each pair of sites
//! ```
//! Numbers are little-endian and of fixed width. Any bytes decode or give a [`ControlFault`], and
//! what is allocated is bounded by [`SITES_MAX`]: at most 68 KiB, for 128 sites.

use bytes::{Buf, BufMut};
use convoke_core::id::Incarnation;

use super::fault::ControlFault;
use super::report::{ReportVersion, SiteReport};
use super::snapshot::Snapshot;
use crate::estimate::Estimate;
use crate::hose::HoseModel;
use crate::site::{SITES_MAX, Site, SiteSet};

/// Version 1 in the high half, as in the frames of the data plane, and kinds that those do not use.
const REPORT: u8 = 0x1e;
const SNAPSHOT: u8 = 0x1f;

/// Message by which sites agree on plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlMessage {
    /// Report of a site on itself.
    Report(SiteReport),
    /// Snapshot to plan from.
    Snapshot(Snapshot),
}

impl ControlMessage {
    /// True when a frame is one of these, told by its first byte; the others are of the data plane.
    pub fn is_control(frame: &[u8]) -> bool {
        matches!(frame.first(), Some(&(REPORT | SNAPSHOT)))
    }

    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Report(report) => put_report(&mut out, report),
            Self::Snapshot(snapshot) => put_snapshot(&mut out, snapshot),
        }
        out
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`ControlFault`]: the sender's doing.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, ControlFault> {
        let input = &mut bytes;
        let kind = take(input.try_get_u8())?;
        if !Self::is_control(&[kind]) {
            return Err(ControlFault::Kind(kind));
        }
        let sites = usize::from(take(input.try_get_u16_le())?);
        if sites == 0 || sites > SITES_MAX {
            return Err(ControlFault::Sites { expected: SITES_MAX, found: sites });
        }
        let message = match kind {
            REPORT => Self::Report(take_report(input, sites)?),
            _ => Self::Snapshot(take_snapshot(input, sites)?),
        };
        match bytes.len() {
            0 => Ok(message),
            left => Err(ControlFault::Trailing(left)),
        }
    }
}

fn put_head(out: &mut Vec<u8>, kind: u8, sites: usize) {
    out.put_u8(kind);
    out.put_u16_le(u16::try_from(sites).expect("there are at most 128 sites"));
}

fn put_report(out: &mut Vec<u8>, report: &SiteReport) {
    let estimate = &report.estimate;
    put_head(out, REPORT, estimate.latency_us.len());
    out.put_u16_le(report.site.0);
    out.put_u64_le(report.version.incarnation.0);
    out.put_u32_le(report.version.sequence);
    out.put_u32_le(report.plan_epoch);
    for rate in [estimate.uplink, estimate.downlink, estimate.demand] {
        out.put_u64_le(rate);
    }
    out.put_u128_le(report.suspects.bits());
    estimate.latency_us.iter().for_each(|us| out.put_u32_le(*us));
}

fn take_report(input: &mut &[u8], sites: usize) -> Result<SiteReport, ControlFault> {
    let report = SiteReport {
        site: Site(take(input.try_get_u16_le())?),
        version: ReportVersion {
            incarnation: Incarnation(take(input.try_get_u64_le())?),
            sequence: take(input.try_get_u32_le())?,
        },
        plan_epoch: take(input.try_get_u32_le())?,
        estimate: Estimate {
            uplink: take(input.try_get_u64_le())?,
            downlink: take(input.try_get_u64_le())?,
            demand: take(input.try_get_u64_le())?,
            latency_us: Vec::new(),
        },
        suspects: SiteSet::from_bits(take(input.try_get_u128_le())?),
    };
    let latency_us = take_latencies(input, sites)?;
    let report = SiteReport { estimate: Estimate { latency_us, ..report.estimate }, ..report };
    report.check(sites)?;
    Ok(report)
}

fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    let model = &snapshot.model;
    put_head(out, SNAPSHOT, model.sites());
    out.put_u32_le(model.epoch);
    out.put_u128_le(snapshot.excluded.bits());
    for ((uplink, downlink), demand) in model.uplink.iter().zip(&model.downlink).zip(&model.demand)
    {
        for rate in [uplink, downlink, demand] {
            out.put_u64_le(*rate);
        }
    }
    model.latency_us.iter().for_each(|us| out.put_u32_le(*us));
}

fn take_snapshot(input: &mut &[u8], sites: usize) -> Result<Snapshot, ControlFault> {
    let mut model = HoseModel {
        uplink: Vec::new(),
        downlink: Vec::new(),
        latency_us: Vec::new(),
        demand: Vec::new(),
        epoch: take(input.try_get_u32_le())?,
    };
    let excluded = SiteSet::from_bits(take(input.try_get_u128_le())?);
    for _ in 0..sites {
        model.uplink.push(take(input.try_get_u64_le())?);
        model.downlink.push(take(input.try_get_u64_le())?);
        model.demand.push(take(input.try_get_u64_le())?);
    }
    model.latency_us = take_latencies(input, sites * sites)?;
    let snapshot = Snapshot { model, excluded };
    snapshot.check(sites)?;
    Ok(snapshot)
}

fn take_latencies(input: &mut &[u8], count: usize) -> Result<Vec<u32>, ControlFault> {
    // Looked at before anything is allocated for it.
    if input.len() < count * size_of::<u32>() {
        return Err(ControlFault::Truncated);
    }
    (0..count).map(|_| take(input.try_get_u32_le())).collect()
}

fn take<T>(read: Result<T, bytes::TryGetError>) -> Result<T, ControlFault> {
    read.map_err(|_| ControlFault::Truncated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn latency(rate: u64) -> u32 {
        u32::try_from(rate % 1_000_000).expect("it is less than a million")
    }

    fn report(sites: usize, site: u16, rate: u64) -> ControlMessage {
        let mut latency_us = vec![latency(rate); sites];
        latency_us[usize::from(site)] = 0;
        ControlMessage::Report(SiteReport {
            site: Site(site),
            version: ReportVersion { incarnation: Incarnation(rate), sequence: 7 },
            plan_epoch: 9,
            estimate: Estimate { uplink: rate, downlink: 3, demand: 4, latency_us },
            suspects: SiteSet::first(2),
        })
    }

    fn snapshot(sites: usize, rate: u64) -> ControlMessage {
        let mut latency_us = vec![latency(rate); sites * sites];
        (0..sites).for_each(|site| latency_us[site * (sites + 1)] = 0);
        let rates = vec![rate; sites];
        let (uplink, downlink, demand) = (rates.clone(), rates.clone(), rates);
        let model = HoseModel { uplink, downlink, latency_us, demand, epoch: 77 };
        ControlMessage::Snapshot(Snapshot { model, excluded: SiteSet::first(1) })
    }

    #[test]
    fn a_report_has_these_bytes() {
        let mut expected = vec![0x1e, 2, 0, 1, 0];
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(report(2, 1, 5).encode(), expected);
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(report(9, 8, 5).encode().len(), 97);
        assert_eq!(snapshot(128, 5).encode().len(), 23 + 128 * 24 + 128 * 128 * 4);
    }

    #[test]
    fn a_message_that_is_too_short_or_long_is_none() {
        for message in [report(5, 2, 9), snapshot(5, 9)] {
            let bytes = message.encode();
            assert_eq!(ControlMessage::decode(&bytes).as_ref(), Ok(&message));
            for len in 0..bytes.len() {
                let fault = ControlMessage::decode(&bytes[..len]);
                assert_eq!(fault, Err(ControlFault::Truncated), "{len}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(ControlMessage::decode(&longer), Err(ControlFault::Trailing(1)));
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_faults() {
        let mut bytes = report(5, 2, 9).encode();
        bytes[3] = 5;
        let fault = ControlMessage::decode(&bytes);
        assert_eq!(fault, Err(ControlFault::Sites { expected: 5, found: 5 }));
        let too_much = report(5, 2, u64::MAX).encode();
        assert_eq!(ControlMessage::decode(&too_much), Err(ControlFault::Rate));
        let too_much = snapshot(5, u64::MAX).encode();
        assert_eq!(ControlMessage::decode(&too_much), Err(ControlFault::Rate));
        let mut bytes = snapshot(3, 9).encode();
        (1..3).for_each(|at| bytes[at] = 0xff);
        assert!(matches!(ControlMessage::decode(&bytes), Err(ControlFault::Sites { .. })));
        assert_eq!(ControlMessage::decode(&[0x11]), Err(ControlFault::Kind(0x11)));
    }

    proptest! {
        #[test]
        fn any_message_comes_back_the_same(
            sites in 1..=128_u16, site: u16, rate in 0..=crate::hose::RATE_MAX_KBIT
        ) {
            let report = report(sites.into(), site % sites, rate);
            for message in [report, snapshot(sites.into(), rate)] {
                prop_assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_a_fault(
            kind in prop::sample::select(vec![REPORT, SNAPSHOT, 0]),
            sites in 0..5_u8,
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let bytes = [&[kind, sites, 0], &rest[..]].concat();
            if let Ok(message) = ControlMessage::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
