//! The command `torture`: processes under load are killed, stopped and cut off at random; then all
//! is read back.

mod script;

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use console::{about, say};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use self::script::{Act, Fault, Kind, Script};
use super::load::Load;
use super::local::Local;
use super::ranges;
use super::store::Store;
use crate::cluster::Protocol;
use crate::history::Recorder;
use crate::processes::Passage;

/// Time for a request of a client, which is less than faults last, so that outcomes are unknown at
/// times.
pub const REQUEST_WITHIN: Duration = Duration::from_secs(2);

/// Course of a run: options of the command.
#[derive(Debug, clap::Args)]
pub struct Course {
    /// Seconds of faults.
    #[arg(long, default_value_t = 60, value_parser = ranges::seconds())]
    pub seconds: u64,
    /// Clients.
    #[arg(long, default_value_t = 8, value_parser = ranges::clients())]
    pub clients: u64,
    /// Draws what goes wrong, and when. Default: another each time.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Runs something in a folder of its own, which stays when it has gone wrong.
///
/// # Errors
/// Its own.
pub async fn in_folder(
    prefix: &str,
    play: impl AsyncFnOnce(&Path) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir()?;
    let played = play(folder.path()).await;
    if !matches!(played, Ok(ExitCode::SUCCESS)) {
        say(format_args!("ledgers, logs and history are in {}", folder.keep().display()))?;
    }
    played
}

/// A cluster whose nodes have [links](super::local::Form::links), and what is wrong with it.
#[derive(Debug)]
pub struct Torture<P: Protocol> {
    local: Local<P>,
    active: Vec<Fault>,
}

impl<P: Protocol<Role: Serialize> + Serialize + Clone> Torture<P> {
    /// A cluster that runs.
    pub fn of(local: Local<P>) -> Self {
        Self { local, active: Vec::new() }
    }

    /// Lets clients write while so many nodes at most are hurt at a time, then lets another read
    /// all back, and judges. The history is in the folder then, however far that has come.
    ///
    /// # Errors
    /// The service does not go on within a minute, or a node ends by itself.
    pub async fn run<C: Store>(
        mut self,
        course: &Course,
        hurt_max: u64,
        (clients, folder): (Vec<C>, &Path),
        reader: impl AsyncFnOnce(&Local<P>) -> Result<C>,
    ) -> Result<ExitCode> {
        let seed = course.seed.unwrap_or_else(|| RandomState::new().hash_one("torture") >> 32);
        let (nodes, time) = (*self.local.ids().end(), Duration::from_secs(course.seconds));
        say(format_args!(
            "seed {seed}: {nodes} processes, {} clients, {} of faults",
            clients.len(),
            about(time)
        ))?;
        let load = Load::start(clients);
        let script = Script::draw(seed, (nodes, hurt_max), time);
        let hurt = self.hurt(&script, &load).await;
        let gap = load.end_gap();
        let recorder = load.recorder();
        let loaded = load.end().await;
        let written = write_history(&recorder, &folder.join("history.json"));
        // The first of these that has failed may be why the next one has.
        hurt?;
        let loaded = loaded?;
        written?;
        let mut reader = reader(&self.local).await?;
        let verdict = loaded.judge(&mut reader).await?;
        self.local.check()?;
        self.local.stop().await?;
        if !verdict.is_good() {
            say(verdict)?;
            return Ok(ExitCode::FAILURE);
        }
        let unknown = loaded.unknown();
        say(format_args!(
            "{script}; {unknown} outcomes unknown; longest gap {} ms",
            gap.as_millis()
        ))?;
        say(verdict)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Lets the service go on, plays a script, and lets it go on again.
    async fn hurt(&mut self, script: &Script, load: &Load) -> Result<()> {
        load.progress().await.context("at the start")?;
        load.begin_gap();
        self.play(script, load).await?;
        load.tell("all faults have ended")?;
        load.progress().await.context("all faults have ended")
    }

    /// Plays a script, at whose end nothing is wrong any more. Its clock stands still while nodes
    /// start: what came due meanwhile would begin and end at once.
    async fn play(&mut self, script: &Script, load: &Load) -> Result<()> {
        let mut begun = Instant::now();
        for (time, act) in script.acts() {
            sleep_until(begun + *time).await;
            let acting = Instant::now();
            self.local.check()?;
            load.tell(act)?;
            match act {
                Act::Begin(fault) => self.begin(*fault).await?,
                Act::End(fault) => self.end(*fault).await?,
                Act::RestartAll => {
                    self.local.kill_all().await?;
                    self.local.start_all().await?;
                }
            }
            begun += acting.elapsed();
        }
        self.local.check()
    }

    async fn begin(&mut self, fault: Fault) -> Result<()> {
        self.active.push(fault);
        match fault.kind {
            Kind::Killed => self.local.kill(fault.node).await,
            Kind::Stopped => self.local.pause(fault.node),
            Kind::Cut(_) => {
                self.cut();
                Ok(())
            }
        }
    }

    async fn end(&mut self, fault: Fault) -> Result<()> {
        self.active.retain(|active| *active != fault);
        match fault.kind {
            Kind::Killed => self.local.start(fault.node).await,
            Kind::Stopped => self.local.resume(fault.node),
            Kind::Cut(_) => {
                self.cut();
                Ok(())
            }
        }
    }

    /// Lets links pass what the faults of now leave of them.
    fn cut(&self) {
        self.local.set_links(|dialler, dialled| {
            let passages = self.active.iter().map(|fault| fault.passage(dialler, dialled));
            passages.fold(Passage::default(), Passage::and)
        });
    }
}

fn write_history(recorder: &Recorder, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("{}", path.display()))?;
    Ok(recorder.history().write_json(BufWriter::new(file))?)
}
