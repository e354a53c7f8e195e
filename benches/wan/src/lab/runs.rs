//! The measurements, one after the other, each form in turn.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use console::Output;

use super::Options;
use super::interrupt::until_interrupted;
use super::network::{Names, Network};
use super::processes::{Loss, Router, Site};
use crate::protocol::{Answer, Form, Measured, Model, Order, Window};
use crate::rows::{Row, Sum, table};
use crate::site::now_ns;
use crate::table::{SITES, Scenario};

/// How long the network gets to become empty between runs.
pub(super) const PAUSE: Duration = Duration::from_secs(3);

/// Measures, until it is done or interrupted.
pub(super) fn run(options: &Options, scenario: &Scenario) -> anyhow::Result<ExitCode> {
    until_interrupted(async {
        check(options.json.as_deref())?;
        let rows = Lab::measure(options, scenario).await?;
        options.json.as_deref().map_or(Ok(()), |file| write(file, &rows))?;
        println!("{}", table(&rows));
        Ok(())
    })
}

/// Looks whether a file can be written, before the minutes of work whose rows it is for.
pub(super) fn check(file: Option<&Path>) -> anyhow::Result<()> {
    drop(file.map(Output::open).transpose()?);
    Ok(())
}

/// Writes rows as JSON.
pub(super) fn write(file: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(rows)?;
    std::fs::write(file, json).with_context(|| format!("writing {}", file.display()))
}

pub(super) struct Lab<'a> {
    options: &'a Options,
    pub(super) scenario: &'a Scenario,
    // Dropped in this order: processes before the namespaces they are in.
    pub(super) sites: Vec<Site>,
    router: Router,
    _network: Network,
    run: u32,
}

impl<'a> Lab<'a> {
    /// Builds a network, measures, and removes it.
    pub(super) async fn measure(
        options: &'a Options,
        scenario: &'a Scenario,
    ) -> anyhow::Result<Vec<Row>> {
        let mut lab = Self::build(options, scenario).await?;
        let mut rows = Vec::new();
        for load in &options.load {
            lab.plan(*load).await?;
            for number in 0..options.runs {
                for form in [Form::Direct, Form::Overlay] {
                    let sum = lab.window(form, *load).await?;
                    let row = lab.row(form, *load, sum)?;
                    println!(
                        "run {} of {}, load {load}, {:7}: {:6.1} Mbit/s, mean {:7.1} ms, p99 {:7.1} ms, {} operations held back",
                        number + 1,
                        options.runs,
                        form.name(),
                        row.throughput_mbit,
                        row.mean_ms,
                        row.p99_ms,
                        sum.held_back,
                    );
                    rows.push(row);
                }
            }
        }
        if options.kill_relay {
            lab.kill_a_relay(options.load.iter().copied().fold(0.0, f64::max)).await?;
        }
        let router = lab.end().await?;
        println!("router: {router}\n");
        Ok(rows)
    }

    async fn build(options: &'a Options, scenario: &'a Scenario) -> anyhow::Result<Self> {
        let names = Names::of_this_process();
        let network = Network::new(&names, scenario.sites())?;
        let mut router = Router::start(&names, &scenario.model, Loss::default()).await?;
        network.connect(&scenario.model, &options.congestion)?;
        router.go().await?;
        let (mut sites, mut addresses) = (Vec::new(), Vec::new());
        for index in 0..scenario.sites() {
            let (site, address) = Site::start(&names, index, scenario.sites(), options).await?;
            sites.push(site);
            addresses.push(address);
        }
        let mut lab = Self { options, scenario, sites, router, _network: network, run: 0 };
        for answer in lab.ask(|_| Order::Connect(addresses.clone()), PAUSE).await? {
            anyhow::ensure!(answer == Answer::Connected, "a site is not connected: {answer:?}");
        }
        println!(
            "{} at {} Mbit/s, skew {}, operations of {} bytes, windows of {} KiB, {}",
            SITES[..scenario.sites()].join(" "),
            options.mbit,
            options.skew,
            options.op_bytes,
            options.window_kib,
            options.congestion,
        );
        Ok(lab)
    }

