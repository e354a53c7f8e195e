//! The router and the sites as processes. They end with the lab: dropped, they are killed by their
//! own ids.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use convoke_overlay::HoseModel;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::Options;
use super::network::{Names, QUEUE_BYTES};
use crate::protocol::{Answer, Order};

/// A process that speaks in lines.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

/// How long a process may take for what it does at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// Real-time priority of the router: above everything that is not real-time.
const PRIORITY: &str = "10";

impl Process {
    /// Starts a program by this name for people.
    pub(super) fn start(name: String, program: &str, arguments: &[String]) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // An interrupt from the terminal is for the lab, which ends the others in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name} by `{program}`"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("its output is a pipe")?;
        Ok(Self { name, child, input, output: BufReader::new(output).lines() })
    }

    /// Gives it a line.
    pub(super) async fn write(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("it still has an input")?;
        let wrote = input.write_all(format!("{line}\n").as_bytes()).await;
        wrote.with_context(|| format!("{} does not listen any more", self.name))
    }

    /// A line of its output, after something that takes this long.
    pub(super) async fn read(&mut self, takes: Duration) -> anyhow::Result<String> {
        let line = timeout(PATIENCE + takes, self.output.next_line()).await;
        let line = line.with_context(|| format!("{} says nothing", self.name))?;
        line?.with_context(|| format!("{} has ended", self.name))
    }

    /// Ends its input, which ends it. What it says last.
    pub(super) async fn end(&mut self) -> anyhow::Result<String> {
        self.input = None;
        let mut last = String::new();
        while let Some(line) = timeout(PATIENCE, self.output.next_line()).await?? {
            last = line;
        }
        timeout(PATIENCE, self.child.wait()).await??;
        Ok(last)
    }
}

/// The packets that a router loses. Default: none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    /// Of each packet, from 0 to 1.
    pub(super) probability: f64,
    /// Decides which.
    pub(super) seed: u64,
}

/// The router.
#[derive(Debug)]
pub(super) struct Router(Process);

impl Router {
    /// Starts it, at real-time priority where that is allowed, and waits for its devices.
    pub(super) async fn start(
        names: &Names,
        model: &HoseModel,
        loss: Loss,
    ) -> anyhow::Result<Self> {
        let devices: Vec<_> = (0..model.sites()).map(|site| names.device(site)).collect();
        let latency: Vec<_> = model.latency_us.iter().map(u32::to_string).collect();
        let own = own_program()?;
        let router = [
            "router".to_owned(),
            format!("--devices={}", devices.join(",")),
            format!("--latency-us={}", latency.join(",")),
            format!("--downlink={}", model.downlink[0]),
            format!("--queue-bytes={QUEUE_BYTES}"),
            format!("--loss={}", loss.probability),
            format!("--seed={}", loss.seed),
        ];
        let mut arguments = Vec::new();
        let program = if may_be_real_time().await {
            arguments.extend(["--fifo".to_owned(), PRIORITY.to_owned(), own]);
            "chrt".to_owned()
        } else {
            eprintln!("without real-time priority (chrt --fifo): delays will be less exact");
            own
        };
        arguments.extend(router);
        let mut process = Process::start("the router".to_owned(), &program, &arguments)?;
        let ready = process.read(Duration::ZERO).await?;
        anyhow::ensure!(ready == "ready", "the router says {ready:?}");
        Ok(Self(process))
    }

    /// The devices are up.
    pub(super) async fn go(&mut self) -> anyhow::Result<()> {
        self.0.write("").await
    }

    /// Ends it. What it has to say of the packets it carried.
    pub(super) async fn end(mut self) -> anyhow::Result<String> {
        self.0.end().await
    }
}

/// The program of a site.
#[derive(Debug)]
pub(super) struct Site(Process);

impl Site {
    /// Starts it in its namespace, and waits until it listens. Where.
    pub(super) async fn start(
        names: &Names,
        site: usize,
        sites: usize,
        options: &Options,
    ) -> anyhow::Result<(Self, String)> {
        let mut arguments = vec!["netns".to_owned(), "exec".to_owned(), names.namespace(site)];
        arguments.extend([own_program()?, "site".to_owned()]);
        arguments.push(format!("--index={site}"));
        arguments.push(format!("--sites={sites}"));
        arguments.push(format!("--flows={}", options.flows));
        arguments.push(format!("--window-bytes={}", options.window_kib << 10));
        arguments.push(format!("--listen=tcp://{}:0", Names::address(site)));
        let mut started = Self(Process::start(format!("site {site}"), "ip", &arguments)?);
        match started.answer(Duration::ZERO).await? {
            Answer::Listening(address) => Ok((started, address)),
            other => bail!("site {site} does not listen: {other:?}"),
        }
    }

    pub(super) async fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        self.0.write(&serde_json::to_string(order)?).await
    }

    /// Its answer to an order that takes this long.
    pub(super) async fn answer(&mut self, takes: Duration) -> anyhow::Result<Answer> {
        let line = self.0.read(takes).await?;
        match serde_json::from_str(&line)? {
            Answer::Failed(text) => bail!("{}: {text}", self.0.name),
            answer => Ok(answer),
        }
    }

    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.0.end().await.map(|_| ())
    }

    /// Kills it, as a machine that fails does.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        self.0.child.kill().await.with_context(|| format!("killing {}", self.0.name))
    }
}

/// The file of this program.
pub(super) fn own_program() -> anyhow::Result<String> {
    let own = std::env::current_exe().context("finding this program")?;
    own.into_os_string().into_string().ok().context("this program's path is not text")
}

async fn may_be_real_time() -> bool {
    let mut tried = Command::new("chrt");
    tried.args(["--fifo", PRIORITY, "true"]).stdin(Stdio::null()).stderr(Stdio::null());
    tried.status().await.is_ok_and(|status| status.success())
}
