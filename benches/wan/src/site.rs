//! One site: takes orders from the lab, broadcasts at its rate, and times what comes.

mod clock;
mod direct;
mod overlay;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};

pub(crate) use self::clock::now_ns;
use self::clock::sleep_until_ns;
use self::record::{HEAD_BYTES, Head, Recorder};
use crate::protocol::{Answer, Form, Measured, Order, Window};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Index of this site among all.
    #[arg(long)]
    index: u16,
    /// How many there are.
    #[arg(long)]
    sites: u16,
    /// Connections of the overlay to each other site.
    #[arg(long)]
    flows: usize,
    /// Unread bytes that each connection may have on its way.
    #[arg(long)]
    window_bytes: u32,
    /// Address to listen at.
    #[arg(long)]
    listen: String,
}

/// A way to broadcast: what the lab compares.
trait Broadcast {
    /// Sends `payload` to all other sites; waits while there is no room for it.
    async fn broadcast(&self, payload: Bytes) -> anyhow::Result<()>;
}

/// Takes orders until the input ends.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let mut orders = BufReader::new(stdin()).lines();
        let mut site = Site::start(options).await?;
        site.serve(&mut orders).await
    });
    if let Err(error) = &done {
        answer(&Answer::Failed(format!("{error:#}")))?;
    }
    // Reading standard input may still hold a thread of the runtime.
    runtime.shutdown_background();
    done
}

fn answer(answer: &Answer) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(answer)?);
    Ok(())
}

struct Site<'a> {
    options: &'a Options,
    recorder: Arc<Recorder>,
    direct: direct::Direct,
    overlay: Option<overlay::OverTrees>,
}

impl<'a> Site<'a> {
    async fn start(options: &'a Options) -> anyhow::Result<Self> {
        let recorder = Arc::new(Recorder::default());
        let direct = direct::Direct::listen(options, Arc::clone(&recorder)).await?;
        Ok(Self { options, recorder, direct, overlay: None })
    }

    async fn serve(&mut self, orders: &mut Lines<BufReader<Stdin>>) -> anyhow::Result<()> {
        answer(&Answer::Listening(self.direct.address()))?;
        while let Some(line) = orders.next_line().await? {
            let order = serde_json::from_str(&line).context("reading an order")?;
            answer(&self.obey(order).await?)?;
        }
        if let Some(overlay) = self.overlay.take() {
            overlay.close().await;
        }
        self.direct.close().await;
        Ok(())
    }

    async fn obey(&mut self, order: Order) -> anyhow::Result<Answer> {
        match order {
            Order::Connect(addresses) => {
                self.direct.connect(&addresses).await?;
                Ok(Answer::Connected)
            }
            Order::Plan(model) => {
                if let Some(before) = self.overlay.take() {
                    before.close().await;
                }
                let recorder = Arc::clone(&self.recorder);
                let overlay = overlay::OverTrees::listen(self.options, &model, recorder).await?;
                let address = overlay.address()?;
                self.overlay = Some(overlay);
                Ok(Answer::Listening(address))
            }
            Order::Join(addresses) => {
                let overlay = self.overlay.as_ref().context("there is no plan yet")?;
                overlay.connect(&addresses).await?;
                Ok(Answer::Connected)
            }
            Order::Measure(window) => Ok(Answer::Measured(self.measure(&window).await?)),
            Order::Offer(window) => {
                let overlay = self.overlay.as_ref().context("there is no plan yet")?;
                overlay.offer(&window).await
            }
            Order::Count(run) => {
                let overlay = self.overlay.as_ref().context("there is no plan yet")?;
                Ok(Answer::Counted(overlay.came(run)))
            }
        }
    }

    async fn measure(&self, window: &Window) -> anyhow::Result<Measured> {
        self.recorder.begin(window);
        let held_back = match window.form {
            Form::Direct => self.offer(window, &self.direct).await?,
            Form::Overlay => {
                let overlay = self.overlay.as_ref().context("there is no plan yet")?;
                self.offer(window, overlay).await?
            }
        };
        sleep_until_ns(window.until_ns).await;
        Ok(Measured { held_back, ..self.recorder.end() })
    }

    /// Offers operations at the rate of the window, whenever there is room for them. Answers how
    /// many had none until its end.
    async fn offer(&self, window: &Window, form: &impl Broadcast) -> anyhow::Result<u64> {
        let Some(every_ns) = window.every_ns() else { return Ok(0) };
        let mut offered_ns = window.start_ns;
        while offered_ns < window.until_ns {
            sleep_until_ns(offered_ns).await;
            let left = Duration::from_nanos(window.until_ns.saturating_sub(now_ns()));
            if left.is_zero() {
                break;
            }
            let head = Head { run: window.run, source: self.options.index, offered_ns };
            let sent = form.broadcast(head.payload(window.op_bytes.max(HEAD_BYTES)));
            match tokio::time::timeout(left, sent).await {
                Ok(sent) => sent?,
                Err(_) => break,
            }
            offered_ns += every_ns;
        }
        Ok(window.until_ns.saturating_sub(offered_ns).div_ceil(every_ns))
    }
}

/// Connections by the index of their site.
type ByIndex<T> = BTreeMap<u16, T>;
