//! `compare attack`: what a hostile peer does to an honest client beside it, one class of attacks
//! after the other.
//!
//! ```text
//!   compare attack ── the honest client: callers, latencies ──▶ host (the victim) ◀── 127.0.0.2 ── hostile process
//!                └──▶ listens, too: an initiator whom the hostile speaks to ◀──────────────────────────┘
//! ```
//!
//! Each class has processes of its own. Before it, the hostile process sends the same load
//! honestly: small calls as fast as they are taken, or, for the classes that ask for large replies,
//! the same requests, whose replies are read and granted. What a class does to the latencies of the
//! client is compared with that. When the hostile process has ended, the victim is watched until it
//! holds nothing of it.
//!
//! The classes are those of the design note on trust; `docs/security.md` says what protects against
//! them.

mod class;
mod honest;
mod hostile;
mod raw;
mod row;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::time::{sleep, timeout};

use crate::control::end_with_input;
use crate::flavour::Flavour;
use crate::lab::{Held, Host, Remote, Room, resident_bytes_of};
use crate::output::{open, tell};
use crate::processes::{STALLED, output_of};
use crate::program::seconds;

pub use class::Class;
use honest::Honest;
pub use row::{AttackRow, table};

/// How much to attack.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// How long each attack is, in seconds.
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Only these classes. May be given several times.
    #[arg(long)]
    class: Vec<Class>,
    /// Deadline of all calls, in seconds; what is remembered of them goes a third of it later, at
    /// defaults of 30 s.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    deadline_s: u64,
    /// Connections of the hostile process, where the class needs many.
    #[arg(long, default_value_t = 4_096)]
    connections: usize,
    /// End each attack after so many frames or connections, too.
    #[arg(long, hide = true, default_value_t = u64::MAX)]
    frames: u64,
    /// Also write the rows as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The hostile process: started by the others.
#[derive(Clone, Debug, Args)]
pub struct Part {
    class: Class,
    /// Address that it attacks.
    victim: String,
    /// Address at which the honest client listens.
    client: String,
    #[arg(value_parser = seconds)]
    seconds: Duration,
    budget_s: u64,
    connections: usize,
    frames: u64,
}

/// The time of what the hostile process asks for: what it leaves behind lives as long, and the
/// keep-alive timeout.
const BUDGET_S: u64 = 2;
/// The deadline of the honest client's calls.
const PATIENCE_S: u64 = 10;

/// Attacks, prints the table, and writes the file.
///
/// # Errors
/// When a process fails, no call of an honest client succeeds, or the file cannot be written. The
/// rows that there are until then are printed and written.
pub fn run(program: &Path, arguments: &Arguments) -> Result<()> {
    let file = open(arguments.json.as_deref())?;
    let mut rows = Vec::new();
    let attacked = attack_all(program, arguments, &mut rows);
    if rows.is_empty() {
        return attacked;
    }
    let told = tell(file, &rows, &table(&rows));
    attacked.and(row::ensure_answered(&rows)).and(told)
}

fn attack_all(program: &Path, arguments: &Arguments, rows: &mut Vec<AttackRow>) -> Result<()> {
    let classes = match &arguments.class[..] {
        [] => &Class::HOSTILE[..],
        some => some,
    };
    for class in classes {
        let baseline = class.baseline();
        if !rows.iter().any(|row| row.class == baseline) {
            rows.push(Flavour::Ct.runtime()?.block_on(attack(program, arguments, baseline))?);
        }
        if *class == baseline {
            continue;
        }
        let mut row = Flavour::Ct.runtime()?.block_on(attack(program, arguments, *class))?;
        row.compare(rows.iter().find(|row| row.class == baseline));
        rows.push(row);
    }
    Ok(())
}

/// Is the hostile process, until its input ends at the latest.
///
/// # Errors
/// When it cannot connect at all, or the victim stops it for much longer than it is to attack.
pub fn be_hostile(part: &Part) -> Result<()> {
    end_with_input();
    let longest = part.seconds.saturating_add(STALLED);
    let attacked = async { timeout(longest, hostile::attack(part)).await };
    Flavour::Ct.runtime()?.block_on(attacked).context("the attack does not come to an end")?
}

