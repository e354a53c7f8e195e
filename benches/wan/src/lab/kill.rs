//! A relay dies in the middle of a run: what the others broadcast must still come to all the
//! others, and in time.

mod worst;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use convoke_overlay::Site as Index;

use self::worst::Worst;
use super::runs::Lab;
use crate::protocol::{Answer, Form, Order};
use crate::site::now_ns;
use crate::table::SITES;

/// How long to broadcast: the relay dies in the middle.
const LASTS: Duration = Duration::from_secs(12);

/// Time to settle: the others give up after some seconds what they owe to the dead, and late
/// operations come by then.
const SETTLES: Duration = Duration::from_secs(60);

impl Lab<'_> {
    /// Kills the site that relays most, and counts.
    pub(super) async fn kill_a_relay(&mut self, load: f64) -> anyhow::Result<()> {
        self.plan(load).await?;
        let plan = self.scenario.plan_at(load)?;
        let relayed = |site: &u16| plan.relayed_use(Index(*site));
        let count = u16::try_from(self.scenario.sites())?;
        let victim = (0..count).max_by_key(relayed).context("there are sites")?;
        ensure!(relayed(&victim) > 0, "nobody relays at this load and skew: choose more of it");
        let (run, windows) = self.windows(Form::Overlay, load, Duration::ZERO, LASTS)?;
        for (site, window) in self.sites.iter_mut().zip(windows) {
            site.order(&Order::Offer(window)).await?;
        }
        tokio::time::sleep(super::runs::PAUSE + LASTS / 2).await;
        let killed_ns = now_ns();
        self.sites.remove(usize::from(victim)).kill().await?;
        let alive: Vec<u16> = (0..count).filter(|site| *site != victim).collect();
        let (mut sent, mut resent, mut worst) = (BTreeMap::new(), 0, Worst::default());
        for (index, site) in alive.iter().zip(&mut self.sites) {
            match site.answer(LASTS + SETTLES).await? {
                Answer::Offered { operations, resent_bytes } => {
                    sent.insert(*index, operations);
                    resent += resent_bytes;
                }
                other => bail!("site {index} has not broadcast: {other:?}"),
            }
        }
        for (index, site) in alive.iter().zip(&mut self.sites) {
            site.order(&Order::Count(run)).await?;
            let Answer::Counted(came) = site.answer(Duration::ZERO).await? else {
                bail!("site {index} has not counted");
            };
            for (source, operations) in sent.iter().filter(|(source, _)| *source != index) {
                let came = came.get(source).cloned().unwrap_or_default();
                ensure!(
                    came.operations == *operations,
                    "site {index} has {} of the {operations} operations of site {source}",
                    came.operations,
                );
                worst.take(&came, killed_ns);
            }
        }
        println!(
            "{} was killed while it relayed {:.1} Mbit/s: all {} others have all {} operations of each other, \
             {:.1} MB of which were sent again",
            SITES[usize::from(victim)],
            relayed(&victim) as f64 / 1e3,
            alive.len(),
            sent.values().sum::<u64>(),
            resent as f64 / 1e6,
        );
        let farthest = self.scenario.model.latency_us.iter().max().copied().unwrap_or(0);
        worst.judge(Duration::from_micros(2 * u64::from(farthest)))
    }
}
