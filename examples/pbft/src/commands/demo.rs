//! `pbft demo`: replicas under load are killed, silent, and liars; then all is read back.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use console::{about, say};
use convoke::NodeId;
use node_kit::program::load::Load;
use node_kit::program::local::Form;
use pbft::client::{Client, Options};
use pbft::proto::{Inspection, PbftClient};
use pbft::settings::Settings;
use tokio::time::{Instant, sleep};

use super::inspect::inspect;
use super::local::Local;
use crate::args::DemoArgs;

/// Replicas of the demonstration, of whom one may be faulty at a time.
const REPLICAS: usize = 4;

/// Replicas of whom one is correct.
const WITNESSES: usize = 2;

/// Batches between checkpoints, by which replicas that were away come back.
const CHECKPOINT_EVERY: u64 = 16;

/// Pause between two looks at all.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time until the replicas run, and until they are alike and all has been read back.
const AROUND: Duration = Duration::from_secs(8);

/// Time for a look at one replica, which may be silent.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// Time in which replicas get over something, on a machine with much else to do.
const WITHIN: Duration = Duration::from_secs(120);

pub(crate) async fn run(args: &DemoArgs) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("pbft-demo-").tempdir()?;
    if !args.keep {
        return play(args, folder.path()).await;
    }
    let folder = folder.keep();
    say(format_args!("ledgers and logs are in {}", folder.display()))?;
    play(args, &folder).await
}

async fn play(args: &DemoArgs, folder: &Path) -> Result<ExitCode> {
    let pause = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    // A primary is missed twice.
    let missed = Duration::from_millis(args.timeout).saturating_mul(2);
    let time = pause.saturating_mul(4).saturating_add(missed).saturating_add(AROUND);
    say(format_args!(
        "{REPLICAS} replicas under load: one is killed and starts again, the primary falls silent, \
         all are killed and one comes back as a liar. Then all is read back. It takes {}.",
        about(time)
    ))?;
    let (auth, scheme) = args.auth.setting();
    let settings = Settings {
        timeout_ms: args.timeout,
        checkpoint_every: CHECKPOINT_EVERY,
        auth,
        ..Settings::default()
    };
    let form = Form { scheme, ..Form::plain(REPLICAS, settings) };
    let mut local = Local::new(folder, args.clients + 1, form).await?;
    local.processes.start_all().await?;
    say(format_args!("{REPLICAS} processes over {scheme}, {} clients", args.clients))?;
    let options = Options { deadline: Duration::from_secs(60), ..Options::default() };
    let mut clients = local.clients(&options)?;
    let mut reader = clients.pop().context("there is one client more")?;
    let load = Load::start(clients);
    load.progress().await?;
    sleep(pause).await;

    load.tell("kill -9 of replica 2")?;
    local.processes.kill(2).await?;
    load.progress().await?;
    sleep(pause).await;
    load.tell("it starts again")?;
    local.processes.start(2).await?;
    caught_up(&local).await?;
    load.tell("it has caught up")?;

    let primary = primary(&local).await?;
    load.tell(format_args!("replica {primary}, the primary, falls silent (SIGSTOP)"))?;
    local.processes.pause(primary)?;
    load.progress().await?;
    replaced(&local, primary).await?;
    load.tell("another is the primary; the old one goes on")?;
    local.processes.resume(primary)?;
    sleep(pause).await;
    caught_up(&local).await?;

    let liar = self::primary(&local).await?;
    load.tell(format_args!("kill -9 of all; replica {liar}, the primary, comes back as a liar"))?;
    local.processes.kill_all().await?;
    for id in ids() {
        let lie: &[&str] = if id == liar { &["--lie", "equivocate"] } else { &[] };
        local.processes.start_with(id, lie).await?;
    }
    load.tell("all have started again; the liar proposes something else to each")?;
    replaced(&local, liar).await?;
    load.progress().await?;
    load.tell("the liar is the primary no more")?;
    sleep(pause).await;
    let loaded = load.end().await?;
    let verdict = loaded.judge(&mut reader).await?;
    if !verdict.is_good() {
        say(verdict)?;
        return Ok(ExitCode::FAILURE);
    }
    let last = alike(&local, liar, &mut reader).await?;
    say(format_args!(
        "verified: {} requests executed alike at {} correct replicas, {} acknowledged writes \
         present, views {}",
        last.operations,
        REPLICAS - 1,
        loaded.acknowledged.len(),
        last.view
    ))?;
    local.stop().await?;
    Ok(ExitCode::SUCCESS)
}

