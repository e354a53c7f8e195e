//! The runs, one after the other: all transports in turn at each loss, and so once a round.

use anyhow::Context;

use super::Options;
use super::authority::Authority;
use super::path::Path;
use super::rows::{Row, table};
use crate::lab::processes::Loss;
use crate::wire::Wire;

/// Measures everything, and prints it.
pub(super) async fn measure(options: &Options) -> anyhow::Result<()> {
    let authority = Authority::new()?;
    println!(
        "{} calls/s of {} bytes and back, {} ms of round trip, {} Mbit/s, TCP with {}",
        options.rate, options.bytes, options.rtt_ms, options.mbit, options.congestion,
    );
    let mut rows = Vec::new();
    for round in 0..options.rounds {
        for loss_percent in &options.loss {
            for wire in &options.transport {
                let seed = options.seed.wrapping_add(round.into());
                rows.push(one(options, &authority, *wire, *loss_percent, seed).await?);
            }
        }
    }
    println!("\n{}", table(&rows));
    if let Some(file) = &options.json {
        let json = serde_json::to_string_pretty(&rows)?;
        std::fs::write(file, json).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

async fn one(
    options: &Options,
    authority: &Authority,
    transport: Wire,
    loss_percent: f64,
    seed: u64,
) -> anyhow::Result<Row> {
    let loss = Loss { probability: loss_percent / 100.0, seed };
    let mut path = Path::new(options, authority, transport, loss).await?;
    let called = path.measure(options).await?;
    let router = path.end().await?;
    println!(
        "seed {seed}, loss {loss_percent} %, {transport}: {:.0} calls/s, p50 {:.1} ms, p99 {:.1} ms, \
         p99.9 {:.1} ms, {:.1} Mbit/s in bulk; router: {router}",
        called.per_second, called.p50_ms, called.p99_ms, called.p999_ms, called.bulk_mbit,
    );
    if let Some(complaint) = &called.complaint {
        println!("{} calls failed, the first: {complaint}", called.failed);
    }
    Ok(Row {
        transport,
        loss_percent,
        seed,
        rtt_ms: options.rtt_ms,
        mbit: options.mbit,
        rate: options.rate,
        bytes: options.bytes,
        bulk_bytes: options.bulk_bytes,
        called,
    })
}
