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
    /// Address to listen at.
    #[arg(long)]
    listen: String,
}

/// A way to broadcast: what the lab compares.
trait Broadcast {
    /// Sends `payload` to all other sites; waits while there is no room for it.
    async fn broadcast(&self, payload: Bytes) -> anyhow::Result<()>;
}

/// Behind by no more than this, the sender catches up; beyond it, what it did not get to is not
/// offered any more. Above what a busy machine keeps a process waiting, or the lab would measure
/// that.
const CATCH_UP: Duration = Duration::from_millis(250);

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

    /// Offers operations at the rate of the window. Answers how many there was no room for in time.
    async fn offer(&self, window: &Window, form: &impl Broadcast) -> anyhow::Result<u64> {
        let every = operation_every(window);
        let (mut next_ns, mut held_back) = (window.start_ns, 0);
        let Some(every) = every else { return Ok(0) };
        while next_ns < window.until_ns {
            sleep_until_ns(next_ns).await;
            let head = Head { run: window.run, sent_ns: now_ns() };
            let until = Duration::from_nanos(window.until_ns.saturating_sub(head.sent_ns));
            let sent = form.broadcast(head.payload(window.op_bytes.max(HEAD_BYTES)));
            match tokio::time::timeout(until, sent).await {
                Ok(sent) => sent?,
                // There was no room before the end.
                Err(_) => return Ok(held_back + 1),
            }
            next_ns += every;
            let behind = Duration::from_nanos(now_ns().saturating_sub(next_ns));
            if behind > CATCH_UP {
                held_back += u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX) / every;
                next_ns = now_ns();
            }
        }
        Ok(held_back)
    }
}

/// Nanoseconds from one operation to the next; none for a site that sends nothing.
fn operation_every(window: &Window) -> Option<u64> {
    let bits = window.op_bytes as u64 * 8;
    (bits * 1_000_000).checked_div(window.demand).map(|every| every.max(1))
}

/// Connections by the index of their site.
type ByIndex<T> = BTreeMap<u16, T>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_operations_in_time() {
        let window = |demand, op_bytes| Window {
            run: 0,
            form: Form::Direct,
            demand,
            op_bytes,
            start_ns: 0,
            from_ns: 0,
            until_ns: 0,
        };
        // 16,000 bytes are 128 kbit.
        assert_eq!(operation_every(&window(128_000, 16_000)), Some(1_000_000));
        assert_eq!(operation_every(&window(0, 16_000)), None);
    }
}