fn ids() -> std::ops::RangeInclusive<u64> {
    1..=REPLICAS as u64
}

/// States of these, of those that answer.
async fn look(local: &Local, with_state: bool) -> Vec<Inspection> {
    let client = PbftClient::new(local.endpoint());
    let looks = ids().map(|id| inspect(&client, NodeId::new(id), with_state, LOOK_WITHIN));
    let mut states = Vec::new();
    for look in looks {
        states.extend(look.await.ok());
    }
    states
}

/// Looks until the states are as they have to be.
async fn until<T>(
    local: &Local,
    what: &str,
    mut judge: impl FnMut(&[Inspection]) -> Option<T>,
) -> Result<T> {
    let end = Instant::now() + WITHIN;
    loop {
        let states = look(local, false).await;
        if let Some(found) = judge(&states) {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("after {} s not {what}: {states:?}", WITHIN.as_secs());
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The primary of a view that f + 1 replicas say has begun.
async fn primary(local: &Local) -> Result<u64> {
    until(local, "a primary", |states| agreed(states).map(|state| state.primary)).await
}

fn agreed(states: &[Inspection]) -> Option<&Inspection> {
    let alike = |one: &Inspection| {
        let begun = states.iter().filter(|other| other.has_begun);
        begun.filter(|other| other.view == one.view).count()
    };
    let latest = states.iter().filter(|state| alike(state) >= WITNESSES);
    latest.max_by_key(|state| state.view)
}

/// Waits until another is the primary.
async fn replaced(local: &Local, primary: u64) -> Result<()> {
    until(local, "another primary", |states| {
        agreed(states).filter(|state| state.primary != primary).map(|_| ())
    })
    .await
}

/// Waits until all have executed what one of them has by now.
async fn caught_up(local: &Local) -> Result<()> {
    let mut target = None;
    until(local, "caught up", |states| {
        let target = *target.get_or_insert(states.iter().map(|state| state.executed).max());
        let is_there = |state: &Inspection| Some(state.executed) >= target;
        (states.len() == REPLICAS && states.iter().all(is_there)).then_some(())
    })
    .await
}

/// Waits until all but the liar are in one state.
///
/// A replica that alone wants another view follows the others by their checkpoints, so requests are
/// made until there is the next one.
async fn alike(local: &Local, liar: u64, client: &mut Client) -> Result<Inspection> {
    let end = Instant::now() + WITHIN;
    loop {
        let states = correct(local, liar, true).await;
        if let Some(first) = states.first().filter(|first| is_one_state(&states, first)) {
            return Ok(first.clone());
        }
        if Instant::now() > end {
            bail!("after {} s not in one state: {states:?}", WITHIN.as_secs());
        }
        // What is digested may be of a while ago.
        let executed = correct(local, liar, false).await.iter().map(|state| state.executed).max();
        if executed.is_some_and(|executed| !executed.is_multiple_of(CHECKPOINT_EVERY)) {
            client.put("next", "checkpoint").await?;
        } else {
            sleep(LOOK_EVERY).await;
        }
    }
}

async fn correct(local: &Local, liar: u64, with_state: bool) -> Vec<Inspection> {
    let mut states = look(local, with_state).await;
    states.retain(|state| state.node != liar);
    states
}

/// True when all correct replicas are there, and in the state of this one.
fn is_one_state(states: &[Inspection], first: &Inspection) -> bool {
    let is_alike =
        |state: &Inspection| (state.executed, &state.state) == (first.executed, &first.state);
    states.len() == REPLICAS - 1 && states.iter().all(is_alike)
}
