//! `paxos torture`: processes under load are killed, stopped and cut off at random; then all is
//! read back.

mod script;

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use node_kit::program::load::{Load, Loaded};
use node_kit::program::local::Form;
use paxos::settings::Settings;
use tokio::time::{Instant, sleep_until};

use self::script::{Act, Fault, Kind, Script};
use super::Local;
use super::client::{READ_WITHIN, connect, several};
use crate::args::TortureArgs;

/// Time for a request, which is less than faults last, so that outcomes are unknown at times.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);

/// Mebibytes of the log between snapshots, so that there are some.
const SNAPSHOT_MIB: u64 = 1;

pub(crate) async fn run(args: &TortureArgs) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one("torture") >> 32);
    let folder = tempfile::Builder::new().prefix("paxos-torture-").tempdir()?;
    println!("seed {seed}: {} processes, {} clients", args.nodes, args.clients);
    let played = play(args, seed, folder.path()).await;
    if !matches!(played, Ok(ExitCode::SUCCESS)) {
        println!("ledgers, logs and history are in {}", folder.keep().display());
    }
    played
}

async fn play(args: &TortureArgs, seed: u64, folder: &Path) -> Result<ExitCode> {
    let settings = Settings { snapshot_mib: SNAPSHOT_MIB, ..Settings::default() };
    let form = Form { links: Some(Duration::ZERO), ..Form::plain(args.nodes, settings) };
    let mut local = Local::new(folder, form).await?;
    local.start_all().await?;
    let load = Load::start(several(local.cluster(), args.clients, REQUEST_WITHIN).await?);
    load.progress().await.context("at the start")?;
    load.begin_gap();
    let script = Script::draw(seed, args.nodes as u64, Duration::from_secs(args.seconds));
    let mut torture = Torture { local, active: Vec::new() };
    torture.play(&script, &load).await?;
    load.tell("all faults have ended");
    load.progress().await.context("all faults have ended")?;
    let gap = load.end_gap();
    let loaded = load.end().await?;
    write_history(&loaded, &folder.join("history.json"))?;
    let mut reader = connect(torture.local.cluster(), None, READ_WITHIN).await?;
    let verdict = loaded.judge(&mut reader).await?;
    torture.local.check()?;
    torture.local.stop().await?;
    if !verdict.is_good() {
        println!("{verdict}");
        return Ok(ExitCode::FAILURE);
    }
    let unknown = loaded.unknown();
    println!("{script}; {unknown} outcomes unknown; longest gap {} ms", gap.as_millis());
    println!("{verdict}");
    Ok(ExitCode::SUCCESS)
}

/// A cluster, and what is wrong with it.
struct Torture {
    local: Local,
    active: Vec<Fault>,
}

impl Torture {
    /// Plays a script, at whose end nothing is wrong any more.
    async fn play(&mut self, script: &Script, load: &Load) -> Result<()> {
        let begun = Instant::now();
        for (time, act) in script.acts() {
            sleep_until(begun + *time).await;
            self.local.check()?;
            load.tell(&act.to_string());
            match act {
                Act::Begin(fault) => self.begin(*fault).await?,
                Act::End(fault) => self.end(*fault).await?,
                Act::RestartAll => {
                    self.local.kill_all().await?;
                    self.local.start_all().await?;
                }
            }
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
            passages.fold(Default::default(), node_kit::processes::Passage::and)
        });
    }
}

fn write_history(loaded: &Loaded, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("{}", path.display()))?;
    Ok(loaded.recorder.history().write_json(BufWriter::new(file))?)
}
