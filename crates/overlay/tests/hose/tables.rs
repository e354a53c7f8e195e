//! The network and the loads of ShallowForest, from the file with what its authors published.

use std::path::Path;

use convoke_overlay::HoseModel;
use serde::Deserialize;

/// The tables are for 750 Mbit/s. Here all rates are a fifth of that, which makes as many frames
/// fewer and changes no proportion.
const SCALE: u64 = 5;

/// Uplink and downlink of each site, kbit/s.
const CAPACITY: u64 = 750_000 / SCALE;

#[derive(Debug, Deserialize)]
struct Tables {
    rtt_ms: Vec<Vec<u32>>,
    rows: Vec<Row>,
}

/// A row of loads, and what they come to in the model.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) n: usize,
    pub(crate) s: f64,
    load_percent: Vec<u64>,
    direct_delivered_mbps: f64,
    /// By how much overlays are better, of 1.
    pub(crate) gain_eq_4_19: f64,
    #[serde(skip)]
    latency_us: Vec<u32>,
}

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/vectors/thesis-tables.json");
    let text = std::fs::read_to_string(&file).expect("the tables are there");
    let tables: Tables = serde_json::from_str(&text).expect("they are of this form");
    let mut rows = tables.rows;
    for row in &mut rows {
        let near = tables.rtt_ms[..row.n].iter().flat_map(|rtts| &rtts[..row.n]);
        row.latency_us = near.map(|ms| ms * 500).collect();
    }
    rows
}

/// The row of so many sites with this skew.
pub(crate) fn row(n: usize, s: f64) -> Row {
    let row = rows().into_iter().find(|row| row.n == n && (row.s - s).abs() < 0.01);
    row.expect("the tables have it")
}

impl Row {
    /// Rate that all sites together broadcast when each sends a copy to each, Mbit/s.
    pub(crate) fn direct_mbit(&self) -> f64 {
        self.direct_delivered_mbps / SCALE as f64
    }

    pub(crate) fn model(&self) -> HoseModel {
        HoseModel {
            uplink: vec![CAPACITY; self.n],
            downlink: vec![CAPACITY; self.n],
            latency_us: self.latency_us.clone(),
            demand: self.load_percent.iter().map(|percent| CAPACITY * percent / 100).collect(),
            epoch: 1,
        }
    }
}