async fn attack(program: &Path, arguments: &Arguments, class: Class) -> Result<AttackRow> {
    let room = Room::new(0, arguments.deadline_s);
    let mut victim = Remote::start(program, &Host::new(1, room))?;
    let honest = Honest::start(room, victim.address(), Duration::from_secs(PATIENCE_S)).await?;
    let quiet = honest.work((arguments.seconds / 5).min(Duration::from_secs(1))).await?;
    let before = (own_bytes(), victim.state()?);

    let hostile = arguments.hostile(program, class, &victim, &honest);
    let process = tokio::task::spawn_blocking(move || output_of(hostile));
    let watch = Watch::begin(victim);
    let beside = honest
        .work_until(async { process.await.context("it ended")?.context("the hostile process") });
    let (tally, said) = beside.await?;
    let (mut victim, peak) = watch.end()?;
    let (ended, calls) = (Instant::now(), tally.ended_count());
    let back = until_back(&mut victim, &honest, arguments.deadline_s).await?;
    let sent = said.trim().parse().with_context(|| format!("the hostile process says {said:?}"))?;
    Ok(AttackRow {
        class,
        sent,
        calls,
        failed: tally.failed,
        complaint: tally.complaint.clone(),
        p99_quiet_us: quiet.latency_us(0.99),
        p99_us: tally.latency_us(0.99),
        max_us: tally.latency_us(1.0),
        ratio: None,
        resident_bytes_before: before.1.resident_bytes,
        resident_bytes_max: peak.resident_bytes,
        client_bytes_grown: own_bytes()
            .zip(before.0)
            .map(|(now, before)| now.saturating_sub(before)),
        held_max: peak.held,
        back_s: back.then(|| ended.elapsed().as_secs_f64()),
    })
}

impl Arguments {
    fn hostile(&self, program: &Path, class: Class, victim: &Remote, honest: &Honest) -> Command {
        let mut command = Command::new(program);
        let name = class.name();
        let addresses = [victim.address(), &honest.address()].map(bare);
        command.args(["attack-part", &name]).args(addresses);
        command.args([self.seconds.as_secs_f64().to_string(), BUDGET_S.to_string()]);
        command.args([self.connections.to_string(), self.frames.to_string()]);
        command
    }
}

fn bare(address: &str) -> String {
    address.trim_start_matches("tcp://").to_owned()
}

/// Waits until the victim holds nothing but the connection of the honest client, and that client no
/// call. False when that takes half a minute longer than anything may be remembered.
async fn until_back(victim: &mut Remote, honest: &Honest, deadline_s: u64) -> Result<bool> {
    let longest = Duration::from_secs(PATIENCE_S + deadline_s.div_ceil(3) + 30);
    let back = async {
        loop {
            let base = Held { connections: 1, ..Held::default() };
            if victim.state()?.held == base && honest.is_idle() {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    match timeout(longest, back).await {
        Ok(is_back) => is_back.map(|()| true),
        Err(_) => Ok(false),
    }
}

fn own_bytes() -> Option<u64> {
    resident_bytes_of("self")
}

/// The most that a victim was seen to hold.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    resident_bytes: Option<u64>,
    held: Held,
}

/// A thread that looks at a victim twenty times a second. It has it meanwhile.
struct Watch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<(Remote, Peak)>>,
}

impl Watch {
    fn begin(mut victim: Remote) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut peak = Peak::default();
            loop {
                let state = victim.state()?;
                peak.resident_bytes = peak.resident_bytes.max(state.resident_bytes);
                peak.held = peak.held.most(state.held);
                if over.load(Ordering::Relaxed) {
                    return Ok((victim, peak));
                }
                thread::park_timeout(Duration::from_millis(50));
            }
        });
        Self { is_over, thread }
    }

    fn end(self) -> Result<(Remote, Peak)> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("the thread that looks does not panic")
    }
}
