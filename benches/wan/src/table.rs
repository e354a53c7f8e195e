//! The network and the loads of ShallowForest, tables 7.1 to 7.3.

use anyhow::{Context, bail};
use convoke_overlay::{HoseModel, Plan, PlanOptions, plan};

/// The sites, in the order of the table's columns.
pub(crate) const SITES: [&str; 9] = ["IR", "CA", "VA", "TK", "OR", "SY", "FF", "LD", "SG"];

/// Table 7.1: round trips in milliseconds.
const RTT_MS: [[u32; 9]; 9] = [
    [0, 146, 74, 228, 135, 275, 25, 13, 184],
    [146, 0, 64, 113, 22, 152, 149, 140, 178],
    [74, 64, 0, 166, 79, 203, 90, 80, 244],
    [228, 113, 166, 0, 101, 116, 245, 236, 74],
    [135, 22, 79, 101, 0, 143, 165, 144, 165],
    [275, 152, 203, 116, 143, 0, 288, 274, 173],
    [25, 149, 90, 245, 165, 288, 0, 15, 179],
    [13, 140, 80, 236, 144, 274, 15, 0, 173],
    [184, 178, 244, 74, 165, 173, 179, 173, 0],
];

/// Tables 7.2 and 7.3: skew times ten, and the load of each site in percent of one uplink.
const LOADS: [(u32, &[u64]); 6] = [
    (0, &[20, 20, 20, 20, 20]),
    (5, &[38, 20, 16, 13, 12]),
    (10, &[62, 15, 9, 6, 5]),
    (15, &[82, 8, 4, 2, 1]),
    (10, &[53, 15, 9, 6, 5, 4, 3]),
    (10, &[47, 15, 9, 6, 5, 4, 3, 3, 2]),
];

/// One row of the tables on a network with other capacities.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Uplinks and downlinks as they are, and what the sites want at full load.
    pub(crate) model: HoseModel,
    /// How much of each capacity is for payloads: the rest is headers of packets.
    pub(crate) headroom_permille: u32,
}

impl Scenario {
    /// The first `sites` sites with a row of loads, where each uplink and downlink has
    /// `kbit_per_s`.
    ///
    /// # Errors
    /// When the tables have no such row.
    pub(crate) fn new(
        sites: usize,
        skew: f64,
        kbit_per_s: u64,
        headroom_permille: u32,
    ) -> anyhow::Result<Self> {
        let is_row = |(tenths, load): &&(u32, &[u64])| {
            load.len() == sites && (f64::from(*tenths) / 10.0 - skew).abs() < 0.01
        };
        let row = LOADS.iter().find(is_row).map(|(_, load)| *load);
        let Some(load) = row else {
            bail!("no loads for {sites} sites with skew {skew}: {}", rows())
        };
        let half = |ms: &u32| ms * 500;
        let latency_us = RTT_MS[..sites].iter().flat_map(|row| row[..sites].iter().map(half));
        let model = HoseModel {
            uplink: vec![kbit_per_s; sites],
            downlink: vec![kbit_per_s; sites],
            latency_us: latency_us.collect(),
            demand: load.iter().map(|percent| kbit_per_s * percent / 100).collect(),
            epoch: 1,
        };
        Ok(Self { model, headroom_permille })
    }

    /// How many sites.
    pub(crate) fn sites(&self) -> usize {
        self.model.sites()
    }

    /// Rate that each site wants at a part of the full load, kbit/s.
    pub(crate) fn demand(&self, load: f64) -> Vec<u64> {
        self.model.demand.iter().map(|rate| scaled(*rate, load)).collect()
    }

    /// Rates at which the sites broadcast at a load when each sends a copy to each, kbit/s.
    /// (ShallowForest, equation 4.19)
    pub(crate) fn direct_rates(&self, load: f64) -> Vec<u64> {
        let copies = self.sites().max(2) as u64 - 1;
        let uplinks = self.model.uplink.iter();
        uplinks.zip(self.demand(load)).map(|(uplink, rate)| rate.min(uplink / copies)).collect()
    }

    /// The model at a load.
    pub(crate) fn model_at(&self, load: f64) -> HoseModel {
        HoseModel { demand: self.demand(load), ..self.model.clone() }
    }

    /// The plan for a load.
    ///
    /// # Errors
    /// When there is none, which is a mistake in the tables.
    pub(crate) fn plan_at(&self, load: f64) -> anyhow::Result<Plan> {
        let options = PlanOptions::new().headroom_permille(self.headroom_permille);
        plan(&self.model_at(load), &options).context("planning the row of the tables")
    }
}

fn scaled(rate: u64, load: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are far below 2^53, and loads are checked to be from 0 to 4"
    )]
    let scaled = (rate as f64 * load).round() as u64;
    scaled
}

fn rows() -> String {
    let row = |(tenths, load): &(u32, &[u64])| {
        format!("{} sites with skew {}", load.len(), f64::from(*tenths) / 10.0)
    };
    format!("there are {}", LOADS.iter().map(row).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_sites_and_skew_and_others_are_listed() {
        for (tenths, load) in LOADS {
            let skew = f64::from(tenths) / 10.0;
            let scenario = Scenario::new(load.len(), skew, 100_000, 920).expect("it is a row");
            let expected: Vec<_> = load.iter().map(|percent| percent * 1_000).collect();
            assert_eq!(scenario.demand(1.0), expected);
            assert!(scenario.plan_at(1.0).is_ok());
        }
        let error = Scenario::new(5, 0.7, 100_000, 920).expect_err("there is none").to_string();
        assert!(error.contains("7 sites with skew 1"), "{error}");
        assert!(Scenario::new(3, 1.0, 100_000, 920).is_err());
    }

    #[test]
    fn latencies_are_half_a_round_trip_and_symmetric() {
        let model = Scenario::new(9, 1.0, 100_000, 920).expect("it is a row").model;
        assert_eq!(model.latency_us[1], 73_000);
        for (from, to) in (0..81).map(|pair| (pair / 9, pair % 9)) {
            assert_eq!(model.latency_us[from * 9 + to], model.latency_us[to * 9 + from]);
        }
        assert_eq!(SITES.len(), RTT_MS.len());
    }

    #[test]
    fn direct_is_bounded_by_the_uplink_over_the_copies() {
        let scenario = Scenario::new(5, 1.5, 100_000, 920).expect("it is a row");
        assert_eq!(scenario.direct_rates(1.0), [25_000, 8_000, 4_000, 2_000, 1_000]);
        assert_eq!(scenario.direct_rates(0.1), [8_200, 800, 400, 200, 100]);
    }
}
