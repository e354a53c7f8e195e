//! The hostile process.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use convoke_proto::id::Incarnation;
use tokio::time::sleep;

use super::Part;
use super::class::{Class, Knows};
use super::raw::{Raw, Reads, dial};

/// Bytes written at once.
const WRITE_BYTES: usize = 16 << 10;
/// The first of the names that hostile peers claim.
const NODE: u64 = 6_600;

/// Attacks as long as it is told, and says how much it sent.
pub(super) async fn attack(part: &Part) -> Result<()> {
    let victim: SocketAddr = part.victim.parse().context("the victim's address")?;
    let client: SocketAddr = part.client.parse().context("the client's address")?;
    // Whoever connects is told who is there.
    let (met, _) =
        Raw::open((0, client), NODE - 1, Incarnation::of_random(1 << 8), Reads::Everything).await?;
    let own = match part.class {
        Class::ClaimsLife => met.life,
        _ => Incarnation::of_random(66 << 8),
    };
    let budget_us = part.budget_s * 1_000_000;
    let knows = Knows { own, client: met.peer, life: met.life, budget_us };
    drop(met);
    let until = Instant::now() + part.seconds;
    let to = if part.class.is_at_client() { client } else { victim };
    let sent = match part.class.is_crowd() {
        true => crowd(part, &knows, to, until).await?,
        false => flood(part, &knows, to, until).await?,
    };
    println!("{sent}");
    Ok(())
}

/// Frames over one connection, and another whenever that is closed.
async fn flood(part: &Part, knows: &Knows, to: SocketAddr, until: Instant) -> Result<u64> {
    let (mut sent, mut connections) = (0, 0);
    while Instant::now() < until && sent < part.frames {
        let opened = Raw::open((0, to), NODE + connections, knows.own, part.class.reads()).await;
        connections += 1;
        let Ok((mut raw, _)) = opened else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        'open: while Instant::now() < until && sent < part.frames {
            for (lane, frame) in part.class.frames(knows, sent) {
                if !raw.append(lane, &frame).await {
                    break 'open;
                }
            }
            sent += 1;
            if raw.waiting() >= WRITE_BYTES && !raw.flush().await {
                break;
            }
        }
        raw.flush().await;
    }
    ensure!(sent > 0, "nobody lets it in");
    Ok(sent)
}

/// As many connections as are taken, each of which does little.
async fn crowd(part: &Part, knows: &Knows, to: SocketAddr, until: Instant) -> Result<u64> {
    let (mut held, mut opened) = (Vec::new(), 0_u64);
    let (mut silent, mut tried) = (Vec::new(), 0);
    while Instant::now() < until && tried < part.frames {
        tried += 1;
        let peer = held.len() % part.class.peers();
        if held.len() + silent.len() >= part.connections {
            // Others are to come, as from a crowd that goes and comes.
            if part.class == Class::Connections {
                held.clear();
            } else {
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        }
        if part.class == Class::Handshakes {
            match dial(peer, to).await {
                Ok(stream) => silent.push(stream),
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
            opened += 1;
            continue;
        }
        // A life that is said by several nodes is several origins.
        let opening = Raw::open((peer, to), NODE + tried, knows.own, part.class.reads());
        let Ok((mut raw, unread)) = opening.await else {
            sleep(Duration::from_millis(1)).await;
            continue;
        };
        opened += 1;
        if part.class.is_bulk() {
            for number in 0..part.class.bulk_requests() {
                for (lane, frame) in part.class.frames(knows, number) {
                    raw.append(lane, &frame).await;
                }
            }
            raw.flush().await;
        }
        held.push((raw, unread));
    }
    Ok(opened)
}