    /// Gives each site an order, and collects their answers.
    async fn ask(
        &mut self,
        order: impl Fn(usize) -> Order,
        takes: Duration,
    ) -> anyhow::Result<Vec<Answer>> {
        for (index, site) in self.sites.iter_mut().enumerate() {
            site.order(&order(index)).await?;
        }
        let mut answers = Vec::new();
        for site in &mut self.sites {
            answers.push(site.answer(takes).await?);
        }
        Ok(answers)
    }

    /// Gives all sites the plan for a load.
    pub(super) async fn plan(&mut self, load: f64) -> anyhow::Result<()> {
        let model = self.scenario.model_at(load);
        let model = Model {
            uplink: model.uplink,
            downlink: model.downlink,
            latency_us: model.latency_us,
            // As sites do that plan by themselves: with no slack a backlog would never go.
            demand: model.demand.iter().map(|rate| rate * 11 / 10).collect(),
            headroom_permille: self.scenario.headroom_permille,
        };
        let mut addresses = Vec::new();
        for answer in self.ask(|_| Order::Plan(model.clone()), PAUSE).await? {
            match answer {
                Answer::Listening(address) => addresses.push(address),
                other => bail!("a site has not started its overlay: {other:?}"),
            }
        }
        for answer in self.ask(|_| Order::Join(addresses.clone()), PAUSE).await? {
            anyhow::ensure!(answer == Answer::Connected, "an overlay is not connected: {answer:?}");
        }
        Ok(())
    }

    async fn window(&mut self, form: Form, load: f64) -> anyhow::Result<Sum> {
        let warm_up = Duration::from_secs(self.options.warm_up);
        let counted = Duration::from_secs(self.options.seconds);
        let (_, windows) = self.windows(form, load, warm_up, counted)?;
        let order = |index: usize| Order::Measure(windows[index].clone());
        let takes = warm_up + counted + PAUSE;
        let measured: Vec<Measured> = self
            .ask(order, takes)
            .await?
            .into_iter()
            .map(|answer| match answer {
                Answer::Measured(measured) => Ok(measured),
                other => bail!("a site has not measured: {other:?}"),
            })
            .collect::<Result<_, _>>()?;
        Ok(Sum::of(&measured, &windows, self.options.seconds as f64))
    }

    /// The next run, and what each site does in it.
    pub(super) fn windows(
        &mut self,
        form: Form,
        load: f64,
        warm_up: Duration,
        counted: Duration,
    ) -> anyhow::Result<(u32, Vec<Window>)> {
        self.run += 1;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let start_ns = now_ns() + nanos(PAUSE);
        let from_ns = start_ns + nanos(warm_up);
        let until_ns = from_ns + nanos(counted);
        let op_bytes = usize::try_from(self.options.op_bytes)?;
        let run = self.run;
        let window = |demand| Window { run, form, demand, op_bytes, start_ns, from_ns, until_ns };
        Ok((run, self.scenario.demand(load).into_iter().map(window).collect()))
    }

    fn row(&self, form: Form, load: f64, sum: Sum) -> anyhow::Result<Row> {
        let rates = match form {
            Form::Direct => self.scenario.direct_rates(load),
            Form::Overlay => {
                let plan = self.scenario.plan_at(load)?;
                let sites = (0_u16..).take(self.scenario.sites()).map(convoke_overlay::Site);
                sites.map(|site| plan.rate(site)).collect()
            }
        };
        Ok(Row {
            sites: self.scenario.sites(),
            skew: self.options.skew,
            form,
            load,
            throughput_mbit: sum.throughput_mbit,
            planned_mbit: rates.iter().sum::<u64>() as f64 / 1e3,
            mean_ms: sum.mean_ms,
            p99_ms: sum.p99_ms,
        })
    }

    /// Ends everything in order. What the router says of the packets it carried.
    async fn end(self) -> anyhow::Result<String> {
        for site in self.sites {
            site.end().await?;
        }
        self.router.end().await
    }
}
